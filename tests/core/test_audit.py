"""The audit on mechanisms that leak on purpose, and on one that is private; every attack has its control."""

import numpy as np
import pytest
import torch

from pass_core.attacks import logistic_regression
from pass_core.audit import NamedAttack, Subject, Thresholds, run_audit
from pass_core.data import Attribute, FloatArray, Records
from pass_core.errors import AuditError
from pass_core.exact import channel_law
from pass_core.randomness import stream
from pass_core.substitution import SubstitutionChannel

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b"), "useful"), Attribute("h", ("a", "b"), "hidden"))
LINEAR = (NamedAttack("linear", logistic_regression.ATTACK, logistic_regression.LogisticRegressionConfig()),)


def _records(n: int, rng: np.random.Generator) -> Records:
    labels = {a.name: rng.integers(0, 2, n) for a in ATTRIBUTES}
    x = np.stack([2.0 * labels[a.name] - 1 for a in ATTRIBUTES], axis=1) + rng.normal(0, 0.2, (n, 3))
    return Records(x.astype(np.float32), labels)


def _audit(release, laws=None, thresholds: Thresholds = Thresholds()):  # noqa: B008 (frozen)
    """Audits `release(records, rng) -> released features` on 2,000 + 1,000 records."""
    train, test = _records(2000, stream(1, "train")), _records(1000, stream(1, "test"))
    subject = Subject(
        ATTRIBUTES,
        train,
        test,
        np.arange(1000),
        release(test, stream(1, "released test")),
        lambda draw: release(train, stream(1, "released train", str(draw))),
        laws(train, test) if laws else None,
    )
    return run_audit(subject, LINEAR, thresholds, lambda *labels: stream(2, *labels), lambda _work, _epoch: None)


def _donor(records: Records, rng: np.random.Generator, leak: float) -> FloatArray:
    """A record of the same useful class; for a share `leak` of the records also of the same private class."""
    donors = _records(400, stream(9, "pool"))
    chosen = []
    for leaks, s, u in zip(rng.random(len(records)) < leak, records.labels["s"], records.labels["u"], strict=True):
        fits = (donors.labels["u"] == u) & ((donors.labels["s"] == s) | (not leaks))
        chosen.append(rng.choice(np.flatnonzero(fits)))
    return donors.features[chosen]


def test_private_mechanism_passes() -> None:
    report = _audit(lambda records, rng: _donor(records, rng, leak=0.0))
    rows = {row.name: row for row in report.attributes}
    assert report.verdict == "pass"
    assert report.reasons == ()
    assert rows["s"].accuracy.unprotected > 0.95  # the attack works where nothing protects
    assert rows["s"].nag < 0.05
    assert rows["u"].nag > 0.95
    assert rows["h"].nag < 0.1
    assert [row.verdict for row in report.attributes] == ["pass", "pass", None]
    assert report.mnag == pytest.approx((rows["u"].nag + rows["h"].nag) / 2 - rows["s"].nag)


def test_no_protection_fails_and_says_why() -> None:
    report = _audit(lambda records, _rng: records.features)
    rows = {row.name: row for row in report.attributes}
    assert report.verdict == "fail"
    assert rows["s"].nag == pytest.approx(1, abs=0.02)
    assert len(report.reasons) == 1
    assert "private attribute s: NAG" in report.reasons[0]
    assert "at most 5.0% allowed" in report.reasons[0]


@pytest.mark.parametrize("leak", [0.2, 0.5])
def test_partial_leak_is_found(leak: float) -> None:
    report = _audit(lambda records, rng: _donor(records, rng, leak))
    row = report.attributes[0]
    assert report.verdict == "fail"
    assert row.nag_interval.low <= row.nag <= row.nag_interval.high
    assert row.nag_interval.low <= leak <= row.nag_interval.high  # NAG of this mechanism is its leak


def test_lost_utility_fails() -> None:
    report = _audit(lambda records, rng: rng.normal(size=records.features.shape).astype(np.float32))
    assert report.verdict == "fail"
    assert any("useful attribute u" in reason for reason in report.reasons)


def test_exact_attacker_fails_what_a_weak_attack_lets_pass() -> None:
    """A channel that codes the private bit as XOR of two coordinates: invisible to a linear attack, not to the exact one."""
    donors = np.array([[1, 1, 1], [-1, -1, 1], [1, -1, 1], [-1, 1, 1], [1, 1, -1], [-1, -1, -1], [1, -1, -1], [-1, 1, -1]])

    class XorEncoder(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            same = (x[:, 0] > 0).float()[:, None] * torch.tensor([1.0, 1, 0, 0, 1, 1, 0, 0])
            differ = (x[:, 0] <= 0).float()[:, None] * torch.tensor([0.0, 0, 1, 1, 0, 0, 1, 1])
            useful = torch.where(x[:, 1:2] > 0, torch.tensor([1.0] * 4 + [0] * 4), torch.tensor([0.0] * 4 + [1] * 4))
            return (same + differ) * useful

    channel = SubstitutionChannel(XorEncoder(), torch.eye(8), 0.01)

    def release(records: Records, rng: np.random.Generator) -> FloatArray:
        law = channel_law(channel, records.features, records.labels, ATTRIBUTES, rng, n_draws=1)
        return donors[law.draws[0]].astype(np.float32)

    def laws(train: Records, test: Records):
        return tuple(channel_law(channel, part.features, part.labels, ATTRIBUTES, stream(3, "law")) for part in (train, test))

    weak = _audit(release)
    assert weak.attributes[0].nag < 0.1  # the linear attack sees nothing
    exact = _audit(release, laws)
    assert exact.attributes[0].nag_exact.rule > 0.9
    assert exact.attributes[0].nag_exact.plug_in >= exact.attributes[0].nag_exact.rule
    assert exact.attributes[0].mutual_information > 0.5
    assert exact.verdict == "fail"
    assert any("exact attacker" in reason for reason in exact.reasons)


def test_thresholds_decide() -> None:
    lenient = _audit(lambda records, _rng: records.features, thresholds=Thresholds(private_nag_at_most=1.0))
    assert lenient.verdict == "pass"


def test_audit_without_attacks_is_refused() -> None:
    records = _records(10, stream(1, "x"))
    subject = Subject(ATTRIBUTES, records, records, np.arange(10), records.features, lambda _: records.features, None)
    with pytest.raises(AuditError, match="at least one attack"):
        run_audit(subject, (), Thresholds(), lambda *labels: stream(2, *labels), lambda _w, _e: None)
