"""Attacks one by one: what each is made for, and what it says when nothing leaks. `tests/contract` runs all of them alike."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import pass_core.attacks
from pass_core import discovery
from pass_core.attacks import (
    exact_bayes,
    gradient_boosting,
    large_network,
    logistic_regression,
    majority,
    nearest_neighbours,
    network,
    pool_lookup,
)
from pass_core.attacks.base import Attack, AttackTask, DonorTable
from pass_core.data import FloatArray, IntArray, one_hot
from pass_core.errors import AuditError, ConfigError
from pass_core.randomness import stream
from pass_core.training.networks import build_network
from tasks.config import load_config

N, CLASSES, POOL = 1200, 6, 60
LABELS: IntArray = np.arange(N) % CLASSES
DONOR_LABELS: IntArray = np.arange(POOL) % CLASSES
DONORS: FloatArray = stream(1, "donors").normal(size=(POOL, 64)).astype(np.float32)
SHORT = {"epochs": 4, "batch_size": 64, "learning_rate": 0.005}


def _config(attack: Attack, **changed: object):
    fields = attack.config_type.__dataclass_fields__
    return attack.config_type(**{name: value for name, value in SHORT.items() if name in fields} | changed)


def _nobody(_epoch: object) -> None:
    pass


def _release(leak: float) -> Callable[[int], FloatArray]:
    """A share `leak` of the records gets a donor of its own class, the others get any."""

    def released(draw: int) -> FloatArray:
        rng = stream(2, "release", str(draw))
        own = DONOR_LABELS.reshape(-1, CLASSES)  # every column is of one class
        donors = LABELS + CLASSES * rng.integers(0, len(own), N)
        return DONORS[np.where(rng.random(N) < leak, donors, rng.integers(0, POOL, N))]

    return released


def _task(leak: float) -> AttackTask:
    table = leak * (np.arange(CLASSES)[:, None] == DONOR_LABELS) * CLASSES / POOL + (1 - leak) / POOL
    return AttackTask(
        released_train=_release(leak), train_labels=LABELS, n_classes=CLASSES, donors=DonorTable(table / CLASSES, DONORS)
    )


@pytest.mark.parametrize("name", discovery.available(pass_core.attacks))
def test_half_a_leak_is_read_and_none_is_not(name: str) -> None:
    """Donors have nothing but themselves in common: whoever reads them has learnt which donor stands for which class."""
    attack = discovery.load(pass_core.attacks, name).ATTACK
    found = {}
    for leak in (0.5, 0.0):
        adversary = attack.learn(_task(leak), _config(attack), stream(3, name), _nobody)
        told = adversary.probabilities(_release(leak)(1000))
        found[leak] = float((told.argmax(axis=1) == LABELS).mean())
    best = 0.5 + 0.5 / CLASSES
    expected = {"majority": 1 / CLASSES}.get(name, 0.75 * best)
    # 1,200 records: a standard deviation is 0.014 at the best rule's accuracy, 0.011 at chance.
    assert expected - 0.05 < found[0.5] < best + 0.06
    assert abs(found[0.0] - 1 / CLASSES) < 0.05


@pytest.mark.parametrize("name", discovery.available(pass_core.attacks))
def test_classes_that_training_lacks_are_told_with_nothing(name: str) -> None:
    attack = discovery.load(pass_core.attacks, name).ATTACK
    labels = 2 * (LABELS % 2)
    donors = DonorTable(one_hot(2 * (DONOR_LABELS % 2), 4).T / POOL, DONORS)
    adversary = attack.learn(
        AttackTask(released_train=_release(1.0), train_labels=labels, n_classes=4, donors=donors),
        _config(attack),
        stream(4, name),
        _nobody,
    )
    told = adversary.probabilities(DONORS)
    assert told.shape == (POOL, 4)
    assert told.sum(axis=1) == pytest.approx(np.ones(POOL), abs=1e-5)
    assert told[:, [1, 3]].max() < 0.2
    if name != "majority":
        assert (told.argmax(axis=1) == 2 * (DONOR_LABELS % 2)).mean() > 0.9


@pytest.mark.parametrize("name", ["nearest_neighbours", "gradient_boosting", "logistic_regression", "pool_lookup"])
def test_several_releases_are_learnt_from(name: str) -> None:
    attack = discovery.load(pass_core.attacks, name).ATTACK
    asked: set[int] = set()

    def released(draw: int) -> FloatArray:
        asked.add(draw)
        return _release(0.5)(draw)

    attack.learn(
        AttackTask(released_train=released, train_labels=LABELS, n_classes=CLASSES),
        _config(attack, draws=3),
        stream(5, name),
        _nobody,
    )
    assert asked == {0, 1, 2}


@pytest.mark.parametrize("attack", [network.ATTACK, large_network.ATTACK])
def test_networks_learn_from_another_release_every_epoch(attack: Attack) -> None:
    asked: list[int] = []

    def released(draw: int) -> FloatArray:
        asked.append(draw)
        return _release(0.5)(draw)

    attack.learn(
        AttackTask(released_train=released, train_labels=LABELS, n_classes=CLASSES), _config(attack), stream(5, "n"), _nobody
    )
    assert set(asked) == set(range(SHORT["epochs"]))


@pytest.mark.parametrize("attack", [gradient_boosting.ATTACK, nearest_neighbours.ATTACK, logistic_regression.ATTACK])
def test_records_are_capped(attack: Attack) -> None:
    """A cap below one release takes a part of it, and still learns."""
    config = _config(attack, records=300)
    adversary = attack.learn(_task(1.0), config, stream(6, "cap"), _nobody)
    assert (adversary.probabilities(DONORS).argmax(axis=1) == DONOR_LABELS).mean() > 0.3  # chance is a sixth


def test_neighbours_count_every_sighting_of_a_donor() -> None:
    """The shares that `pool_lookup` writes down, not those of k sightings that happen to be taken."""
    config = nearest_neighbours.NearestNeighboursConfig(neighbours=5, draws=1)
    adversary = nearest_neighbours.ATTACK.learn(_task(0.5), config, stream(7, "k"), _nobody)
    released = _release(0.5)(0)
    seen = np.array([(released == donor).all(axis=1) for donor in DONORS])  # (pool, n)
    counts = seen @ one_hot(LABELS, CLASSES)
    assert (seen.sum(axis=1) >= 5).all()  # each donor is its own neighbour as often as is needed
    # And one average record more, so that no class is impossible.
    expected = (counts + 1 / CLASSES) / (counts.sum(axis=1, keepdims=True) + 1)
    assert adversary.probabilities(DONORS) == pytest.approx(expected)


def test_lookup_is_not_certain_of_what_it_has_seen_once() -> None:
    labels = np.array([0, 1, 1, 1])
    records = np.array([[1.0], [2.0], [2.0], [2.0]], dtype=np.float32)
    task = AttackTask(released_train=lambda _: records, train_labels=labels, n_classes=2)
    adversary = pool_lookup.ATTACK.learn(task, pool_lookup.PoolLookupConfig(draws=4), stream(8, "l"), _nobody)
    told = adversary.probabilities(np.array([[1.0], [2.0], [3.0]], dtype=np.float32))
    # One record more of the class shares (a quarter, three quarters); four draws of one record are one record.
    assert told[0] == pytest.approx([(1 + 0.25) / 2, 0.75 / 2])
    assert told[1] == pytest.approx([0.25 / 4, (3 + 0.75) / 4])
    assert told[2] == pytest.approx([0.25, 0.75])


def test_exact_bayes_cannot_tell_equal_donors_apart() -> None:
    table = np.array([[0.4, 0.0, 0.1], [0.0, 0.4, 0.1]])
    features = np.array([[1.0], [1.0], [2.0]], dtype=np.float32)
    task = AttackTask(
        released_train=lambda _: features, train_labels=np.array([0, 1, 0]), n_classes=2, donors=DonorTable(table, features)
    )
    adversary = exact_bayes.ATTACK.learn(task, exact_bayes.ATTACK.config_type(), stream(9, "e"), _nobody)
    assert adversary.probabilities(features) == pytest.approx(np.full((3, 2), 0.5))
    with pytest.raises(AuditError, match="expected a release drawn from a pool of donors"):
        exact_bayes.ATTACK.learn(_undrawn(), exact_bayes.ATTACK.config_type(), stream(9, "e"), _nobody)


def _undrawn() -> AttackTask:
    return AttackTask(released_train=_release(0.0), train_labels=LABELS, n_classes=CLASSES)


def test_majority_tells_the_class_shares() -> None:
    task = AttackTask(released_train=lambda _: DONORS[:4], train_labels=np.array([0, 1, 1, 1]), n_classes=3)
    told = majority.ATTACK.learn(task, majority.ATTACK.config_type(), stream(9, "m"), _nobody).probabilities(DONORS[:2])
    assert told == pytest.approx(np.array([[0.25, 0.75, 0.0]] * 2))


def _parameters(attack: network.NetworkAttack, shape: tuple[int, ...], n_classes: int) -> int:
    built = build_network("auto", shape, n_classes, torch.Generator().manual_seed(1), attack.widths)
    return sum(p.numel() for p in built.parameters())


@pytest.mark.parametrize("shape", [(1,), (12,), (577,), (4000,), (1, 16), (2, 128), (6, 400), (200, 16)])
@pytest.mark.parametrize("n_classes", [2, 24, 2000])
def test_large_network_has_four_times_the_parameters(shape: tuple[int, ...], n_classes: int) -> None:
    ratio = _parameters(large_network.ATTACK, shape, n_classes) / _parameters(network.ATTACK, shape, n_classes)
    assert ratio >= 4


def test_large_network_of_the_versioned_experiment_learns_as_long() -> None:
    attacks = load_config(Path(__file__).parents[3] / "params.yaml").audit.attacks
    assert attacks["large_network"].epochs >= attacks["network"].epochs


CENTRES = 0.3 * stream(11, "centres").normal(size=(CLASSES, 10))
CLEAN: FloatArray = (CENTRES[LABELS] + stream(11, "x").normal(0, 0.3, (N, 10))).astype(np.float32)


def test_start_from_originals_keeps_what_they_taught() -> None:
    """One slow epoch on releases teaches half of it; whoever has learnt from originals goes on, unless they taught nothing."""

    def told(originals: FloatArray | None, start: network.Start) -> FloatArray:
        config = network.NetworkConfig(epochs=1, batch_size=64, learning_rate=1e-4, start=start)
        task = AttackTask(released_train=lambda _: CLEAN, train_labels=LABELS, n_classes=CLASSES, original_train=originals)
        return network.ATTACK.learn(task, config, stream(12, "start"), _nobody).probabilities(CLEAN)

    def accuracy(originals: FloatArray | None, start: network.Start) -> float:
        return float((told(originals, start).argmax(axis=1) == LABELS).mean())

    learnt = accuracy(CLEAN, "originals")
    assert learnt > accuracy(CLEAN, "scratch") + 0.15
    assert learnt > accuracy(stream(11, "y").normal(size=CLEAN.shape).astype(np.float32), "originals") + 0.07
    # Attacks on the originals themselves have nothing else to start from.
    assert (told(None, "originals") == told(None, "scratch")).all()


def test_epochs_of_both_trainings_are_told_as_one() -> None:
    told: list[tuple[int, int]] = []
    config = network.NetworkConfig(epochs=2, batch_size=64, start="originals")
    task = AttackTask(released_train=lambda _: CLEAN, train_labels=LABELS, n_classes=CLASSES, original_train=CLEAN)
    network.ATTACK.learn(task, config, stream(12, "start"), lambda epoch: told.append((epoch.number, epoch.total)))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pool_lookup.PoolLookupConfig(draws=0), "draws: expected at least 1, found 0"),
        (lambda: nearest_neighbours.NearestNeighboursConfig(neighbours=0), "neighbours: expected at least 1, found 0"),
        (lambda: nearest_neighbours.NearestNeighboursConfig(components=0), "components: expected at least 1, found 0"),
        (lambda: gradient_boosting.GradientBoostingConfig(iterations=0), "iterations: expected at least 1, found 0"),
        (lambda: gradient_boosting.GradientBoostingConfig(leaves=1), "leaves: expected at least 2, found 1"),
        (lambda: gradient_boosting.GradientBoostingConfig(learning_rate=0), "learning_rate: expected above 0"),
        (lambda: logistic_regression.LogisticRegressionConfig(records=0), "records: expected at least 1, found 0"),
        (
            lambda: logistic_regression.LogisticRegressionConfig(inverse_regularisation=0),
            "inverse_regularisation: expected above 0",
        ),
        (lambda: network.NetworkConfig(epochs=0, batch_size=2), "epochs: expected at least 1, found 0"),
        (
            lambda: network.NetworkConfig(epochs=1, batch_size=2, start="there"),
            "start: expected one of scratch, originals, found",
        ),
        (lambda: network.NetworkConfig(epochs=1, batch_size=2, network="rnn"), "network: expected one of auto, cnn, mlp"),
    ],
)
def test_wrong_settings_are_told(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
