"""The training loop: going on after a stop, records held out, stopping early, and numbers at their limits."""

import contextlib
import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pass_core.channel.joint_law import channel_law, mutual_information
from pass_core.data import Attribute, Records
from pass_core.errors import ConfigError, DataError
from pass_core.methods import adv, gap, mass, pass_substitution, transport_substitution
from pass_core.methods._pass_objective import Objective
from pass_core.methods.adv import AdvConfig
from pass_core.methods.base import FittedChannel, Method, ReleaseContext
from pass_core.methods.gap import GapConfig
from pass_core.methods.mass import MassConfig
from pass_core.methods.pass_substitution import PassConfig
from pass_core.methods.transport.channel import TransportConfig
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.held_out import TOTAL, hold_out
from pass_core.training.loop import TrainConfig, best_epoch, encoder_precision

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b", "c"), "useful"))


def _records(n: int, shape: tuple[int, ...]) -> Records:
    rng = stream(4, "training")
    labels = {"s": rng.integers(0, 2, n), "u": np.arange(n) % 3}
    x = rng.normal(0, 0.5, (n, *shape)).astype(np.float32)
    flat = x.reshape(n, -1)
    flat[:, 0] += 2 * labels["s"]
    flat[:, 1] += 2 * labels["u"]
    return Records(x, labels)


class Killed(Exception):
    """Stands for the end of the process."""


class Remembering:
    """Keeps the first `until` states, copied, then ends the process at the next offer: all later work is lost."""

    def __init__(self, until: int, kept: dict[str, Tensor] | None = None) -> None:
        self.kept, self._left = kept, until

    def load(self) -> Mapping[str, Tensor] | None:
        return self.kept

    def offer(self, state: Mapping[str, Tensor]) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1
        self.kept = {name: state[name].clone() for name in sorted(state)}  # as files do, it keeps no order


METHODS = [
    (pass_substitution.METHOD, PassConfig(embedding_size=8)),
    (transport_substitution.METHOD, TransportConfig(epsilon=0.1, rounds=5)),
    (adv.METHOD, AdvConfig()),
    (gap.METHOD, GapConfig(adversary_steps=3)),
    (mass.METHOD, MassConfig(pretraining_epochs=1)),
]


@pytest.mark.parametrize(("method", "config"), METHODS, ids=["pass", "transport", "adv", "gap", "mass"])
@pytest.mark.parametrize("shape", [(6,), (2, 16)], ids=["mlp", "cnn"])
def test_stopped_training_ends_at_the_same_bits(method: Method, config: object, shape: tuple[int, ...]) -> None:
    data = _records(150, shape)
    setting = ReleaseContext(
        ATTRIBUTES, Records(data.features[:30], {k: v[:30] for k, v in data.labels.items()}), torch.device("cpu")
    )

    def fit(checkpoints: Remembering) -> tuple[dict[str, Tensor], list[Epoch]]:
        told: list[Epoch] = []
        fitted = method.fit(
            data,
            context=setting,
            config=config,
            training=TrainConfig(7, 32, 0.005),
            rng=stream(1, "fit"),
            run=TrainingContext(told.append, checkpoints),
        )
        return fitted.state_dict(), told

    expected, curves = fit(Remembering(99))
    kept = None
    for stop_after in (2, 0, 3):  # epochs kept of each run; a run that kept none repeats what it lost
        killed = Remembering(stop_after, kept)
        with pytest.raises(Killed):
            fit(killed)
        kept = killed.kept
    assert kept is not None
    assert kept["epochs"] == 5
    resumed, again = fit(Remembering(99, kept))
    assert resumed.keys() == expected.keys()
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
    assert again == curves
    assert [list(epoch.terms) for epoch in again] == [list(epoch.terms) for epoch in curves]
    # The control: without the optimiser's moments or the generator the same weights would go elsewhere.
    for forgotten in ("optimiser.", "generator"):
        partial = {name: torch.zeros_like(t) if name.startswith("optimiser.") else t for name, t in kept.items()}
        if forgotten == "generator":
            partial = kept | {"generator": torch.Generator().manual_seed(9).get_state()}
        elsewhere, _ = fit(Remembering(99, partial))
        assert not all(torch.equal(elsewhere[name], expected[name]) for name in expected)


def _split(n: int = 400, shape: tuple[int, ...] = (6,)) -> tuple[Records, ReleaseContext]:
    data = _records(n, shape)
    return data, ReleaseContext(ATTRIBUTES, data.subset(np.arange(60)), torch.device("cpu"))


