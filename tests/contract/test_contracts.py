"""Contracts over everything discovered: a new file in a registry is tested unasked."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import pass_core.attacks
import pass_core.methods
import tasks.datasets
import tasks.extractors
from pass_core import discovery
from pass_core.attacks.base import AttackTask, DonorTable
from pass_core.data import Attribute, Records
from pass_core.errors import ConfigError
from pass_core.methods.base import ReleaseContext
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig
from tasks.payloads.payload import PAYLOAD_KINDS
from tasks.sections.dataset import DatasetConfig
from tests.media import small_payloads, small_settings

SHAPES = [(2, 32), (12,)]  # signal windows and vectors
BASELINES = ("majority",)  # what other attacks are compared with: reads nothing


def _records(shape: tuple[int, ...], n: int = 240) -> tuple[Records, tuple[Attribute, ...]]:
    rng = stream(1, "contract", str(shape))
    labels = {"s": np.arange(n) % 2, "u": (np.arange(n) // 2) % 3}
    x = rng.normal(0, 0.3, (n, *shape)).astype(np.float32)
    x.reshape(n, -1)[:, 0:8:2] += 3 * labels["s"][:, None]
    x.reshape(n, -1)[:, 1:8:2] += 3 * labels["u"][:, None]
    return Records(x, labels), (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b", "c"), "useful"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", discovery.available(pass_core.methods))
def test_method_keeps_its_contract(name: str, shape: tuple[int, ...]) -> None:
    method = discovery.load(pass_core.methods, name).METHOD
    assert method.summary
    config = method.config_type()
    assert dataclasses.is_dataclass(config)
    data, attributes = _records(shape)
    pool = Records(data.features[:48], {k: v[:48] for k, v in data.labels.items()})
    setting = ReleaseContext(attributes, pool, torch.device("cpu"))
    training = TrainConfig(epochs=1, batch_size=48)
    fitted = method.fit(data, context=setting, config=config, training=training, rng=stream(1, "fit"), run=TrainingContext())
    released = fitted.transform(data.features, stream(2, "t"))
    assert released.shape == data.features.shape
    assert released.dtype == np.float32
    assert np.isfinite(released).all()
    restored = method.from_state_dict(fitted.state_dict(), setting, config)
    assert (restored.transform(data.features, stream(2, "t")) == released).all()
    repeated = method.fit(data, context=setting, config=config, training=training, rng=stream(1, "fit"), run=TrainingContext())
    assert (repeated.transform(data.features, stream(2, "t")) == released).all()
    assert fitted.transform(data.features[:1], stream(2, "t")).shape == (1, *shape)
    if fitted.channel is not None:
        assert {row.tobytes() for row in released} <= {row.tobytes() for row in pool.features}
        for rows, probabilities in fitted.channel.blocks(data.features):
            assert probabilities.sum(axis=1) == pytest.approx(np.ones(rows.stop - rows.start), abs=1e-4)


def _open_task(data: Records, train: slice) -> AttackTask:
    return AttackTask(
        released_train=lambda _: data.features[train],
        train_labels=data.labels["s"][train],
        n_classes=2,
        original_train=data.features[train],
    )


def _pool_task(data: Records, train: slice, leaks: bool) -> tuple[AttackTask, Callable[[int], np.ndarray]]:
    """Donors of the record's own class, or of any; and releases of all records by draw number."""
    labels = data.labels["s"]
    table = np.array([[not leaks or s == donor for donor in labels[:48]] for s in (0, 1)], dtype=np.float64)
    table /= table.sum(axis=1, keepdims=True)

    def released(draw: int) -> np.ndarray:
        rng = stream(5, "release", str(draw))
        return data.features[[rng.choice(48, p=table[label]) for label in labels]]

    donors = DonorTable(np.diag(np.bincount(labels[train]) / len(labels[train])) @ table, data.features[:48])
    return AttackTask(
        released_train=lambda draw: released(draw)[train],
        train_labels=labels[train],
        n_classes=2,
        original_train=data.features[train],
        donors=donors,
    ), released


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", discovery.available(pass_core.attacks))
def test_attack_reads_what_leaks_and_nothing_else(name: str, shape: tuple[int, ...]) -> None:
    attack = discovery.load(pass_core.attacks, name).ATTACK
    assert attack.summary
    fields = {f.name for f in dataclasses.fields(attack.config_type)}
    config = attack.config_type(
        **{k: v for k, v in {"epochs": 5, "batch_size": 48, "learning_rate": 0.005}.items() if k in fields}
    )
    data, _ = _records(shape, 480)
    train, test = slice(0, 240), slice(240, 480)
    told: list[str] = []

    def accuracy(task: AttackTask, records: np.ndarray) -> float:
        adversary = attack.learn(task, config, stream(3, "a"), lambda epoch: told.append(str(epoch.number)))
        probabilities = adversary.probabilities(records)
        assert probabilities.shape == (len(records), 2)
        assert probabilities.sum(axis=1) == pytest.approx(np.ones(len(records)), abs=1e-5)
        assert probabilities.min() >= 0
        return float((probabilities.argmax(axis=1) == data.labels["s"][test]).mean())

    leaky, private = (_pool_task(data, train, leaks) for leaks in (True, False))
    once, again = (attack.learn(leaky[0], config, stream(3, "a"), lambda _: None) for _ in range(2))
    assert (again.probabilities(data.features) == once.probabilities(data.features)).all()
    found = [accuracy(leaky[0], leaky[1](99)[test])]
    silent = [accuracy(private[0], private[1](99)[test])]
    if not attack.needs_pool:
        noise = Records(stream(4, "noise").normal(size=data.features.shape).astype(np.float32), data.labels)
        found.append(accuracy(_open_task(data, train), data.features[test]))
        silent.append(accuracy(_open_task(noise, train), noise.features[test]))
    if name not in BASELINES:
        assert min(found) > 0.9
    assert max(silent) < 0.65  # 240 coin flips: half plus four and a half standard deviations
    assert told


