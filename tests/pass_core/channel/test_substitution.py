"""Networks, channel and training: theorem tests, seeds, and what must not touch global state."""

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from pass_core.channel.joint_law import channel_law, mutual_information, plug_in_accuracy
from pass_core.channel.substitution import BLOCK_ROWS, ExcludingChannel, Exclusion, SubstitutionChannel
from pass_core.data import Attribute, Records
from pass_core.errors import ConfigError, MethodError
from pass_core.methods.base import ReleaseContext
from pass_core.methods.pass_substitution import METHOD, PassConfig, Weights
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.loop import TrainConfig, minimise
from pass_core.training.networks import build_network
from tests.pass_core.methods.reference_losses import log_probabilities


def _planted(n: int, rng: np.random.Generator) -> tuple[Records, tuple[Attribute, ...]]:
    """Vectors whose first coordinate shows the private class, the second the useful one; the rest is noise."""
    private, useful = rng.integers(0, 2, n), rng.integers(0, 2, n)
    x = rng.normal(0, 0.3, (n, 6)).astype(np.float32)
    x[:, 0] += 2 * private - 1
    x[:, 1] += 2 * useful - 1
    attributes = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b"), "useful"))
    return Records(x, {"s": private.astype(np.int64), "u": useful.astype(np.int64)}), attributes


def _fit(epochs: int, seed: int, rng: np.random.Generator) -> tuple[object, Records, ReleaseContext, list[Epoch]]:
    data, attributes = _planted(512, rng)
    pool = Records(data.features[:64], {name: v[:64] for name, v in data.labels.items()})
    setting = ReleaseContext(attributes, pool, torch.device("cpu"))
    seen: list[Epoch] = []
    config = PassConfig(embedding_size=16)
    fitted = METHOD.fit(
        data,
        context=setting,
        config=config,
        training=TrainConfig(epochs, 128, 0.005),
        rng=stream(seed, "fit"),
        run=TrainingContext(seen.append),
    )
    return fitted, data, setting, seen


@pytest.mark.parametrize(("shape", "kind"), [((2, 128), "auto"), ((768,), "auto"), ((512,), "face_head"), ((3, 16), "cnn")])
def test_network_maps_records_to_outputs(shape: tuple[int, ...], kind: str) -> None:
    network = build_network(kind, shape, 7, torch.Generator().manual_seed(1))
    assert network(torch.zeros(4, *shape)).shape == (4, 7)


def test_signal_network_is_the_papers() -> None:
    """Four convolutions 2→16→32→64→64 and two linear layers 512→256→512."""
    network = build_network("cnn", (2, 128), 512, torch.Generator().manual_seed(1))
    shapes = [tuple(layer.weight.shape) for layer in network.modules() if isinstance(layer, torch.nn.Conv1d | torch.nn.Linear)]
    assert shapes == [(16, 2, 3), (32, 16, 3), (64, 32, 3), (64, 64, 3), (256, 512), (512, 256)]


def test_unsuitable_network_is_a_clear_error() -> None:
    with pytest.raises(MethodError, match="expected records of shape"):
        build_network("cnn", (10,), 2, torch.Generator())
    with pytest.raises(MethodError, match="at least 16 points"):
        build_network("cnn", (2, 8), 2, torch.Generator())


def test_nothing_touches_global_random_state(rng: np.random.Generator) -> None:
    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002 (watching it)
    _fit(1, 1, rng)
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002
    assert before[2] == random.getstate()


def test_training_repeats_by_seed_and_ignores_global_state(rng: np.random.Generator) -> None:
    first = _fit(2, 1, stream(0, "x"))[0].state_dict()
    torch.manual_seed(12345)
    again = _fit(2, 1, stream(0, "x"))[0].state_dict()
    other = _fit(2, 2, stream(0, "x"))[0].state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["donors"], other["donors"])


def test_rows_are_distributions_and_temperature_has_its_limits() -> None:
    generator = torch.Generator().manual_seed(2)
    f, g = torch.randn(5, 8, generator=generator), torch.randn(9, 8, generator=generator)
    for temperature in (0.01, 1.0):
        assert torch.allclose(log_probabilities(f, g, temperature).exp().sum(dim=1), torch.ones(5))
    nearest = (torch.nn.functional.normalize(f) @ torch.nn.functional.normalize(g).T).argmax(dim=1)
    cold = log_probabilities(f, g, 1e-5).exp()
    assert torch.equal(cold.argmax(dim=1), nearest)
    assert (cold.max(dim=1).values > 0.99).all()
    assert torch.allclose(log_probabilities(f, g, 1e6).exp(), torch.full((5, 9), 1 / 9), atol=1e-5)


def test_scores_of_a_record_do_not_depend_on_its_neighbours() -> None:
    generator = torch.Generator().manual_seed(3)
    encoder = build_network("cnn", (2, 128), 32, generator)
    channel = SubstitutionChannel(encoder, torch.randn(100, 32, generator=generator), 0.01)
    x = stream(5, "x").normal(size=(BLOCK_ROWS + 300, 2, 128)).astype(np.float32)
    whole = np.concatenate([p for _, p in channel.blocks(x)])
    order = stream(6, "order").permutation(len(x))
    shuffled = np.concatenate([p for _, p in channel.blocks(x[order])])
    alone = np.concatenate([p for _, p in channel.blocks(x[7:8])])
    assert (whole[order] == shuffled).all()
    assert (whole[7:8] == alone).all()
    assert list(channel.blocks(x[:0])) == []