def _fit_pass(
    data: Records, setting: ReleaseContext, training: TrainConfig, run: TrainingContext, config: PassConfig | None = None
) -> tuple[FittedChannel, list[Epoch]]:
    told: list[Epoch] = []
    run = dataclasses.replace(run, on_epoch=told.append)
    config = config or PassConfig(embedding_size=8)
    return pass_substitution.METHOD.fit(
        data, context=setting, config=config, training=training, rng=stream(1, "fit"), run=run
    ), told


HELD_OUT = np.arange(300, 400)


def test_held_out_records_are_not_trained_on() -> None:
    data, setting = _split()
    training = TrainConfig(3, 32, 0.005)
    fitted, told = _fit_pass(data, setting, training, TrainingContext(held_out=HELD_OUT))
    blank = data.features.copy()
    blank[HELD_OUT] = 99
    changed, told_otherwise = _fit_pass(Records(blank, data.labels), setting, training, TrainingContext(held_out=HELD_OUT))
    assert all(torch.equal(a, b) for a, b in zip(fitted.state_dict().values(), changed.state_dict().values(), strict=True))
    assert told[-1].terms["total"] == told_otherwise[-1].terms["total"]
    assert told[-1].terms[TOTAL] != told_otherwise[-1].terms[TOTAL]
    trained_on, _ = _fit_pass(Records(blank, data.labels), setting, training, TrainingContext())  # the control
    assert not torch.equal(trained_on.state_dict()["donors"], fitted.state_dict()["donors"])


def test_figures_are_those_of_the_released_channel() -> None:
    data, setting = _split()
    config = PassConfig(embedding_size=8)
    fitted, told = _fit_pass(data, setting, TrainConfig(100, 32, 0.002), TrainingContext(held_out=HELD_OUT), config)
    held = data.subset(HELD_OUT)
    law = channel_law(fitted.channel, held.features, held.labels, ATTRIBUTES, rng=stream(1, "law"))
    terms = told[-1].terms
    information = {a.name: mutual_information(law.joint[a.name]) for a in ATTRIBUTES}
    for name, value in information.items():
        assert terms[f"held_out_information_{name}"] == pytest.approx(value)
        assert terms[f"held_out_chance_{name}"] > 0
    assert terms["held_out_general"] == pytest.approx(law.record_information)
    weights = config.weights(1, 1)
    above = {name: value - terms[f"held_out_chance_{name}"] for name, value in information.items()}
    assert terms[TOTAL] == pytest.approx(above["s"] - weights.useful * above["u"] - weights.general * law.record_information)
    # Learning shows: what the useful attribute tells is far above chance, what the private one tells is not.
    assert above["u"] > 0.5
    assert abs(above["s"]) < 0.1
    assert told[-1].terms[TOTAL] < told[0].terms[TOTAL]


@given(sizes=st.lists(st.integers(1, 40), min_size=2, max_size=30), share=st.floats(0.01, 0.5), seed=st.integers(0, 99))
def test_whole_blocks_are_held_out(sizes: list[int], share: float, seed: int) -> None:
    blocks = stream(seed, "order").permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows = hold_out(blocks, share, stream(seed, "hold out"))
    rest = np.setdiff1d(np.arange(len(blocks)), rows)
    assert 0 < len(rows) < len(blocks)
    assert not set(blocks[rows]) & set(blocks[rest])
    assert len(rows) <= max(share * len(blocks), min(sizes))
    assert (rows == hold_out(blocks, share, stream(seed, "hold out"))).all()


def test_no_share_and_no_second_block() -> None:
    assert len(hold_out(np.zeros(5, dtype=np.int64), 0, stream(1, "x"))) == 0
    with pytest.raises(DataError, match=r"at least two blocks, found one.*train\.validation_share"):
        hold_out(np.zeros(5, dtype=np.int64), 0.1, stream(1, "x"))


def test_impatient_training_keeps_the_best_epoch_also_when_it_goes_on() -> None:
    """A learning rate far too high: the held-out figure turns worse, and training must go back to before."""
    data, setting = _split()
    training = TrainConfig(40, 32, 0.05, patience=3)
    fitted, told = _fit_pass(data, setting, training, TrainingContext(held_out=HELD_OUT))
    watched = [epoch.terms[TOTAL] for epoch in told]
    best = best_epoch(watched)
    assert len(told) == best + 3 < 40
    assert told[-1].number == told[-1].total
    held = data.subset(HELD_OUT)
    law = channel_law(fitted.channel, held.features, held.labels, ATTRIBUTES, rng=stream(1, "law"))
    assert mutual_information(law.joint["u"]) == pytest.approx(told[best - 1].terms["held_out_information_u"])
    assert mutual_information(law.joint["u"]) != pytest.approx(told[-1].terms["held_out_information_u"])  # the control
    for stop_after in (best - 1, best + 1, best + 3):
        killed = Remembering(stop_after)
        with contextlib.suppress(Killed):
            _fit_pass(data, setting, training, TrainingContext(checkpoints=killed, held_out=HELD_OUT))
        again, told_again = _fit_pass(
            data, setting, training, TrainingContext(checkpoints=Remembering(99, killed.kept), held_out=HELD_OUT)
        )
        assert told_again == told
        assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), fitted.state_dict().values(), strict=True))


