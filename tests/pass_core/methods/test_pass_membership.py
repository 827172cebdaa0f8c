"""An encoder that remembers its training records is found by the audit's membership attack; cross-fitted ones are not."""

import dataclasses

import numpy as np
import pytest
import torch

from pass_core.auditing.analyses.membership import ANALYSIS, Membership, find_membership
from pass_core.auditing.subject import DrawnRelease, Part, make_subject
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import Attribute, IntArray, Records
from pass_core.methods.base import FittedChannel, ReleaseContext, fit_method
from pass_core.methods.pass_substitution import METHOD, PassConfig
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b", "c"), "useful"))
RECORDINGS, CLIPS, DONORS = 160, 4, 80


def _recordings(seed: int) -> Part:
    """Recordings of a few clips, a third of them with another useful class than they sound like: that can only be remembered."""
    rng = stream(seed, "recordings")
    blocks = np.repeat(np.arange(RECORDINGS), CLIPS)
    s, sounds = rng.integers(2, size=RECORDINGS), rng.integers(3, size=RECORDINGS)
    u = np.where(rng.random(RECORDINGS) < 1 / 3, rng.integers(3, size=RECORDINGS), sounds)
    centres = rng.normal(size=(RECORDINGS, 16))
    centres[:, 0] += 2 * s
    centres[:, 1:4] += 2 * np.eye(3)[sounds]
    features = centres[blocks] + 0.2 * rng.normal(size=(len(blocks), 16))
    labels = {"s": s[blocks].astype(np.int64), "u": u[blocks].astype(np.int64)}
    return Part(Records(features.astype(np.float32), labels), np.zeros(len(blocks), dtype=np.int64), blocks)


def _donors(seed: int) -> IntArray:
    return np.sort(stream(seed, "donors").permutation(RECORDINGS * CLIPS)[:DONORS])


def _fit(seed: int, config: PassConfig, epochs: int = 40) -> tuple[FittedChannel, IntArray, ReleaseContext]:
    """A protector, the records that it learnt from (three tenths of the recordings are held out), and its donors."""
    part = _recordings(seed)
    context = ReleaseContext(ATTRIBUTES, part.records.subset(_donors(seed)), torch.device("cpu"))
    training = TrainConfig(epochs=epochs, batch_size=128, learning_rate=0.002, validation_share=0.3)
    fitted, learnt = fit_method(
        METHOD, part.records, part.blocks, context=context, config=config, training=training,
        rng_for=lambda *labels: stream(seed, *labels), run=TrainingContext(),
    )  # fmt: skip
    assert isinstance(fitted, FittedChannel)
    return fitted, learnt, context


def _membership(seed: int, config: PassConfig) -> Membership:
    """What the audit finds."""
    part, (fitted, learnt, context) = _recordings(seed), _fit(seed, config)
    subject = make_subject(
        attributes=ATTRIBUTES,
        train=part,
        test=part.subset(np.arange(CLIPS)),
        release=DrawnRelease(
            channel=lambda _split, _rows: fitted.channel,
            donor_features=context.pool.features,
            drawn_test=np.zeros(CLIPS, dtype=np.int64),
            donor_persons=np.zeros(DONORS, dtype=np.int64),
            donor_rows=_donors(seed),
            fresh_draws=1,
            rng=stream(seed, "draws"),
        ),
        learnt_from=learnt,
        combine_private=False,
    )
    found = find_membership(subject, lambda *labels: stream(seed, *labels))
    assert found is not None
    assert found.against == "held-out training records"
    return found


SEEDS = [range(3), pytest.param(range(3, 15), marks=pytest.mark.slow)]
SETTINGS = PassConfig(embedding_size=32)


@pytest.mark.parametrize("seeds", SEEDS)
def test_an_encoder_that_remembers_is_found_and_cross_fitted_ones_are_not(seeds: range) -> None:
    areas = {folds: [_membership(seed, dataclasses.replace(SETTINGS, folds=folds)) for seed in seeds] for folds in (1, 3)}
    for found in areas[1]:
        outcomes = [check.outcome for check in ANALYSIS.checks(found, Thresholds())]
        assert outcomes[0] == "leak shown", found.auc
    assert np.mean([found.auc.low <= 0.5 for found in areas[3]]) >= 0.8
    assert np.mean([found.auc.value for found in areas[3]]) < 0.58


def test_a_cross_fitted_protector_is_saved_whole_and_donors_may_withdraw() -> None:
    config = dataclasses.replace(SETTINGS, folds=3)
    fitted, _, context = _fit(1, config, epochs=1)
    features, state = _recordings(1).records.features, fitted.state_dict()
    (_, rows), *_ = fitted.channel.blocks(features)
    (_, again), *_ = METHOD.from_state_dict(state, context, config).channel.blocks(features)
    assert np.array_equal(rows, again)
    assert sum(name.endswith("networks.0.0.mean") for name in state) == 1
    kept = np.arange(10, DONORS)
    fewer = dataclasses.replace(context, pool=context.pool.subset(kept))
    (_, without), *_ = METHOD.from_state_dict(METHOD.without_donors(state, kept), fewer, config).channel.blocks(features)
    np.testing.assert_allclose(without, rows[:, kept] / rows[:, kept].sum(axis=1, keepdims=True), atol=1e-5)


def test_one_row_is_the_same_in_any_company() -> None:
    """A draw must not depend on the records beside it."""
    fitted, _, _ = _fit(1, dataclasses.replace(SETTINGS, folds=3), epochs=1)
    features = _recordings(1).records.features
    ((_, everything),) = fitted.channel.blocks(features)
    ((_, some),) = fitted.channel.blocks(features[100:130])
    assert np.array_equal(everything[100:130], some)