@pytest.mark.parametrize("name", discovery.available(tasks.datasets))
def test_dataset_names_its_attributes(name: str) -> None:
    dataset = discovery.load(tasks.datasets, name).DATASET
    assert dataset.summary
    assert issubclass(dataset.config_type, DatasetConfig)
    names = dataset.attribute_names or ("first", "second")  # a lake's are whatever columns it has
    required = {"record_id": "id", "payload": ("x",)} if dataset.attribute_names is None else {}
    config = dataset.config_type(private=names[:1], useful=names[1:], **required)
    assert set(config.roles()) == set(names)
    assert config.extractor in discovery.available(tasks.extractors)


@pytest.mark.parametrize("name", discovery.available(tasks.extractors))
def test_extractor_keeps_its_contract(name: str, tmp_path: Path) -> None:
    extractor = discovery.load(tasks.extractors, name).EXTRACTOR
    assert extractor.summary
    assert set(extractor.payloads) <= set(PAYLOAD_KINDS)
    loaded = extractor.load(small_settings(name, tmp_path), torch.device("cpu"))
    finished: list[int] = []
    for kind in extractor.payloads:
        payload, payloads = small_payloads(kind, 5)
        features = loaded.features(payloads, 2, finished.append)
        assert features.shape == (5, *loaded.feature_shape(payload))
        assert features.dtype == np.float32
        assert np.isfinite(features).all()
        alone = np.concatenate([loaded.features(payloads[k : k + 1], 1, finished.append) for k in range(5)])
        rounding = np.abs(alone - features).max()
        assert rounding < 1e-4  # a record's features do not depend on those beside it
        assert np.abs(features[0] - features[1]).max() > 5 * rounding  # nor are they the same for all
    assert sum(finished) == 10 * len(extractor.payloads)


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown name 'nope' in methods: expected one of .*pass_substitution"):
        discovery.load(pass_core.methods, "nope")