def test_a_cross_fitted_training_resumes_to_the_same_bits() -> None:
    """Also the table that says which network a record meets."""
    (data, setting), training, config = _split(120), TrainConfig(4, 32, 0.002), PassConfig(embedding_size=8, folds=3)
    expected, told = _fit_pass(data, setting, training, TrainingContext(), config)
    killed = Remembering(2)
    with pytest.raises(Killed):
        _fit_pass(data, setting, training, TrainingContext(checkpoints=killed), config)
    again, told_again = _fit_pass(data, setting, training, TrainingContext(checkpoints=Remembering(99, killed.kept)), config)
    assert told_again == told
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), expected.state_dict().values(), strict=True))


def test_settings_of_validation_are_checked() -> None:
    with pytest.raises(ConfigError, match="validation_share: expected between 0 and"):
        TrainConfig(1, 2, validation_share=0.9)
    with pytest.raises(ConfigError, match="patience: expected held-out records"):
        TrainConfig(1, 2, validation_share=0, patience=2)
    with pytest.raises(ConfigError, match="patience: expected at least 1"):
        TrainConfig(1, 2, patience=0)
    with pytest.raises(ConfigError, match="batch_size"):
        TrainConfig(1, 1)


@pytest.mark.parametrize("shape", [(6,), (2, 16)], ids=["mlp", "cnn"])
def test_encoder_in_bfloat16_learns_and_gives_float32(shape: tuple[int, ...]) -> None:
    data, setting = _split(shape=shape)
    plain, _ = _fit_pass(data, setting, TrainConfig(15, 32, 0.005), TrainingContext())
    fitted, told = _fit_pass(data, setting, TrainConfig(15, 32, 0.005, amp=True), TrainingContext())
    assert all(np.isfinite(list(epoch.terms.values())).all() for epoch in told)
    assert told[-1].terms["total"] < told[0].terms["total"] - 0.3
    state = fitted.state_dict()
    assert {t.dtype for name, t in state.items() if not name.endswith("num_batches_tracked")} == {torch.float32}
    assert not torch.equal(state["donors"], plain.state_dict()["donors"])  # the control: it did compute otherwise
    encoder = fitted.channel.encoder.train()
    with encoder_precision(TrainConfig(1, 2, amp=True), torch.device("cpu")):
        assert encoder(torch.from_numpy(data.features[:8])).dtype == torch.bfloat16


@pytest.mark.parametrize("amp", [False, True])
def test_only_with_amp_may_products_with_donors_round_their_inputs(amp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    data, setting = _split()
    chosen: list[str] = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", chosen.append)
    _fit_pass(data, setting, TrainConfig(1, 32, amp=amp), TrainingContext())
    assert ("medium" in chosen) == amp


def test_cold_channel_stays_finite_over_two_thousand_epochs() -> None:
    """τ = 0.01 in float32, long after the channel has saturated."""
    data, setting = _split(96)
    config = PassConfig(temperature=0.01, embedding_size=8, encoder="face_head")
    fitted, told = _fit_pass(data, setting, TrainConfig(2000, 96, 0.01), TrainingContext(), config)
    assert len(told) == 2000
    assert np.isfinite([list(epoch.terms.values()) for epoch in told]).all()
    assert all(torch.isfinite(tensor).all() for tensor in fitted.state_dict().values())
    rows = np.concatenate([p for _, p in fitted.channel.blocks(data.features)])
    assert np.isfinite(rows).all()
    assert rows.sum(axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-4)


def test_saturated_logits_have_finite_terms_and_gradients() -> None:
    """Every record sits on one donor, of its own class or of the other: probabilities of exactly 0 and 1."""
    g = torch.eye(4).requires_grad_()
    f = torch.eye(4)[[0, 0, 1, 2, 3, 3]].requires_grad_()
    donors = torch.tensor([[1.0, 1, 0, 0], [0, 0, 1, 1]])
    objective = Objective(private_classes=(2,), useful_donors=(donors,), useful_weight=1.0, general_weight=0.2, temperature=0.001)
    total, terms = objective(f, g, [torch.tensor([0, 1, 0, 1, 0, 1])], [torch.tensor([0, 1, 1, 0, 0, 1])])
    total.backward()
    assert torch.isfinite(terms).all()
    assert f.grad is not None
    assert g.grad is not None
    assert torch.isfinite(f.grad).all()
    assert torch.isfinite(g.grad).all()
