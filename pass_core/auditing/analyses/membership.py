"""Whether the protector reveals which records it was trained on.

A protector that remembers its training records treats them differently from new ones: sharper, or more loyal to their classes.
The attacker here sees the whole row P(.|x) of a record, of which releases are draws; seeing only releases cannot do better. Two
attacks are calibrated on half of the records and scored on the other half: a pairwise likelihood ratio, as of RMIA (Zarifzadeh
et al. 2024), and a learnt combination of everything about a row.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.findings import Check, with_interval
from pass_core.auditing.section import Block, Card, Demand
from pass_core.auditing.subject import Part, Split, Subject, Substitution
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import DoubleArray, IntArray, combinations
from pass_core.statistics.intervals import Blocks, Estimate
from pass_core.statistics.nag import area_under_curve
from pass_core.statistics.recognition import rate_among_others

RECORDS = 12_000  # at most, of members and of others
HELD_OUT = 50  # training records not learnt from, fewer of which are too few to compare with
FEWEST = 4  # independent units of a kind, two for each half
RATES = (0.01, 0.001)  # shares of false alarms; the first one is judged
REFERENCES = 20  # of the same classes, fewer of which are too few: then all references count
SHAPE = ("sharpness", "largest")  # of a row, whatever the classes
SMALLEST_MASS = 1e-12  # a mass below this counts as this, so that its logarithm stays comparable

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Recognised:
    """The share of training records recognised while a share of others is taken for training records, too."""

    false_alarms: float
    rate: Estimate | None  # None: too few others to decide it


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Whether the model reveals which records it was trained on, without donors (whose membership is published anyway).

    Figures are of the worse of two attacks, on the half that they were not calibrated on; their intervals hold for both together.
    """

    members: int
    non_members: int
    against: str  # which records are the non-members
    unit: str  # person or recording: what is independent,
    member_units: int  # and how many of them were scored
    non_member_units: int
    auc: Estimate
    attack: str  # the worse one
    recognised: tuple[Recognised, ...]
    smallest_false_alarms: float  # the smallest share of false alarms that these non-members can measure


@dataclass(frozen=True, slots=True)
class _Kind:
    """Records of one kind, members or not."""

    split: Split
    part: Part
    rows: IntArray

    def groups(self) -> dict[str, IntArray]:
        """Classes of every attribute, and persons."""
        named = {f"class {name}": labels[self.rows] for name, labels in self.part.records.labels.items()}
        return {**named, "person": self.part.persons[self.rows]}


def find_membership(subject: Subject, rng_for: Callable[..., np.random.Generator]) -> Membership | None:
    """Members against others; None without a pool, where nearly all records are donors, or where units are too few."""
    if subject.substitution is None:
        return None
    members, others, against = _kinds(subject, subject.substitution)
    members, others = (
        replace(kind, rows=np.sort(rng_for("membership", name).permutation(kind.rows)[:RECORDS]))
        for kind, name in ((members, "members"), (others, "others"))
    )
    is_member = np.arange(len(members.rows) + len(others.rows)) < len(members.rows)
    units, unit = _units(members, others)
    if min(len(np.unique(units[is_member])), len(np.unique(units[~is_member]))) < FEWEST:
        return None
    statistics = _statistics(subject.substitution, subject.train, (members, others))
    first = _first_half(units, is_member, rng_for("membership", "halves"))
    groups = [kind.groups() for kind in (members, others)]
    names = [f"class {attribute.name}" for attribute in subject.single("useful")]
    useful = {name: np.concatenate([side[name] for side in groups]) for name in names}
    scores = {
        "pairwise likelihood ratio": _ratios(statistics, useful, first & ~is_member),
        "learnt combination": _learnt(np.stack(list(statistics.values()), axis=1), is_member, first),
    }
    scored = ~first
    shown = {name: of_attack[scored] for name, of_attack in scores.items()}
    is_scored_member, scored_units = is_member[scored], units[scored]
    areas = {name: _auc(of_attack, is_scored_member, scored_units, len(shown)) for name, of_attack in shown.items()}
    recognised, smallest = _recognised(list(shown.values()), is_scored_member, scored_units)
    return Membership(
        members=len(members.rows),
        non_members=len(others.rows),
        against=against,
        unit=unit,
        member_units=len(np.unique(scored_units[is_scored_member])),
        non_member_units=len(np.unique(scored_units[~is_scored_member])),
        auc=_worst(list(areas.values())),
        attack=max(areas, key=lambda name: areas[name].value),
        recognised=recognised,
        smallest_false_alarms=smallest,
    )


