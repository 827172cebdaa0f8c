"""The audit on mechanisms that leak on purpose, each of which it must fail, and on one that is private, which it must pass."""

import dataclasses

import numpy as np
import pytest

from pass_core.attacks import exact_bayes, logistic_regression
from pass_core.auditing.analyses.linkage import Linkage
from pass_core.auditing.analyses.seed_replay import Replay
from pass_core.auditing.findings import AuditFindings
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import Part, Subject
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.data import Attribute, DoubleArray, FloatArray
from pass_core.randomness import stream
from tests.pass_core.channels import part_of_kinds, subject_of_kinds

N = 12_000
ATTRIBUTES = (
    Attribute("s", ("a", "b"), "private"),
    Attribute("t", ("a", "b"), "private"),
    Attribute("u", ("a", "b", "c", "d"), "useful"),
    Attribute("h", ("a", "b"), "general"),
)
ATTACKS = (
    NamedAttack("linear", logistic_regression.ATTACK, logistic_regression.LogisticRegressionConfig()),
    NamedAttack("exact_bayes", exact_bayes.ATTACK, exact_bayes.ATTACK.config_type()),
)
DEPTH = Depth(fresh_draws=2, permutations=100, bundles=(1,), draws=(1,), gallery=200)
LABELS = np.stack(np.meshgrid(*[np.arange(a.n_classes) for a in ATTRIBUTES], indexing="ij"), axis=-1).reshape(-1, 4)
DONOR_KINDS = np.repeat(np.arange(len(LABELS)), 12)  # 32 combinations of classes, 384 donors
DONORS = LABELS[DONOR_KINDS]


def _kinds(rows: DoubleArray) -> FloatArray:
    """P(.|kind) from a 0/1 matrix of which donors are in question."""
    return (rows / rows.sum(axis=1, keepdims=True)).astype(np.float32)


SAME_USEFUL = LABELS[:, None, 2] == DONORS[None, :, 2]  # (kinds, donors)
SAME_S = LABELS[:, None, 0] == DONORS[None, :, 0]
SAME_XOR = (LABELS[:, 0] ^ LABELS[:, 1])[:, None] == (DONORS[:, 0] ^ DONORS[:, 1])[None, :]


def _part(table_rows: int, leak: float, n: int, first: int, rng: np.random.Generator) -> Part:
    """Independent records, a share `leak` of which goes through the second half of the table."""
    kinds = rng.integers(0, len(LABELS), n)
    leaking = (rng.random(n) < leak) * len(LABELS) if table_rows > len(LABELS) else 0
    numbers = first + np.arange(n)
    return part_of_kinds(ATTRIBUTES, LABELS[kinds], kinds + leaking, numbers, numbers, rng)


def _subject(usual: DoubleArray, leaking: DoubleArray | None = None, leak: float = 0.0, n: int = N, seed: int = 1) -> Subject:
    """Records whose donors are those of `usual`, for a share of them those of `leaking`."""
    table = _kinds(usual if leaking is None else np.concatenate([usual, leaking]))
    train, test = (_part(len(table), leak, n, first, stream(seed, split)) for split, first in (("train", 0), ("test", n)))
    return subject_of_kinds(ATTRIBUTES, (train, test), table, DONORS, DONOR_KINDS, seed)


def _audit(subject: Subject, replay: Replay | None = None) -> AuditFindings:
    return run_audit(
        subject,
        ATTACKS,
        Thresholds(),
        DEPTH,
        lambda *labels: stream(2, *labels),
        on_attack=lambda _work, _epoch: None,
        replay=replay,
    )


def _failed(findings: AuditFindings) -> set[tuple[str, str]]:
    return {(check.name, check.about) for check in findings.checks if check.failed}


def _row(findings: AuditFindings, name: str):
    return next(row for row in findings.attributes if row.name == name)


@pytest.fixture(scope="module")
def private() -> AuditFindings:
    """A random donor of the same useful class: nothing else is told."""
    return _audit(_subject(SAME_USEFUL))


def test_private_mechanism_passes(private: AuditFindings) -> None:
    assert private.verdict == "pass"
    assert private.reasons == ()
    assert _row(private, "s").unprotected.value > 0.95  # the attack works where nothing protects
    assert _row(private, "s").nag.high < 0.05
    assert _row(private, "u").nag.low > 0.95
    assert _row(private, "h").verdict is None
    assert (private.privacy, private.utility) == ("below the limit", "kept")
    assert _row(private, "s").verdict == "below the limit"
    assert _row(private, "u").verdict == "kept"
    assert {row.name for row in private.attributes} == {"s", "t", "u", "h", "s × t"}
    assert _row(private, "s").exact.certificate.delta < 0.05
    assert private.mnag.value == pytest.approx((_row(private, "u").nag.value + _row(private, "h").nag.value) / 2, abs=0.02)


