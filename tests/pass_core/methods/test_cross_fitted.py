"""A protector that remembers its training records is found by the audit's membership attack; a cross-fitted one is not."""

import dataclasses

import numpy as np
import pytest
import torch

from pass_core.auditing.analyses.membership import ANALYSIS, Membership, find_membership
from pass_core.auditing.subject import DrawnRelease, Part, make_subject
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import Attribute, IntArray, Records
from pass_core.methods import pass_substitution, transport_substitution
from pass_core.methods.base import FittedChannel, ReleaseContext, fit_method
from pass_core.methods.pass_substitution import PassConfig
from pass_core.methods.transport.channel import TransportConfig
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b", "c"), "useful"))
RECORDINGS, CLIPS, DONORS = 160, 4, 80
METHODS = {
    "pass": (pass_substitution.METHOD, PassConfig(embedding_size=32)),
    # Without the donors' own likeness and without dropout, its classifier decides alone.
    "transport": (transport_substitution.METHOD, TransportConfig(epsilon=1.0, dropout=0.0, rounds=5)),
    "transport with several classifiers": (
        transport_substitution.METHOD,
        TransportConfig(epsilon=1.0, dropout=0.0, rounds=5, classifiers=2),
    ),
}


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


def _fit(name: str, folds: int, seed: int, epochs: int = 40) -> tuple[FittedChannel, IntArray, ReleaseContext]:
    """A protector that nothing stops early, the records of seven tenths of the recordings it learnt from, and its donors."""
    part, (method, config) = _recordings(seed), METHODS[name]
    learnt = np.flatnonzero(np.isin(part.blocks, stream(seed, "learnt").permutation(RECORDINGS)[: round(0.7 * RECORDINGS)]))
    context = ReleaseContext(ATTRIBUTES, part.records.subset(_donors(seed)), torch.device("cpu"))
    fitted, _ = fit_method(
        method,
        part.records.subset(learnt),
        part.blocks[learnt],
        context=context,
        config=dataclasses.replace(config, folds=folds),
        training=TrainConfig(epochs=epochs, batch_size=128, learning_rate=0.002, validation_share=0),
        rng_for=lambda *labels: stream(seed, *labels),
        run=TrainingContext(),
    )
    assert isinstance(fitted, FittedChannel)
    return fitted, learnt, context


def _membership(name: str, folds: int, seed: int) -> Membership:
    """What the audit finds."""
    part, (fitted, learnt, context) = _recordings(seed), _fit(name, folds, seed)
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


def _outcomes(found: Membership) -> list[str]:
    return [check.outcome for check in ANALYSIS.checks(found, Thresholds())]


SEEDS = [range(3), pytest.param(range(3, 15), marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("seeds", SEEDS)
def test_a_protector_that_remembers_is_found_and_a_cross_fitted_one_is_not(name: str, seeds: range) -> None:
    alone, fitted = ([_membership(name, folds, seed) for seed in seeds] for folds in (1, 3))
    for found in alone:
        assert "leak shown" in _outcomes(found), found.auc
    # The larger of two attacks' figures is above a coin toss by chance, too.
    assert np.mean([found.auc.value for found in fitted]) < 0.6
    assert np.mean([found.auc.value for found in alone]) > np.mean([found.auc.value for found in fitted]) + 0.2
    assert np.mean(["leak shown" in _outcomes(found) for found in fitted]) < 0.1


@pytest.mark.parametrize("name", METHODS)
def test_a_cross_fitted_protector_is_saved_whole_and_donors_may_withdraw(name: str) -> None:
    method, config = METHODS[name][0], dataclasses.replace(METHODS[name][1], folds=3)
    fitted, _, context = _fit(name, 3, seed=1, epochs=1)
    features, state = _recordings(1).records.features, fitted.state_dict()
    (_, rows), *_ = fitted.channel.blocks(features)
    (_, again), *_ = method.from_state_dict(state, context, config).channel.blocks(features)
    assert np.array_equal(rows, again)
    kept = np.arange(10, DONORS)
    fewer = dataclasses.replace(context, pool=context.pool.subset(kept))
    (_, without), *_ = method.from_state_dict(method.without_donors(state, kept), fewer, config).channel.blocks(features)
    assert without.shape == (len(rows), len(kept))
    if name == "pass":
        np.testing.assert_allclose(without, rows[:, kept] / rows[:, kept].sum(axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_row_is_the_same_in_any_company(name: str) -> None:
    """A draw must not depend on the records beside it."""
    fitted, _, _ = _fit(name, 3, seed=1, epochs=1)
    features = _recordings(1).records.features
    ((_, everything),) = fitted.channel.blocks(features)
    ((_, some),) = fitted.channel.blocks(features[100:130])
    assert np.array_equal(everything[100:130], some)