def _kinds(subject: Subject, substitution: Substitution) -> tuple[_Kind, _Kind, str]:
    """Members and others, without donors; and which records the others are."""
    every = np.arange(len(subject.train))
    # Where it is unknown what the protector learnt from, all training records count as members.
    learnt_from = every if subject.learnt_from is None else subject.learnt_from
    members, held_out = (np.setdiff1d(rows, substitution.donor_rows) for rows in (learnt_from, np.setdiff1d(every, learnt_from)))
    if len(held_out) >= HELD_OUT:
        return _Kind("train", subject.train, members), _Kind("train", subject.train, held_out), "held-out training records"
    others = _Kind("test", subject.test, np.arange(len(subject.test)))
    return _Kind("train", subject.train, members), others, "test records, which may also differ otherwise"


def _units(members: _Kind, others: _Kind) -> tuple[IntArray, str]:
    """(members, then others) what is independent: recordings of people who are on both sides; else whole persons."""
    parts = [kind.part.subset(kind.rows) for kind in (members, others)]
    persons, blocks = (np.concatenate([getattr(part, name) for part in parts]) for name in ("persons", "blocks"))
    fixed = np.isin(persons, np.intersect1d(parts[0].persons, parts[1].persons))
    return np.where(fixed, blocks, blocks.max(initial=0) + 1 + persons), "recording" if fixed.all() else "person"