def test_private_mechanisms_are_rarely_called_leaking() -> None:
    """1 % of audits at most by design, over all comparisons; 12 audits with other records and draws."""
    alarms = [_failed(_audit(_subject(SAME_USEFUL, n=1000, seed=seed))) for seed in range(10, 22)]
    assert sum(map(bool, alarms)) <= 1


def test_no_protection_fails() -> None:
    subject = _subject(SAME_USEFUL)
    released = dataclasses.replace(
        subject,
        released_test=subject.test.records.features,
        released_train=lambda _: subject.train.records.features,
        substitution=None,
    )
    findings = _audit(released)
    assert findings.verdict == "fail"
    assert _row(findings, "s").nag.value == 1.0
    broken = {("private_nag_at_most", "s"), ("private_nag_at_most", "s × t"), ("private_auc_at_most", "t")}
    assert broken <= _failed(findings)
    assert ("private_gain_at_most", "t by attack linear") in _failed(findings)
    assert _row(findings, "s").exact is None
    assert findings.finding(Linkage).reidentified.value > 0.9


@pytest.mark.parametrize(("leak", "seen_by_nag"), [(0.02, False), (0.05, False), (0.2, True)])
def test_some_records_keep_a_donor_of_their_own_class(leak: float, seen_by_nag: bool) -> None:
    findings = _audit(_subject(SAME_USEFUL, SAME_USEFUL & SAME_S, leak))
    assert findings.verdict == "fail"
    assert (("private_nag_at_most", "s") in _failed(findings)) == seen_by_nag
    assert any(name == "information_excess_at_most" and about.startswith("s") for name, about in _failed(findings))
    information = _row(findings, "s").exact.information
    assert information.p_value < 1e-3
    assert information.excess == pytest.approx(leak**2 / 2, rel=0.2)  # ln 2 − H((1 + leak) / 2)
    assert _row(findings, "t").verdict == "below the limit"


def test_combination_of_two_hidden_attributes() -> None:
    findings = _audit(_subject(SAME_USEFUL & SAME_XOR))
    assert _row(findings, "s").nag.high < 0.1
    assert _row(findings, "t").nag.high < 0.1
    assert _row(findings, "s × t").nag.low > 0.25
    assert ("private_nag_at_most", "s × t") in _failed(findings)
    # Who knows one of the two reads the other: 0.69 nats.
    knows_t = next(side for side in _row(findings, "s").side_information if side.known == "t")
    assert knows_t.information.found == pytest.approx(np.log(2), abs=0.02)
    assert knows_t.nag.low > 0.9


def test_leak_in_one_subgroup() -> None:
    """Records of one useful class in four keep a donor of their own private class in a tenth of the cases."""
    inside = LABELS[:, None, 2] == 3
    findings = _audit(_subject(SAME_USEFUL, np.where(inside, SAME_USEFUL & SAME_S, SAME_USEFUL), leak=0.1))
    failed = {about for name, about in _failed(findings) if name == "information_excess_at_most"}
    assert any(about.startswith("s") for about in failed)
    assert findings.verdict == "fail"
    groups = {group.label: group for group in _row(findings, "s").subgroups if group.attribute == "u"}
    assert groups[3].information.p_value < 1e-4
    assert groups[3].information.excess == pytest.approx(0.1**2 / 2, rel=0.3)
    assert min(groups[label].information.p_value for label in (0, 1, 2)) > 1e-3


def test_replayed_draws_fail_unless_the_release_says_so() -> None:
    subject = _subject(SAME_USEFUL, n=4000)
    for secret, expected in ((True, "fail"), (False, "pass")):
        findings = _audit(subject, Replay(64, 4096, replayed=True, claimed_secret=secret))
        assert findings.verdict == expected
        assert any("can be repeated" in check.sentence for check in findings.checks)


def test_lost_utility_fails() -> None:
    findings = _audit(_subject(np.ones((len(LABELS), len(DONORS)))))
    assert _failed(findings) == {("useful_nag_at_least", "u")}
    assert "useful attribute u: read from releases with NAG" in findings.reasons[0]
    assert (findings.verdict, findings.privacy, findings.utility) == ("fail", "below the limit", "lost")


def test_checks_carry_their_limits_and_reasons(private: AuditFindings) -> None:
    thresholds = Thresholds()
    for check in private.checks:
        limit = getattr(thresholds, check.name)
        assert check.limit == limit.value
        assert limit.reason in check.reason
        assert check.sentence
