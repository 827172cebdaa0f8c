"""Columns that left beside the payload: what they tell alone, and what they tell together with the release, counts."""

import dataclasses

import numpy as np
import pytest

from pass_core.auditing.findings import AuditFindings, SideInformation
from pass_core.auditing.subject import Part, ReleasedColumn, Subject
from pass_core.data import Attribute, IntArray, Records
from pass_core.randomness import stream
from tests.pass_core.auditing.test_leaks import DONORS, LABELS, SAME_USEFUL, _audit, _failed, _row, _subject

N = 6000


def _with_column(
    subject: Subject, classes: tuple[IntArray, IntArray], values: tuple[IntArray, IntArray] | None = None
) -> Subject:
    """The same with a column `k` that left as it was, given for train and test."""
    train_values, test_values = classes if values is None else values
    attribute = Attribute("k", tuple(map(str, range(int(max(c.max() for c in classes)) + 1))), "general")

    def labelled(part: Part, labels: IntArray) -> Part:
        return dataclasses.replace(part, records=Records(part.records.features, {**part.records.labels, "k": labels}))

    return dataclasses.replace(
        subject,
        train=labelled(subject.train, classes[0]),
        test=labelled(subject.test, classes[1]),
        columns=(ReleasedColumn(attribute, train_values, test_values),),
    )


def _beside(findings: AuditFindings, name: str) -> SideInformation:
    return next(side for side in _row(findings, name).side_information if side.released)


def _column(findings: AuditFindings) -> set[tuple[str, str]]:
    return {(name, about) for name, about in _failed(findings) if "with column k" in about}


def test_column_that_tells_nothing_passes() -> None:
    classes = tuple(stream(4, split).integers(0, 5, N) for split in ("train", "test"))
    findings = _audit(_with_column(_subject(SAME_USEFUL, n=N), classes))
    assert not _column(findings)
    assert _beside(findings, "s").known == "k"
    assert any(check.about == "s, with column k" for check in findings.checks)  # it was looked at
    assert _beside(findings, "s").information.p_value > 0.001


@pytest.mark.parametrize("truthful", [0.65, 1.0])
def test_column_that_tells_the_private_class_fails(truthful: float) -> None:
    """The payload tells nothing; a column such as a form of address does."""
    subject = _subject(SAME_USEFUL, n=N)
    classes = tuple(
        np.where(stream(5, split).random(N) < truthful, subject.labels(split, "s"), 1 - subject.labels(split, "s"))
        for split in ("train", "test")
    )
    findings = _audit(_with_column(subject, classes))
    assert ("private_nag_at_most", "s, with column k") in _column(findings)
    assert _row(findings, "s").nag.high < 0.1  # without the column nothing is found
    assert _row(findings, "s").verdict == "leak shown"
    assert _row(findings, "t").verdict == "below the limit"
    assert _beside(findings, "s").accuracy.value == pytest.approx(truthful, abs=0.02)
    told = truthful * np.log(2 * truthful) + (1 - truthful) * np.log(max(2 * (1 - truthful), 1e-300))
    assert _beside(findings, "s").information.excess == pytest.approx(told, abs=0.01)


def test_column_and_release_that_tell_together_fail() -> None:
    """Donors keep s xor h; h leaves as a column: who has both reads s."""
    same = (LABELS[:, 0] ^ LABELS[:, 3])[:, None] == (DONORS[:, 0] ^ DONORS[:, 3])[None, :]
    subject = _subject(SAME_USEFUL & same, n=N)
    findings = _audit(_with_column(subject, (subject.labels("train", "h"), subject.labels("test", "h"))))
    assert ("private_nag_at_most", "s, with column k") in _column(findings)
    assert _beside(findings, "s").guess < 0.55  # neither alone
    assert _row(findings, "s").nag.high < 0.1
    assert _beside(findings, "s").nag.value > 0.9


def test_names_are_looked_up() -> None:
    """A column with a value per person tells nothing in few classes, and everything by its values."""
    subject = _subject(SAME_USEFUL, n=N)
    people = stream(6, "people").integers(0, 2, 500)
    values = []
    for split in ("train", "test"):
        rng, labels = stream(6, split), subject.labels(split, "s")
        of_class = [np.flatnonzero(people == k) for k in (0, 1)]
        values.append(np.array([rng.choice(of_class[label]) for label in labels]))
    one_class = (np.zeros(N, dtype=np.int64), np.zeros(N, dtype=np.int64))
    findings = _audit(_with_column(subject, one_class, (values[0], values[1])))
    assert _beside(findings, "s").guess > 0.99
    assert ("private_nag_at_most", "s, with column k") in _column(findings)
    assert _row(findings, "t").verdict == "below the limit"