def test_channel_is_the_formula() -> None:
    """Computed in place and in blocks, but equation 2."""
    generator = torch.Generator().manual_seed(4)
    encoder = build_network("mlp", (20,), 32, generator).eval()
    donors = torch.randn(1500, 32, generator=generator)
    x = stream(5, "x").normal(size=(BLOCK_ROWS + 10, 20)).astype(np.float32)
    for temperature in (0.01, 1.0):
        found = np.concatenate([p for _, p in SubstitutionChannel(encoder, donors, temperature).blocks(x)])
        with torch.inference_mode():
            expected = log_probabilities(encoder(torch.from_numpy(x)).double(), donors.double(), temperature).exp()
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-3, atol=1e-7)
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


def test_pass_hides_the_private_and_keeps_the_useful(rng: np.random.Generator) -> None:
    fitted, data, setting, seen = _fit(30, 1, rng)
    released = fitted.transform(data.features, stream(2, "draw"))
    assert {row.tobytes() for row in released} <= {row.tobytes() for row in setting.pool.features}
    assert ((released[:, 1] > 0) == data.labels["u"]).mean() > 0.95
    # The original's private class is plain to see (control) and gone from what is released.
    assert ((data.features[:, 0] > 0) == data.labels["s"]).mean() > 0.95
    assert abs(((released[:, 0] > 0) == data.labels["s"]).mean() - 0.5) < 0.1
    assert [epoch.number for epoch in seen] == list(range(1, 31))
    assert seen[-1].terms["total"] < seen[0].terms["total"]
    assert set(seen[0].terms) == {"total", "private_s", "useful_u", "spread", "general", "bound"}


def test_state_survives_a_round_trip(rng: np.random.Generator) -> None:
    fitted, data, setting, _ = _fit(1, 1, rng)
    again = METHOD.from_state_dict(fitted.state_dict(), setting, PassConfig(embedding_size=16))
    assert (again.transform(data.features, stream(1, "t")) == fitted.transform(data.features, stream(1, "t"))).all()


def test_default_weights_are_the_papers() -> None:
    assert PassConfig().weights(2, 1) == Weights(private=1, spread=1, useful=2.0, general=0.4, teacher=0, known=0)
    assert PassConfig().weights(1, 2) == Weights(private=1, spread=1, useful=0.5, general=0.2, teacher=0, known=0)
    assert PassConfig(useful_weight=3, spread_weight=0).weights(1, 1) == Weights(
        private=1, spread=0, useful=3, general=0.2, teacher=0, known=0
    )
    assert PassConfig(preset="improved", general_weight=0.1).weights(1, 1) == Weights(
        private=0, spread=0, useful=0.3, general=0.1, teacher=1, known=0
    )
    with pytest.raises(ConfigError, match="general_weight"):
        PassConfig(general_weight=2).weights(1, 1)


def _voices(n: int, rng: np.random.Generator) -> tuple[Records, tuple[Attribute, ...]]:
    """A private class, a useful one, and sixty voices that nobody names."""
    labels = {"s": (rng.random(n) < 0.3).astype(np.int64), "u": rng.integers(0, 2, n), "voice": rng.integers(0, 60, n)}
    x = rng.normal(0, 0.2, (n, 14)).astype(np.float32)
    x[:, 0] += 2 * labels["s"]
    x[:, 1] += 2 * labels["u"]
    x[:, 2:] += rng.normal(0, 1, (60, 12))[labels["voice"]]
    classes = {"s": (2, "private"), "u": (2, "useful"), "voice": (60, "general")}
    return Records(x, labels), tuple(Attribute(k, tuple(map(str, range(m))), role) for k, (m, role) in classes.items())


def test_the_improved_preset_keeps_what_nobody_named(rng: np.random.Generator) -> None:
    """Both hide the private class and keep the useful one; only the improved one keeps the voices."""
    data, attributes = _voices(2000, rng)
    setting = ReleaseContext(attributes, data.subset(np.arange(400)), torch.device("cpu"))
    kept = {}
    for preset in ("paper", "improved"):
        told: list[Epoch] = []
        config = PassConfig(preset=preset, embedding_size=32, teacher_epsilon=0.05)
        fitted = METHOD.fit(
            data,
            context=setting,
            config=config,
            training=TrainConfig(30, 128, 0.003),
            rng=stream(1, "fit"),
            run=TrainingContext(told.append),
        )
        law = channel_law(fitted.channel, data.features, data.labels, attributes, rng=stream(2, "law"))
        assert mutual_information(law.joint["s"]) < 0.06  # of 0.61 that the class has
        assert plug_in_accuracy(law.joint["u"]) > 0.95
        assert ("teacher" in told[-1].terms, "bound" in told[-1].terms) == (
            (True, False) if preset == "improved" else (False, True)
        )
        kept[preset] = plug_in_accuracy(law.joint["voice"])
    assert kept["improved"] > kept["paper"] + 0.2


