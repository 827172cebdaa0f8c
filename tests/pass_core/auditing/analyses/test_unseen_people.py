"""People whom training never saw: what others' records teach about them, and what half of their own does."""

import dataclasses

import numpy as np
import pytest

from pass_core.attacks import logistic_regression
from pass_core.auditing.analyses.unseen_people import Strangers, _halves
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import Subject
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.data import Attribute, DoubleArray, FloatArray
from pass_core.randomness import stream
from tests.pass_core.channels import normalised, part_of_kinds, subject_of_kinds

PEOPLE, RECORDINGS, WINDOWS = 60, 4, 10  # 30 of them in training; records of each recording
POOL = 300
GENDER = (np.arange(PEOPLE) % 3 == 0).astype(np.int64)
ATTRIBUTES = (Attribute("gender", ("m", "w"), "private"), Attribute("activity", ("a", "b"), "useful"))
DEPTH = Depth(fresh_draws=1, permutations=100, bundles=(), draws=(1,), gallery=50)
LINEAR = NamedAttack("linear", logistic_regression.ATTACK, logistic_regression.LogisticRegressionConfig())
DONOR_LABELS = np.stack([np.arange(POOL) % 2, np.arange(POOL) // 2 % 2], axis=1)


def _habits(own: float, leak: float) -> DoubleArray:
    """(people × activities, pool): donors of the activity; a share `own` of a few of the person's, `leak` of the gender's."""
    rng = stream(1, "habits")
    table = np.zeros((2 * PEOPLE, POOL))
    for person in range(PEOPLE):
        for activity in range(2):
            fits = np.flatnonzero(DONOR_LABELS[:, 1] == activity)
            row = table[2 * person + activity]
            row[fits] += (1 - own - leak) / len(fits)
            row[rng.choice(fits, 4, replace=False)] += own / 4
            row[fits[DONOR_LABELS[fits, 0] == GENDER[person]]] += leak / (len(fits) / 2)
    return table


def _subject(table: DoubleArray, test_people: range = range(30, 60)) -> Subject:
    parts = []
    for split, people in (("train", range(30)), ("test", test_people)):
        persons = np.repeat(np.array(people), RECORDINGS * WINDOWS)
        blocks = np.repeat(np.arange(len(people) * RECORDINGS), WINDOWS) + (1000 if split == "test" else 0)
        activity = blocks % 2
        labels = np.stack([GENDER[persons], activity], axis=1)
        parts.append(part_of_kinds(ATTRIBUTES, labels, 2 * persons + activity, persons, blocks, stream(2, split)))
    kinds = np.arange(POOL) % (2 * PEOPLE)
    return subject_of_kinds(ATTRIBUTES, tuple(parts), normalised(table), DONOR_LABELS, kinds)


def _strangers(subject: Subject) -> Strangers:
    findings = run_audit(
        subject, (LINEAR,), Thresholds(), DEPTH, lambda *labels: stream(3, *labels), on_attack=lambda _work, _epoch: None
    )
    strangers = findings.finding(Strangers)
    assert strangers is not None
    return strangers


def test_habits_are_told_by_own_records_only() -> None:
    """Everybody has a few donors of their own: others' records tell nothing of a stranger, half of the stranger's own do."""
    found = _strangers(_subject(_habits(own=0.8, leak=0.0)))
    assert found.persons == 30
    (gender,) = found.attributes
    assert gender.by_others.low == 0
    assert gender.by_others.value < 0.3
    assert gender.by_own_half.low > 0.1
    # Information is large, and yet no more than 30 people's habits give by chance.
    assert gender.information.found > 0.2
    assert (gender.information.unit, gender.information.units) == ("person", 30)
    assert gender.information.p_value > 0.01


def test_a_leak_is_told_by_both_and_is_more_than_habit() -> None:
    (gender,) = _strangers(_subject(_habits(own=0.0, leak=0.9))).attributes
    assert gender.by_others.low > 0.5
    assert gender.by_own_half.low > 0.5
    assert gender.information.p_value < 1e-4


def test_a_channel_that_tells_nothing_tells_nothing_of_strangers() -> None:
    (gender,) = _strangers(_subject(_habits(own=0.0, leak=0.0))).attributes
    assert gender.by_others.low == gender.by_own_half.low == 0
    assert max(gender.by_others.value, gender.by_own_half.value) < 0.1
    assert gender.information.p_value > 0.01


def test_nobody_is_strange_where_everybody_is_in_training() -> None:
    assert _strangers(_subject(_habits(0.8, 0.0), range(30))) == Strangers(0, ())


def test_only_strangers_count() -> None:
    found = _strangers(_subject(_habits(own=0.0, leak=0.9), range(20, 50)))
    assert found.persons == 20
    assert found.attributes[0].information.units == 20


def test_without_a_pool_the_worst_attack_tells_of_strangers() -> None:
    subject = _subject(_habits(0.0, 0.0))
    for leaks in (True, False):
        released: dict[str, FloatArray] = {}
        for split in ("train", "test"):
            part = subject.train if split == "train" else subject.test
            noise = stream(4, split).normal(size=part.records.features.shape).astype(np.float32)
            released[split] = part.records.features if leaks else noise
        audited = dataclasses.replace(
            subject,
            released_test=released["test"],
            released_train=lambda _, released=released: released["train"],
            substitution=None,
        )
        (gender,) = _strangers(audited).attributes
        assert (gender.by_others.low > 0.9) == leaks
        assert (gender.by_own_half, gender.information) == (None, None)


def test_a_class_that_training_never_saw_does_not_hide_the_others() -> None:
    attributes = (Attribute("gender", ("m", "w", "x"), "private"), ATTRIBUTES[1])
    subject = dataclasses.replace(_subject(_habits(own=0.0, leak=0.9)), attributes=attributes)
    assert subject.substitution is not None
    subject.test.records.labels["gender"][subject.test.persons == 59] = 2
    joint = subject.substitution.train_law.joint
    law = dataclasses.replace(
        subject.substitution.train_law, joint={**joint, "gender": np.pad(joint["gender"], ((0, 1), (0, 0)))}
    )
    widened = dataclasses.replace(subject, substitution=dataclasses.replace(subject.substitution, train_law=law))
    (gender,) = _strangers(widened).attributes
    assert gender.information.units == 29
    assert gender.by_others.low > 0.5


@pytest.mark.parametrize("one_recording", [True, False])
def test_halves_are_of_whole_recordings_where_there_are_several(one_recording: bool) -> None:
    persons = np.repeat(np.arange(5), 40)
    blocks = persons if one_recording else np.arange(200) // 10
    half = _halves(persons, blocks, stream(5, "halves"))
    assert [np.bincount(half[persons == person]).tolist() for person in range(5)] == [[20, 20]] * 5
    together = all(len(set(half[blocks == block])) == 1 for block in np.unique(blocks))
    assert together != one_recording


def test_strangers_records_depend_on_each_other() -> None:
    """Intervals take a stranger for one unit, and everybody else's recordings."""
    subject = _subject(_habits(0.0, 0.0), range(20, 50))
    units = subject.dependent()
    met = subject.test.persons < 30
    assert len(np.unique(units[met])) == 10 * RECORDINGS
    assert len(np.unique(units[~met])) == 20
    assert not set(units[met]) & set(units[~met])
