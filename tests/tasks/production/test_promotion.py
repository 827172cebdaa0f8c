"""The decision about a candidate, as a function of the figures of two audits."""

from typing import Any

import pytest

from pass_core.statistics.intervals import Estimate
from tasks.production.promotion import Decision, Figure, Measured, decide


def _measured(verdict: Any = "pass", private: float = 0.05, useful: float = 0.95, reasons: tuple[str, ...] = ()) -> Measured:
    near = 0.04
    figures = {
        "gender": Figure("private", Estimate(private, private - near, private + near)),
        "topic": Figure("useful", Estimate(useful, useful - near, useful + near)),
    }
    return Measured(verdict=verdict, reasons=reasons, figures=figures)


CASES: list[tuple[Measured, Measured | str | None, bool, Decision, str]] = [
    (_measured("fail", reasons=("gender leaks",)), _measured(), True, "REJECT", "gender leaks"),
    (_measured("undecided", reasons=("too few",)), _measured(), True, "HOLD", "too few"),
    (_measured(), None, False, "PROMOTE", "no champion yet"),
    (_measured(), "other features", True, "HOLD", "other features"),
    (_measured(), _measured("fail", reasons=("topic is lost",)), False, "PROMOTE", "topic is lost"),
    (_measured(private=0.02), _measured(private=0.14), False, "PROMOTE", "private attribute gender: NAG 2.0%"),
    (_measured(useful=0.99), _measured(useful=0.90), False, "PROMOTE", "useful attribute topic: NAG 99.0%"),
    (_measured(private=0.14), _measured(private=0.02), True, "REJECT", "worse"),
    (_measured(useful=0.80), _measured(useful=0.95), True, "REJECT", "worse"),
    (_measured(private=0.02, useful=0.80), _measured(private=0.14), True, "HOLD", "better in some figures and worse in others"),
    (_measured(private=0.04), _measured(private=0.06), True, "PROMOTE", "as good"),
    (_measured(private=0.04), _measured(private=0.06), False, "HOLD", "not clearly better"),
    (_measured(), _measured("undecided"), False, "HOLD", "not clearly better"),
]


@pytest.mark.parametrize(("candidate", "champion", "drifted", "decision", "why"), CASES)
def test_decisions(candidate: Measured, champion: Measured | str | None, drifted: bool, decision: Decision, why: str) -> None:
    found = decide(candidate, champion, drifted=drifted)
    assert found.decision == decision
    assert why in "; ".join(found.reasons)


def test_an_attribute_that_the_champion_did_not_know_decides_nothing() -> None:
    old = _measured()
    alone = Measured(verdict="pass", reasons=(), figures={"topic": old.figures["topic"]})
    assert decide(old, alone, drifted=False).decision == "HOLD"
    assert "no such figure" in "; ".join(decide(old, alone, drifted=True).reasons)