def test_joint_private_hides_what_two_attributes_tell_together(rng: np.random.Generator) -> None:
    """Records of one parity go to other donors: each attribute alone is hidden, their combination is not, unless asked for."""
    n = 1024
    first, second = rng.integers(0, 2, n), rng.integers(0, 2, n)
    parity = first ^ second
    labels = {"a": first, "b": second, "u": parity, "both": 2 * first + second}
    x = rng.normal(0, 0.1, (n, 4)).astype(np.float32)
    x[:, 0] += 2 * parity
    x[:, 1] += 2 * first
    data = Records(x, labels)
    binary = ("0", "1")
    attributes = (Attribute("a", binary, "private"), Attribute("b", binary, "private"), Attribute("u", binary, "useful"))
    setting = ReleaseContext(attributes, data.subset(np.arange(128)), torch.device("cpu"))
    combined = Attribute("both", ("0", "1", "2", "3"), "general")
    told = {}
    for joint in (False, True):
        config = PassConfig(temperature=0.1, embedding_size=16, useful_weight=0.5, joint_private=joint)
        fitted = METHOD.fit(
            data,
            context=setting,
            config=config,
            training=TrainConfig(60, 256, 0.005),
            rng=stream(1, "fit"),
            run=TrainingContext(),
        )
        law = channel_law(fitted.channel, data.features, labels, (*attributes, combined), rng=stream(2, "law"))
        assert mutual_information(law.joint["a"]) < 0.02
        assert mutual_information(law.joint["b"]) < 0.02
        told[joint] = mutual_information(law.joint["both"])
    assert told[False] > 0.5  # the parity, and with it half of the combination
    assert told[True] < 0.1


def test_pass_refuses_a_setting_it_cannot_meet(rng: np.random.Generator) -> None:
    data, attributes = _planted(64, rng)
    one_class = data.labels["u"] == 0
    pool = Records(data.features[one_class], {name: v[one_class] for name, v in data.labels.items()})
    given = {"config": PassConfig(embedding_size=8), "training": TrainConfig(1, 16), "rng": rng, "run": TrainingContext()}
    with pytest.raises(MethodError, match="expected a donor of each class"):
        METHOD.fit(data, context=ReleaseContext(attributes, pool, torch.device("cpu")), **given)
    with pytest.raises(MethodError, match=r"at least one (private|useful) attribute"):
        METHOD.fit(data, context=ReleaseContext(attributes[:1], data, torch.device("cpu")), **given)


def test_minimise_uses_whole_batches_and_a_cosine_schedule() -> None:
    weight = torch.zeros(1, requires_grad=True)
    sizes: list[int] = []
    steps: list[float] = []

    def loss(rows: torch.Tensor, epoch: int) -> dict[str, torch.Tensor]:
        sizes.append(len(rows))
        steps.append(float(weight.detach()))
        return {"total": -weight.sum()}  # constant gradient: AdamW moves by the learning rate

    minimise(
        loss,
        {"weight": weight},
        25,
        TrainConfig(2, 10, 0.1, 0.0),
        generator=torch.Generator().manual_seed(1),
        run=TrainingContext(),
    )
    assert sizes == [10] * 4
    moves = np.diff([*steps, float(weight.detach())])
    assert moves == pytest.approx([0.1 * 0.5 * (1 + np.cos(np.pi * k / 4)) for k in range(4)], rel=1e-4)


def test_divergence_is_told() -> None:
    weight = torch.ones(1, requires_grad=True)
    with pytest.raises(ConfigError, match="found another in epoch 1"):
        minimise(
            lambda _r, _e: {"total": (weight / 0).sum()},
            {"w": weight},
            4,
            TrainConfig(1, 2),
            generator=torch.Generator(),
            run=TrainingContext(),
        )


class _Fixed:
    """A channel with given rows."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows.astype(np.float32)
        self.pool_size = rows.shape[1]

    def blocks(self, features: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        for start in range(0, len(features), 2):
            rows = slice(start, min(start + 2, len(features)))
            yield rows, self._rows[rows]


def test_forbidden_donors_get_nothing_and_the_others_their_share() -> None:
    rows = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    channel = ExcludingChannel(_Fixed(rows), Exclusion(np.array([7, 9, 4]), np.array([7, 4, 4])))
    found = np.concatenate([p for _, p in channel.blocks(np.zeros((3, 2), dtype=np.float32))])
    assert found == pytest.approx(np.array([[0, 0.6, 0.4], [0.1, 0.8, 0.1], [1, 0, 0]]), abs=1e-6)
    alone = ExcludingChannel(_Fixed(rows), Exclusion(np.array([7, 7, 7]), np.array([7, 7, 7])))
    with pytest.raises(MethodError, match=r"pool\.forbid: expected a donor for every record, found 2 record\(s\) without"):
        list(alone.blocks(np.zeros((3, 2), dtype=np.float32)))