def _statistics(substitution: Substitution, train: Part, kinds: tuple[_Kind, _Kind]) -> dict[str, DoubleArray]:
    """Name -> (records,) of the rows of P: sharpness, the largest probability, mass on donors of the record's own classes.

    Classes and persons without a donor are left out: their absence from the pool is no memory of the protector.
    """
    # A donor who is no training record has no classes (−1).
    rows, known = substitution.donor_rows, substitution.donor_rows >= 0
    donors = {f"class {name}": np.where(known, labels[rows], -1) for name, labels in train.records.labels.items()}
    donors["person"] = substitution.donor_persons
    groups = [kind.groups() for kind in kinds]
    shared = [name for name in donors if np.isin(np.concatenate([side[name] for side in groups]), donors[name]).all()]
    found: dict[str, list[DoubleArray]] = {name: [] for name in (*SHAPE, *shared)}
    for kind, records in zip(kinds, groups, strict=True):
        channel = substitution.channel(kind.split, kind.rows)
        for place, p in channel.blocks(kind.part.records.features[kind.rows]):
            found["sharpness"].append(-torch.special.entr(torch.from_numpy(p)).sum(dim=1).numpy().astype(np.float64))
            masses = {"largest": p.max(axis=1)}
            masses |= {name: (p * (records[name][place, None] == donors[name])).sum(axis=1) for name in shared}
            for name, mass in masses.items():
                found[name].append(np.log(np.maximum(mass, SMALLEST_MASS)).astype(np.float64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _first_half(units: IntArray, is_member: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Half of the members and half of the others, by whole units, for calibration."""
    of_others = np.unique(units[~is_member])
    chosen = [rng.permutation(part)[: len(part) // 2] for part in (of_others, np.setdiff1d(units, of_others))]
    return np.isin(units, np.concatenate(chosen))


def _ratios(statistics: Mapping[str, DoubleArray], useful: Mapping[str, IntArray], references: BoolArray) -> DoubleArray:
    """ln of a record's likelihood over that of reference records of its useful classes; references were not trained on.

    RMIA's score is the share of references z for which the ratio of x exceeds γ times that of z. That share grows with the
    ratio of x alone, whatever γ: the ratio itself ranks records alike, and has no ties where it exceeds all references. What a
    record would have without training, for which RMIA fits reference models, is the mean of references of the same classes:
    members and others of a class are compared with the same references, whose chance therefore favours neither.
    """
    likelihood = np.zeros(len(references))
    for name, values in statistics.items():
        if name in SHAPE or name in useful:
            spread = float(values[references].std())
            likelihood += (values - values[references].mean()) / spread if spread > 0 else 0.0
    kinds = combinations([np.zeros(len(references), dtype=np.int64), *useful.values()])
    counts = np.bincount(kinds[references], minlength=int(kinds.max()) + 1)
    sums = np.bincount(kinds[references], weights=likelihood[references], minlength=len(counts))
    expected = np.where(counts >= REFERENCES, sums / np.maximum(counts, 1), likelihood[references].mean())
    return np.asarray(likelihood - expected[kinds])


def _learnt(statistics: DoubleArray, is_member: BoolArray, first: BoolArray) -> DoubleArray:
    """How much a record looks like a member, by a rule learnt on the first half."""
    spread = statistics[first].std(axis=0)
    standard = (statistics - statistics[first].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    shown = np.concatenate([standard, standard**2], axis=1)  # squares show what differs in spread alone
    rule = LogisticRegression(class_weight="balanced", max_iter=1000, tol=1e-3).fit(shown[first], is_member[first])
    return np.asarray(rule.decision_function(shown))


def _auc(scores: DoubleArray, is_member: BoolArray, units: IntArray, among: int) -> Estimate:
    area, influence = area_under_curve(scores, is_member)
    weights = np.where(is_member, 1 / is_member.sum(), 1 / (~is_member).sum())
    blocks = Blocks.of(units, is_member.astype(np.int64))
    return blocks.proportion(area, blocks.spread(influence, weights), among)


def _recognised(scores: list[DoubleArray], is_member: BoolArray, units: IntArray) -> tuple[tuple[Recognised, ...], float]:
    """The worse attack's rates, and the smallest share of false alarms for which they can be known."""
    recognised, least = [], 0.0
    for allowed in RATES:
        found = [rate_among_others(one, is_member, units, allowed, among=len(scores)) for one in scores]
        least = max(smallest for _, smallest in found)
        recognised.append(Recognised(allowed, None if least > allowed else _worst([rate for rate, _ in found])))
    return tuple(recognised), least


def _worst(found: list[Estimate]) -> Estimate:
    """The largest figure, with the largest ends: each attack must stay below a limit."""
    value, low, high = (max(getattr(one, end) for one in found) for end in ("value", "low", "high"))
    return Estimate(value, low, high)


def _checks(membership: Membership, thresholds: Thresholds) -> Iterator[Check]:
    limit, auc = thresholds.membership_auc_at_most, membership.auc
    units = min(membership.member_units, membership.non_member_units)
    words = (
        f"training records are recognised with AUC {with_interval(auc)} by the {membership.attack}, at most {limit.value:.1%} "
        f"allowed; {membership.member_units} and {membership.non_member_units} {membership.unit}s of training and other records"
    )
    yield Check.at_most("membership_auc_at_most", limit, "membership", auc, words, required=False, units=units)
    limit, judged = thresholds.membership_rate_at_most, membership.recognised[0]
    rate = Estimate(0.0, 0.0, 1.0) if judged.rate is None else judged.rate
    words = f"{_rate_words(membership, judged)}, at most {limit.value:.1%} of the training records allowed"
    about = "membership at few false alarms"
    yield Check.at_most("membership_rate_at_most", limit, about, rate, words, required=False, units=units)


def _rate_words(membership: Membership, found: Recognised) -> str:
    if found.rate is not None:
        return f"{with_interval(found.rate)} of the training records are recognised at {found.false_alarms:.1%} false alarms"
    return (
        f"how many training records are recognised at {found.false_alarms:.1%} false alarms cannot be decided: "
        f"{membership.non_member_units} independent {membership.unit}s of other records can measure "
        f"{membership.smallest_false_alarms:.2%} false alarms or more"
    )


def _section(membership: Membership | None) -> Iterator[Block]:
    if membership is None:
        yield (
            "Not analysed. This needs the replacement probabilities, training records that are not donors, and at least "
            f"{FEWEST} independent persons or recordings of both training and other records. For a release of which only "
            "originals and released records are known, nobody can say which records the protector learnt from: there are no "
            "known members whose distances could be compared with those of others."
        )
        return
    yield (
        f"Does the model reveal which records it was trained on? {membership.members} training records are compared with "
        f"{membership.non_members} {membership.against}. Donors are left out: their participation is published anyway. Two "
        "attacks, a pairwise likelihood ratio and a learnt combination, are calibrated on half of both and scored on the other "
        f"half; independent units are {membership.unit}s. Of 100 pairs of a training record and another record, the worse attack "
        f"picks the right one in {100 * membership.auc.value:.0f}; a coin toss gives 50."
    )
    cards = [Card.of("Training records recognised (AUC)", membership.auc, "50 % is a coin toss")]
    for found in membership.recognised:
        title = f"Recognised with {found.false_alarms:.1%} false alarms"
        if found.rate is None:
            least = f"these records can measure {membership.smallest_false_alarms:.2%} false alarms or more"
            cards.append(Card(title, "cannot be decided", least))
        else:
            cards.append(Card.of(title, found.rate, f"of the training records; {found.false_alarms:.1%} is chance"))
    yield tuple(cards)


ANALYSIS = Analysis(
    key="membership",
    rank=20,
    title="Membership",
    finding=Membership,
    find=lambda audited: find_membership(audited.subject, audited.rng_for),
    checks=_checks,
    section=_section,
    demands={
        "membership_auc_at_most": Demand("Training records cannot be recognised", "AUC at most {:.1%}"),
        "membership_rate_at_most": Demand("No part of them is recognised for certain", "at most {:.1%} at 1 % false alarms"),
    },
)
