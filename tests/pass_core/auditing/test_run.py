"""What an audit tells beside leaks: models that nobody retrains, downstream models, own adversaries; and its errors."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest

from pass_core.attacks import exact_bayes, logistic_regression, majority, nearest_neighbours
from pass_core.auditing.findings import AttributeFindings, AuditFindings, Subgroup
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import Subject
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.data import Attribute, DoubleArray, FloatArray, one_hot
from pass_core.errors import AuditError
from pass_core.randomness import stream
from tests.pass_core.channels import normalised, part_of_kinds, subject_of_kinds

N = 1500
ATTRIBUTES = tuple(
    Attribute(name, ("a", "b"), role) for name, role in (("s", "private"), ("u", "useful"), ("h", "general"), ("g", "general"))
)
LABELS = np.stack(np.meshgrid(*[np.arange(2)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
DONOR_KINDS = np.repeat(np.arange(len(LABELS)), 8)
DONORS = LABELS[DONOR_KINDS]
S, U, H, G = (LABELS[:, None, k] for k in range(4))
OF_S, OF_U, OF_H, OF_G = (DONORS[None, :, k] for k in range(4))
LINEAR = NamedAttack("linear", logistic_regression.ATTACK, logistic_regression.LogisticRegressionConfig())
NEIGHBOURS = NamedAttack("neighbours", nearest_neighbours.ATTACK, nearest_neighbours.NearestNeighboursConfig())
BASELINE = NamedAttack("majority", majority.ATTACK, majority.ATTACK.config_type())
EXACT = NamedAttack("exact_bayes", exact_bayes.ATTACK, exact_bayes.ATTACK.config_type())
DEPTH = Depth(fresh_draws=2, permutations=40, bundles=(), draws=(1,), gallery=100)


def _subject(allowed: np.ndarray, attributes: tuple[Attribute, ...] = ATTRIBUTES, n: int = N, recordings: int = N) -> Subject:
    """Records whose donors are those that `allowed` (kinds, donors) says, each as likely; everybody is in both splits."""
    parts = []
    for split, first in (("train", 0), ("test", N)):
        rng = stream(1, split)
        of_recording = rng.permutation(np.arange(recordings) % len(LABELS))
        blocks = np.arange(n) % recordings
        kinds = of_recording[blocks]
        parts.append(part_of_kinds(attributes, LABELS[kinds], kinds, blocks, first + blocks, rng))
    return subject_of_kinds(attributes, tuple(parts), normalised(allowed), DONORS, DONOR_KINDS, seed=1)


def _audit(subject: Subject, *attacks: NamedAttack) -> AuditFindings:
    return run_audit(
        subject, attacks, Thresholds(), DEPTH, lambda *labels: stream(2, *labels), on_attack=lambda _work, _epoch: None
    )


def _row(findings: AuditFindings, name: str) -> AttributeFindings:
    return next(row for row in findings.attributes if row.name == name)


@pytest.fixture(scope="module")
def same_useful() -> AuditFindings:
    return _audit(_subject(U == OF_U), BASELINE, LINEAR, EXACT)


@pytest.fixture(scope="module")
def turned_round() -> AuditFindings:
    """Every record is replaced by one of the other useful class."""
    return _audit(_subject(U != OF_U), BASELINE, LINEAR, EXACT)


def test_a_model_nobody_retrains_reads_what_survived(same_useful: AuditFindings) -> None:
    assert _row(same_useful, "u").unfinetuned.low > 0.95
    assert _row(same_useful, "s").unfinetuned.low == 0
    assert _row(same_useful, "s").unfinetuned.high < 0.2


def test_a_model_that_must_be_retrained(turned_round: AuditFindings) -> None:
    """Whoever learns from releases reads all of it; a model nobody retrains, and one used on originals, are wrong throughout."""
    row = _row(turned_round, "u")
    assert row.nag.low > 0.95
    assert row.unfinetuned.high == 0
    assert row.trained_on_released.high == 0


def test_downstream_models_learn_from_releases_what_originals_show(same_useful: AuditFindings) -> None:
    assert _row(same_useful, "u").trained_on_released.low > 0.9
    assert _row(same_useful, "h").trained_on_released.high < 0.3


def test_without_protection_all_is_as_before() -> None:
    subject = _subject(U == OF_U)
    released = dataclasses.replace(
        subject,
        released_test=subject.test.records.features,
        released_train=lambda _: subject.train.records.features,
        substitution=None,
    )
    for row in _audit(released, LINEAR).attributes:
        assert row.nag.value == row.unfinetuned.value == row.trained_on_released.value == 1


def test_utility_lost_in_one_subgroup_is_shown() -> None:
    """Records of one hidden class in two keep that class, and lose the useful one."""
    findings = _audit(_subject((H == OF_H) & ((U == OF_U) | (H == 1))), NEIGHBOURS)
    useful = _row(findings, "u")
    groups = {group.label: group for group in useful.subgroups if group.attribute == "h"}
    assert groups[0].nag.low > 0.9
    assert groups[1].nag.high < 0.4
    assert groups[0].trained_on_released.low > 0.9
    assert groups[1].trained_on_released.high < 0.4
    assert 0.3 < useful.trained_on_released.value < 0.8
    assert {group.attribute for group in _row(findings, "g").subgroups} >= {"s", "u", "h"}  # general ones, too
    assert all(group.trained_on_released is None for group in _row(findings, "s").subgroups)


def test_small_subgroups_are_left_out() -> None:
    subject = _subject(U == OF_U)
    few = dataclasses.replace(DEPTH, subgroup_records=N)
    findings = run_audit(
        subject, (LINEAR,), Thresholds(), few, lambda *labels: stream(2, *labels), on_attack=lambda _work, _epoch: None
    )
    assert all(row.subgroups == () for row in findings.attributes)


@dataclass(frozen=True)
class _Reads:
    """An adversary that takes a coordinate for the class."""

    coordinate: int

    def probabilities(self, records: FloatArray) -> DoubleArray:
        return one_hot((records[:, self.coordinate] > 0.5).astype(np.int64), 2)


def test_the_protectors_own_adversary_may_be_weaker_than_the_attack() -> None:
    """The protector was trained against an adversary who looks at the wrong coordinate: the paper's NAG-Protector is 0."""
    subject = _subject((U == OF_U) & (S == OF_S))
    blind, sharp = (dataclasses.replace(subject, own_adversaries={"s": _Reads(k)}) for k in (3, 1))
    row = _row(_audit(blind, LINEAR), "s")
    assert row.own_adversary.high < 0.2
    assert row.nag.low > 0.9
    assert _row(_audit(sharp, LINEAR), "s").own_adversary.low > 0.9
    assert _row(_audit(subject, LINEAR), "s").own_adversary is None


