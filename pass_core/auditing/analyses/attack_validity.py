"""Whether each attack finds a leak that was planted on purpose: only then does its failure on the release mean anything."""

from collections.abc import Iterator

from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.findings import Check
from pass_core.auditing.section import Block, Table
from pass_core.auditing.thresholds import Thresholds
from pass_core.auditing.validity import AttackValidity, Validity
from pass_core.statistics.intervals import Estimate

TITLE = "Would these attacks have found a leak?"


def _checks(validity: Validity, thresholds: Thresholds) -> Iterator[Check]:
    limit = thresholds.private_nag_at_most
    for attribute in validity.undecided():
        words = (
            f"private attribute {attribute}: no attack finds a leak planted in {validity.planted:.0%} of the records, so that "
            "finding none in the release proves nothing; give more records or persons, or other attacks"
        )
        about = f"{attribute}: validity of the attacks"
        yield Check.at_most("private_nag_at_most", limit, about, Estimate(0.0, 0.0, 1.0), words, attribute=attribute)


def _answer(one: AttackValidity) -> str:
    if one.found is None:
        return f"not tried: {one.reason}"
    return "yes" if one.found else "no: its failure does not count"


def _section(validity: Validity | None) -> Iterator[Block]:
    if validity is None or not validity.attacks:
        yield "Not analysed: no private attribute was attacked."
        return
    yield (
        f"An attack that finds nothing may be too weak. A leak was therefore planted: {validity.planted:.0%} of the records were "
        "released as their own originals or, for attacks on a pool of donors, with a donor of a set that stands for their class. "
        f"Each attack learnt from {validity.train_records} such training records (attacks on a pool from all) and was scored on "
        f"{validity.test_records} test records. An attack that misses the planted leak does not count as a sign of privacy. What "
        "it finds in the release counts all the same."
    )
    rows = [
        (one.attribute, one.attack, _answer(one), None if one.p_value is None else f"{one.p_value:.2g}",
         None if one.share is None else f"{one.share:.0%}", one.nag)
        for one in validity.attacks
    ]  # fmt: skip
    caption = (
        "A planted leak is found where chance gives such a gain in at most 1 % of trials, and the gain is at least a third of "
        "what reading the planted classes is worth."
    )
    columns = ("Attribute", "Attack", "Planted leak found?", "Probability by chance", "Of what the leak is worth", "NAG")
    yield Table(TITLE, caption, columns, rows)


ANALYSIS = Analysis(
    key="attack_validity",
    rank=5,
    title=TITLE,
    finding=Validity,
    find=lambda audited: audited.validity,
    checks=_checks,
    section=_section,
)
