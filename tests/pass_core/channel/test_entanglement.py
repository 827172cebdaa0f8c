"""What the data allow: against a slow reference, and against channels that reach or break it."""

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_core.channel.entanglement import joint_entropy, what_the_data_allow
from pass_core.channel.joint_law import mutual_information
from pass_core.data import Attribute, one_hot


def _attribute(name: str, n: int, role: str) -> Attribute:
    return Attribute(name, tuple(map(str, range(n))), role)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 3), st.integers(0, 10_000))
def test_entropy_equals_a_count_by_hand(n: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = [rng.integers(0, 4, n) for _ in range(columns)]
    counts = Counter(zip(*(column.tolist() for column in labels), strict=True))
    expected = -sum(c / n * math.log(c / n) for c in counts.values())
    assert joint_entropy(labels) == pytest.approx(expected, abs=1e-12)


def test_independent_attributes_cost_nothing_and_equal_ones_everything() -> None:
    u = np.arange(1200) % 4
    free = what_the_data_allow(
        {"s": (np.arange(1200) // 4) % 3, "u": u}, (_attribute("s", 3, "private"), _attribute("u", 4, "useful"))
    )
    assert free.share == pytest.approx(1.0)
    bound = what_the_data_allow({"s": u, "u": u}, (_attribute("s", 4, "private"), _attribute("u", 4, "useful")))
    assert bound.share == pytest.approx(0.0, abs=1e-12)
    assert bound.most_entangled == "s"


def test_correlated_useful_attributes_count_twice() -> None:
    """Two copies of one useful attribute: each of them can be told, so the ceiling is twice its entropy."""
    u = np.arange(400) % 2
    attributes = (_attribute("s", 2, "private"), _attribute("u", 2, "useful"), _attribute("v", 2, "useful"))
    allowed = what_the_data_allow({"s": (np.arange(400) // 2) % 2, "u": u, "v": u}, attributes)
    assert allowed.total_correlation == pytest.approx(math.log(2))
    assert allowed.ceiling == pytest.approx(2 * math.log(2))


@dataclass(frozen=True)
class World:
    """Equally likely records, some of them duplicates, with private and useful attributes, and a channel to a few donors."""

    labels: dict[str, np.ndarray]
    attributes: tuple[Attribute, ...]
    channel: np.ndarray  # P(x'|x), a row per record

    @property
    def law(self) -> np.ndarray:
        """P(s, u_1, ..., u_J, x, x'), every entry of it."""
        n, donors = self.channel.shape
        law = np.zeros([*(a.n_classes for a in self.attributes), n, donors])
        for x in range(n):
            law[(*(self.labels[a.name][x] for a in self.attributes), x)] = self.channel[x] / n
        return law


@st.composite
def _worlds(draw: st.DrawFn) -> World:
    """Any number of classes, one included, some of them absent; rows from certain to even; copies with labels of their own."""
    n, donors = draw(st.integers(1, 9)), draw(st.integers(1, 5))
    names = ["s", *(f"u{j}" for j in range(draw(st.integers(1, 3))))]
    attributes = tuple(_attribute(name, draw(st.integers(1, 3)), "useful" if name != "s" else "private") for name in names)
    labels = {a.name: np.array(draw(st.lists(st.integers(0, a.n_classes - 1), min_size=n, max_size=n))) for a in attributes}
    if draw(st.booleans()):  # entangled: the last useful attribute is the private one, as far as it has the classes
        labels[names[-1]] = np.minimum(labels["s"], attributes[-1].n_classes - 1)
    weight = st.one_of(st.just(0.0), st.floats(0.001, 1.0))
    rows = np.array(draw(st.lists(st.lists(weight, min_size=donors, max_size=donors), min_size=n, max_size=n)))
    rows[:, 0] += rows.sum(axis=1) == 0
    rows = rows[draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n))]  # duplicates go through the channel alike
    return World(labels, attributes, rows / rows.sum(axis=1, keepdims=True))


def _entropy(law: np.ndarray, *kept: int) -> float:
    """H of some axes of a law, by its definition."""
    axes = tuple(axis for axis in range(law.ndim) if axis % law.ndim not in {k % law.ndim for k in kept})
    masses = law.sum(axis=axes).ravel()
    return -sum(p * math.log(p) for p in masses.tolist() if p > 0)


def _information(law: np.ndarray, axis: int) -> float:
    """I(X';A) of the attribute, or record, on an axis."""
    return _entropy(law, -1) + _entropy(law, axis) - _entropy(law, -1, axis)


@settings(max_examples=400, deadline=None)
@given(_worlds())
def test_no_channel_beats_the_theorem(world: World) -> None:
    """Σ I(X';U_j) ≤ I(X';S) + H(U|S) + TC(U) and I(X';X) ≤ I(X';S) + H(X|S) (eq. 11), against every entry of the law."""
    law = world.law
    useful = range(1, len(world.attributes))
    private, record = _information(law, 0), _information(law, -2)
    told = sum(_information(law, axis) for axis in useful)
    given_private = _entropy(law, 0, *useful) - _entropy(law, 0)
    correlation = sum(_entropy(law, axis) for axis in useful) - _entropy(law, *useful)
    assert told <= private + given_private + correlation + 1e-9
    assert record <= private + _entropy(law, 0, -2) - _entropy(law, 0) + 1e-9

    allowed = what_the_data_allow(world.labels, world.attributes)
    assert allowed.ceiling == pytest.approx(given_private + correlation, abs=1e-9)
    assert allowed.total_correlation == pytest.approx(correlation, abs=1e-9)
    assert allowed.record_ceiling == pytest.approx(_entropy(law, 0, -2) - _entropy(law, 0), abs=1e-9)
    assert allowed.record_entropy == pytest.approx(_entropy(law, -2), abs=1e-9)
    for axis, attribute in enumerate(world.attributes):
        joint = one_hot(world.labels[attribute.name], attribute.n_classes).T @ world.channel / len(world.channel)
        assert mutual_information(joint) == pytest.approx(_information(law, axis), abs=1e-9)


def test_both_bounds_are_reached() -> None:
    """A release of the record itself: no smaller right side would hold."""
    labels = {"s": np.array([0, 0, 0, 1, 1, 3]), "u": np.array([0, 1, 0, 1, 0, 1])}  # class 2 of s is absent
    world = World(labels, (_attribute("s", 4, "private"), _attribute("u", 2, "useful")), np.eye(6))
    allowed = what_the_data_allow(labels, world.attributes)
    assert _information(world.law, -2) == pytest.approx(_information(world.law, 0) + allowed.record_ceiling)
    assert allowed.record_ceiling == pytest.approx((3 * math.log(3) + 2 * math.log(2)) / 6)
    told = dataclasses.replace(world, labels=labels | {"s": labels["u"]}, attributes=world.attributes)
    assert what_the_data_allow(told.labels, told.attributes).ceiling == pytest.approx(0, abs=1e-12)
    assert _information(told.law, 1) == pytest.approx(_information(told.law, 0))


def test_records_in_one_private_class_and_alone_in_theirs() -> None:
    """Nothing is lost when all share the class, everything when the class is the record."""
    u = np.arange(8) % 2
    attributes = (_attribute("s", 8, "private"), _attribute("u", 2, "useful"))
    for s, ceiling in ((np.zeros(8, dtype=np.int64), math.log(8)), (np.arange(8), 0.0)):
        assert what_the_data_allow({"s": s, "u": u}, attributes).record_ceiling == pytest.approx(ceiling, abs=1e-12)