def test_exact_attacker_fails_what_a_weak_attack_lets_pass() -> None:
    """The donors' two hidden classes, one or the other but not both, tell the private one: a linear attack cannot see it."""
    findings = _audit(_subject((U == OF_U) & ((OF_H ^ OF_G) == S)), LINEAR)
    row = _row(findings, "s")
    assert all(found.nag.high < 0.2 for found in row.attacks)
    assert row.exact.rule.low > 0.9
    assert row.exact.rule.value <= row.exact.plug_in <= row.exact.bound
    assert row.attack == "exact"
    assert row.nag == row.exact.rule
    assert row.verdict == "leak shown"
    assert any("the exact attacker's rule" in reason for reason in findings.reasons)
    # An attack that takes differences does see it, and mNAG goes by trained attacks only.
    assert _row(_audit(_subject((U == OF_U) & ((OF_H ^ OF_G) == S)), NEIGHBOURS), "s").attacks[0].nag.low > 0.9
    assert findings.mnag.value == pytest.approx(
        np.mean([_row(findings, name).attacks[0].nag.value for name in "uhg"]) - row.attacks[0].nag.value
    )


def test_always_guessing_is_no_uncertain_leak() -> None:
    """Thirty recordings: no attack's accuracy is known well, but what always guesses has NAG 0 whatever the records."""
    findings = _audit(_subject(U == OF_U, n=600, recordings=30), BASELINE, LINEAR)
    found = {attack.name: attack for attack in _row(findings, "s").attacks}
    assert found["majority"].nag.value == 0
    assert found["linear"].accuracy.high - found["linear"].accuracy.low > 0.05


