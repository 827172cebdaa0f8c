"""Every method's objective on three records, against its equation worked out number by number."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pass_core.data import Attribute, Records
from pass_core.errors import MethodError
from pass_core.methods import adv, bdq, gap, mass, msda, ppdar, spact
from pass_core.methods.adversarial.generators import Generator
from pass_core.methods.adversarial.players import GameConfig, Members, Move, Players
from pass_core.methods.base import ReleaseContext
from pass_core.methods.mass import info_nce
from pass_core.methods.spact import nt_xent
from pass_core.training.networks import drawn_from

# Records are their own logits: classifiers are identities, and nothing is hidden in a network.
ORIGINAL = [[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
RELEASED = [[1.0, 0.0], [0.5, 0.5], [0.0, 2.0]]
PRIVATE = [[0.0, 1.0], [3.0, 0.0], [0.2, 0.1]]  # what the adversary of s says
S_LABELS, U_LABELS = [1, 0, 1], [0, 1, 1]
ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b"), "useful"))
DATA = Records(np.array(ORIGINAL, dtype=np.float32), {"s": np.array(S_LABELS), "u": np.array(U_LABELS)})
SETTING = ReleaseContext(ATTRIBUTES, DATA, torch.device("cpu"))
Rows = Sequence[Sequence[float]]


class Passing(Generator):
    """Gives records back."""

    def __init__(self) -> None:
        super().__init__((2,), (0,))

    def forward(self, records: Tensor, noise: Tensor) -> Tensor:  # noqa: ARG002 (draws nothing)
        return records


class Answering(nn.Module):
    """Returns the same logits for any records."""

    def __init__(self, logits: Rows) -> None:
        super().__init__()
        self._logits = torch.tensor(logits)

    def forward(self, records: Tensor) -> Tensor:  # noqa: ARG002 (the same for any records)
        return self._logits


def _move(private: Sequence[Rows] = (PRIVATE,), epoch: int = 0) -> Move:
    generator = drawn_from(torch.Generator().manual_seed(0), Passing)
    adversaries = Members([Answering(logits) for logits in private])
    players = Players(generator, {"s": adversaries}, {"u": nn.Identity()}, nn.Identity(), nn.Identity())
    return Move(
        players=players,
        original=torch.tensor(ORIGINAL),
        released=torch.tensor(RELEASED),
        labels={"s": torch.tensor(S_LABELS), "u": torch.tensor(U_LABELS)},
        random=torch.Generator().manual_seed(5),
        epoch=epoch,
    )


def _softmax(row: Sequence[float]) -> list[float]:
    weights = [math.exp(value) for value in row]
    return [weight / sum(weights) for weight in weights]


def _cross_entropy(rows: Rows, labels: list[int]) -> float:
    return -sum(math.log(_softmax(row)[label]) for row, label in zip(rows, labels, strict=True)) / len(rows)


def _cosine(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True)) / math.hypot(*first) / math.hypot(*second)


def _numbers(terms: dict[str, Tensor]) -> dict[str, float]:
    return {name: float(term) for name, term in terms.items()}


def test_adv_loss_is_its_equation() -> None:
    divergence = 0.0
    for before, after in zip(ORIGINAL, RELEASED, strict=True):
        divergence += sum(p * math.log(p / q) for p, q in zip(_softmax(before), _softmax(after), strict=True)) / 3
    shares = [(1 + 1) / 5, (2 + 1) / 5]  # counts of s, each one more than it occurs
    leaked = sum(p * math.log(p / share) for row in PRIVATE for p, share in zip(_softmax(row), shares, strict=True)) / 3
    config = adv.AdvConfig(penalty=50.0, budget=0.1)
    told = _numbers(adv.METHOD.objective(DATA, SETTING, config)(_move()))
    assert leaked > 0.1
    assert told == pytest.approx({"useful": divergence, "private": 50 * (leaked - 0.1) ** 2}, rel=1e-5)


def test_adv_budget_that_is_kept_costs_nothing() -> None:
    config = adv.AdvConfig(budget=5.0)
    assert _numbers(adv.METHOD.objective(DATA, SETTING, config)(_move()))["private"] == 0


def test_gap_loss_is_its_equation() -> None:
    squares = [(a - b) ** 2 for x, y in zip(ORIGINAL, RELEASED, strict=True) for a, b in zip(x, y, strict=True)]
    distortion = sum(squares) / 6
    config = gap.GapConfig(distortion=0.2, penalty=10.0, penalty_growth=2.0, penalty_at_most=30.0)
    objective = gap.METHOD.objective(DATA, SETTING, config)
    for epoch, penalty in enumerate((10, 20, 30, 30)):
        told = _numbers(objective(_move(epoch=epoch)))
        expected = {"private": -_cross_entropy(PRIVATE, S_LABELS), "distortion": penalty * (distortion - 0.2)}
        assert told == pytest.approx(expected, rel=1e-5)


def test_gap_penalty_does_not_overflow() -> None:
    assert gap.GapConfig().penalty_in(100_000) == pytest.approx(1000)


def test_msda_loss_is_its_equation() -> None:
    squares = [(a - b) ** 2 for x, y in zip(ORIGINAL, RELEASED, strict=True) for a, b in zip(x, y, strict=True)]
    exposed = 0.0
    for row, label in zip(PRIVATE, S_LABELS, strict=True):
        p = _softmax(row)
        exposed += (-math.log(1 - p[label]) - math.log(1 - max(p))) / 3
    told = _numbers(msda.METHOD.objective(DATA, SETTING, msda.MsdaConfig())(_move()))
    useful = 2 * _cross_entropy(RELEASED, U_LABELS)
    assert told == pytest.approx({"distortion": 0.01 * sum(squares) / 6, "private": exposed, "useful": useful}, rel=1e-5)


def test_bdq_loss_is_its_equation() -> None:
    unsure = -sum(p * math.log(p) for row in PRIVATE for p in _softmax(row)) / 3
    told = _numbers(bdq.METHOD.objective(DATA, SETTING, bdq.BdqConfig())(_move()))
    assert told == pytest.approx({"useful": _cross_entropy(RELEASED, U_LABELS), "private": -2 * unsure}, rel=1e-5)


def test_bdq_encoder_blurs_differences_and_rounds() -> None:
    network = drawn_from(torch.Generator().manual_seed(0), lambda: bdq.BlurDifferenceQuantise((1, 16)))
    network.space.high.fill_(15.0)
    step = torch.zeros(1, 1, 16)
    step[..., 8:] = 15.0
    weights = [math.exp(-(k**2) / 18) for k in (-2, -1, 0, 1, 2)]
    rise = [15 * w / sum(weights) for w in weights]  # differences of a blurred step, points 6 to 10
    released = network(step, torch.zeros(1, 0))[0, 0].tolist()
    for k, difference in enumerate(rise):
        scaled = (difference + 15) / 30 * 15
        level = sum(1 / (1 + math.exp(-5 * (scaled - (t + 0.5)))) for t in range(15))
        assert released[6 + k] == pytest.approx(-15 + 30 * level / 15, abs=1e-4)
    assert released[0] == pytest.approx(released[15], abs=1e-5)  # nothing moves there


def test_ppdar_loss_is_its_equation() -> None:
    second = [[1.0, 0.0], [0.0, 0.0], [0.0, 4.0]]
    both = (_cross_entropy(PRIVATE, S_LABELS) + _cross_entropy(second, S_LABELS)) / 2
    told = _numbers(ppdar.METHOD.objective(DATA, SETTING, ppdar.PpdarConfig(private_weight=0.5))(_move((PRIVATE, second))))
    assert told == pytest.approx({"useful": _cross_entropy(RELEASED, U_LABELS), "private": -0.5 * both}, rel=1e-5)


def test_mass_loss_is_its_equation() -> None:
    entropy = -(1 / 3) * math.log(1 / 3) - (2 / 3) * math.log(2 / 3)  # of s, and of u
    known = 0.02
    v_private = min(_cross_entropy(PRIVATE, S_LABELS) - entropy + known, 0)
    v_useful = max(_cross_entropy(RELEASED, U_LABELS) - entropy + 0.4, 0)
    assert v_private < 0 < v_useful
    contrast = 0.0
    for k in range(3):
        across = [_cosine(ORIGINAL[k], other) / 0.07 for other in RELEASED]
        back = [_cosine(RELEASED[k], other) / 0.07 for other in ORIGINAL]
        contrast += (-math.log(_softmax(across)[k]) - math.log(_softmax(back)[k])) / 6
    config = mass.MassConfig(private_information=known, useful_information=0.4)
    told = _numbers(mass.METHOD.objective(DATA, SETTING, config)(_move()))
    expected = {"private": v_private**2 - v_private, "useful": v_useful**2 + v_useful, "contrast": contrast}
    assert told == pytest.approx(expected, rel=1e-4)


def test_mass_refuses_bounds_that_exclude_each_other() -> None:
    with pytest.raises(MethodError, match="useful_information: expected at most 0\\.4821 nats"):
        mass.METHOD.objective(DATA, SETTING, mass.MassConfig(private_information=0.02, useful_information=0.5))


def test_mass_asks_by_default_for_what_the_private_class_leaves() -> None:
    labels = {"s": np.array([0, 0, 1, 1]), "u": np.array([0, 0, 1, 1])}  # u is s: nothing may be asked of it
    same = Records(np.zeros((4, 2), dtype=np.float32), labels)
    objective = mass.METHOD.objective(same, SETTING, mass.MassConfig())
    told = _numbers(objective(_move()))
    assert told["useful"] == pytest.approx(mass.beyond(torch.tensor(max(_cross_entropy(RELEASED, U_LABELS) - math.log(2), 0))))


def test_spact_loss_is_its_equation() -> None:
    move = _move()
    again = torch.Generator().manual_seed(5)
    space = move.players.generator.space
    views = []
    for _ in range(2):
        views += spact.changed_view(move.original, space, again).tolist()
        torch.randn(3, 0, generator=again)
    alike = 0.0
    for k, view in enumerate(views):
        scores = {j: _cosine(view, other) / 0.1 for j, other in enumerate(views) if j != k}
        alike += (math.log(sum(math.exp(value) for value in scores.values())) - scores[(k + 3) % 6]) / 6
    told = _numbers(spact.METHOD.objective(DATA, SETTING, spact.SpactConfig())(move))
    assert told == pytest.approx({"useful": _cross_entropy(RELEASED, U_LABELS), "contrast": -alike}, rel=1e-4)


def test_contrast_is_least_for_views_that_agree() -> None:
    views, others = torch.eye(3), torch.eye(3).roll(1, dims=0)
    for loss in (info_nce, nt_xent):
        assert loss(views, views, 0.1) < loss(views, torch.eye(3) + 0.5, 0.1) < loss(views, others, 0.1)


def test_private_gradient_moves_the_generator_alone() -> None:
    adversary = nn.Linear(2, 2)
    generator = drawn_from(torch.Generator().manual_seed(0), Passing)
    players = Players(generator, {"s": Members([adversary])}, {}, nn.Identity(), nn.Identity())
    released = torch.tensor(RELEASED, requires_grad=True)
    labels = {"s": torch.tensor(S_LABELS)}
    with players.against_the_generator():
        original, random = torch.tensor(ORIGINAL), torch.Generator()
        move = Move(players=players, original=original, released=released, labels=labels, random=random, epoch=0)
        loss = move.private_losses()["s"]
    loss.backward()
    assert released.grad is not None
    assert released.grad.abs().sum() > 0
    assert adversary.weight.grad is None
    assert adversary.weight.requires_grad


@pytest.mark.parametrize("change", [{"pretraining_epochs": -1}, {"identity_epochs": -1}, {"adversary_steps": 0}])
def test_game_config_names_what_is_wrong(change: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        GameConfig(**change)
