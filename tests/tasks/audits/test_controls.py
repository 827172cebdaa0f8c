"""Controls are learnt once for all methods of a data set, and never taken for those of anything else."""

import dataclasses
import shutil
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pass_core.attacks import logistic_regression, network
from pass_core.attacks.base import Adversary, AttackTask
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.data import DoubleArray
from pass_core.randomness import stream
from tasks.audits import controls
from tasks.audits.controls import KeptControls, _KeptControl
from tasks.config import load_config
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tests.conftest import TINY, write_params

RECORDS = stream(1, "records").normal(size=(300, 2, 32)).astype(np.float32)
LABELS = (RECORDS[:, 0].sum(axis=1) > 0).astype(np.int64)
LINEAR = NamedAttack("linear", logistic_regression.ATTACK, logistic_regression.LogisticRegressionConfig(iterations=5))
NETWORK = NamedAttack("network", network.ATTACK, network.NetworkConfig(epochs=1, batch_size=64))


def _task(**changes: Any) -> AttackTask:
    return AttackTask(**{"released_train": lambda _: RECORDS[:200], "train_labels": LABELS[:200], "n_classes": 2} | changes)


def _answer(
    folder: Path, named: NamedAttack = LINEAR, task: AttackTask | None = None, *, label: str = "a", asked: slice = slice(200, 300)
) -> tuple[DoubleArray, int]:
    """What the control answers, and how often it was learnt."""
    learnt: list[Adversary] = []
    given = task or _task()

    def learn() -> Adversary:
        learnt.append(named.attack.learn(given, named.config, stream(1, label), lambda _: None))
        return learnt[-1]

    return KeptControls(folder)(named, given, stream(1, label), learn).probabilities(RECORDS[asked]), len(learnt)


@pytest.mark.parametrize("named", [LINEAR, NETWORK], ids=lambda named: named.name)
def test_a_kept_control_is_a_fresh_one_to_the_last_bit(named: NamedAttack, tmp_path: Path) -> None:
    fresh, again = _answer(tmp_path / "a", named), _answer(tmp_path / "a", named)
    elsewhere = _answer(tmp_path / "b", named)
    assert [count for _, count in (fresh, again, elsewhere)] == [1, 0, 1]
    assert fresh[0].dtype == again[0].dtype == np.float64
    assert fresh[0].tobytes() == again[0].tobytes() == elsewhere[0].tobytes()


def test_donors_may_be_read_only(tmp_path: Path) -> None:
    """Those of a pool are; torch would warn the user about them."""
    records = RECORDS.copy()
    records.setflags(write=False)
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            learnt = network.ATTACK.learn(_task(), NETWORK.config, stream(1), lambda _: None)
            assert learnt.probabilities(records).tobytes() == learnt.probabilities(RECORDS).tobytes()
    finally:
        torch.set_warn_always(False)


def _other_settings(settings: Any) -> NamedAttack:
    return dataclasses.replace(LINEAR, config=settings)


CHANGES: dict[str, dict[str, Any]] = {
    "features": {"task": _task(released_train=lambda _: np.nextafter(RECORDS[:200], np.float32(9)))},
    "split": {"task": _task(released_train=lambda _: RECORDS[1:201], train_labels=LABELS[1:201])},
    "labels": {"task": _task(train_labels=1 - LABELS[:200])},
    "classes": {"task": _task(n_classes=3)},
    "settings": {"named": _other_settings(logistic_regression.LogisticRegressionConfig(iterations=6))},
    "random stream": {"label": "b"},
    "test records": {"asked": slice(199, 300)},
}


@pytest.mark.parametrize("changed", CHANGES)
def test_whatever_changes_is_learnt_again(changed: str, tmp_path: Path) -> None:
    _answer(tmp_path)
    assert _answer(tmp_path)[1] == 0
    assert _answer(tmp_path, **CHANGES[changed])[1] == 1


@pytest.mark.parametrize("changed", ["code_digest", "fingerprint", "version"])
def test_so_are_other_code_arithmetic_and_libraries(changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(tmp_path)
    monkeypatch.setattr(controls, changed, lambda *_: "another")
    assert _answer(tmp_path)[1] == 1


def test_a_damaged_answer_is_learnt_again(tmp_path: Path) -> None:
    right, _ = _answer(tmp_path)
    (path,) = tmp_path.rglob("*.answer")
    content = path.read_bytes()
    for damaged in (content[:-9], content[:200] + bytes([content[200] ^ 1]) + content[201:], b""):
        path.write_bytes(damaged)
        answer, learnt = _answer(tmp_path)
        assert learnt == 1
        assert answer.tobytes() == right.tobytes()
    assert path.read_bytes() == content


def test_two_processes_may_keep_the_same_control(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2) as pool:
        answers = list(pool.map(_answer, [tmp_path] * 6))
    assert len({answer.tobytes() for answer, _ in answers}) == 1
    assert len(list(tmp_path.rglob("*.answer"))) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".answer"]


def test_audits_of_several_methods_share_them(tiny_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second method learns no control; whether they were kept or not, audit.json is the same to the last byte."""
    learnt: list[int] = []

    class Counting(_KeptControl):
        def __init__(self, kept: KeptControls, folder: Path, learn: Callable[[], Adversary]) -> None:
            def counted() -> Adversary:
                learnt.append(1)
                return learn()

            super().__init__(kept, folder, counted)

    monkeypatch.setattr(controls, "_KeptControl", Counting)
    audit: dict[str, object] = TINY["audit"]  # type: ignore[assignment]
    config = load_config(write_params(tmp_path, audit=audit | {"effort": "quick"}))
    root = Path(shutil.copytree(tiny_root, tmp_path / "root"))
    shutil.rmtree(root / ".cache" / "controls", ignore_errors=True)
    counts, documents = [], []
    for number, method in enumerate(("identity", "pass_substitution", "pass_substitution")):
        if number == 2:
            shutil.rmtree(root / ".cache" / "controls")
        learnt.clear()
        run_step(STEPS["audit"], STEPS["audit"].key("synthetic_motion", method), config, Layout(root), "test")
        counts.append(len(learnt))
        documents.append(Layout(root).artefact("audit", STEPS["audit"].key("synthetic_motion", method)).read_bytes())
    assert counts[0] == counts[2] == 2 * 3  # attacks, attributes
    assert counts[1] == 3  # the best control of each attribute: nobody has asked it about the donors before
    assert documents[1] == documents[2]