def test_a_failure_is_that_of_its_attribute_alone() -> None:
    named = (Attribute("age", ("a", "b"), "private"), Attribute("age group", ("a", "b"), "useful"), *ATTRIBUTES[2:])
    findings = _audit(_subject(np.ones((16, 128)), named), LINEAR)  # any donor at all: utility is lost
    assert [check.attribute for check in findings.checks if check.failed] == ["age group"]
    assert _row(findings, "age group").verdict == "lost"
    assert _row(findings, "age").verdict == "below the limit"


def _without_pool(coordinates: DoubleArray, subject: Subject) -> FloatArray:
    return (coordinates + stream(5, "noise", str(len(coordinates))).normal(0, 0.1, coordinates.shape)).astype(np.float32)


def test_side_information_without_a_pool() -> None:
    """What is released is one class or the other but not both: whoever knows one reads the other from it."""
    subject = _subject(U == OF_U)

    def released(split: str) -> FloatArray:
        s, u, h = (subject.labels(split, name) for name in "suh")
        return _without_pool(np.stack([s ^ h, u], axis=1).astype(np.float64), subject)

    audited = dataclasses.replace(
        subject, released_test=released("test"), released_train=lambda _: released("train"), substitution=None
    )
    row = _row(_audit(_same_shape(audited), LINEAR), "s")
    assert row.nag.high < 0.2
    side = {known.known: known for known in row.side_information}
    assert side["h"].nag.low > 0.9
    assert side["h"].guess == pytest.approx(0.5, abs=0.06)
    assert side["u"].nag.high < 0.2
    assert all(known.information is None for known in row.side_information)
    groups: list[Subgroup] = [group for group in row.subgroups if group.attribute == "h"]
    assert all(group.exact_nag is None for group in groups)


def _same_shape(subject: Subject) -> Subject:
    """Releases with as many coordinates as originals have, the missing ones 0."""
    width = subject.test.records.features.shape[1]

    def widened(records: FloatArray) -> FloatArray:
        return np.pad(records, ((0, 0), (0, width - records.shape[1])))

    return dataclasses.replace(
        subject,
        released_test=widened(subject.released_test),
        released_train=lambda draw: widened(subject.released_train(draw)),
    )


@pytest.mark.parametrize("attacks", [(), (EXACT,)])
def test_audit_without_an_attack_on_originals_is_refused(attacks: tuple[NamedAttack, ...]) -> None:
    with pytest.raises(AuditError, match="needs an attack that can also be tried on originals"):
        _audit(_subject(U == OF_U), *attacks)


def test_attribute_of_one_class_is_named() -> None:
    subject = _subject(U == OF_U)
    subject.test.records.labels["s"][:] = 1
    with pytest.raises(AuditError, match="attribute 's': expected records of at least two classes"):
        _audit(subject, LINEAR)


def test_attribute_that_originals_do_not_reveal_does_not_end_the_audit() -> None:
    """A general one is only named; of a private one nothing is shown, since attacks that fail on originals prove nothing."""
    subject = _subject(U == OF_U)
    rng = stream(9, "noise")
    for part in (subject.train, subject.test):
        part.records.labels["h"][:] = rng.integers(0, 2, len(part))
    findings = _audit(subject, LINEAR)
    assert findings.unreadable == ("h",)
    assert findings.verdict == "pass"
    for part in (subject.train, subject.test):
        part.records.labels["s"][:] = rng.integers(0, 2, len(part))
    findings = _audit(subject, LINEAR)
    assert findings.unreadable == ("s", "h")
    assert (findings.verdict, findings.privacy) == ("undecided", "cannot be decided")
    assert "no attack reads it from originals" in findings.reasons[0]
