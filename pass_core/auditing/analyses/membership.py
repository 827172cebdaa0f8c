"""Whether the protector reveals which records it was trained on.

A protector that remembers its training records treats them differently from new ones: sharper, or more loyal to their classes.
The attacker here sees the whole row P(.|x) of a record, of which releases are draws; seeing only releases cannot do better.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import LogisticRegression

from pass_core.auditing.analyses.base import Analysis
from pass_core.auditing.findings import Check, with_interval
from pass_core.auditing.section import Block, Card, Demand
from pass_core.auditing.subject import Part, Split, Subject, Substitution
from pass_core.auditing.thresholds import Thresholds
from pass_core.data import DoubleArray, IntArray
from pass_core.statistics.intervals import Blocks, Estimate, Spread
from pass_core.statistics.nag import area_under_curve

RECORDS = 5000  # at most, of members and of others
HELD_OUT = 50  # training records not learnt from, fewer of which are too few to compare with
FEWEST = 4  # records of a kind, two for each half
FALSE_POSITIVES = 0.01
SMALLEST_MASS = 1e-12  # a mass below this counts as this, so that its logarithm stays comparable

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Whether the model reveals which records it was trained on, without donors (whose membership is published anyway)."""

    members: int
    non_members: int
    against: str  # which records are the non-members
    auc: Estimate
    true_positive_rate: float  # at 1 % false positives


@dataclass(frozen=True, slots=True)
class _Kind:
    """Records of one kind, members or not."""

    split: Split
    part: Part
    rows: IntArray

    def groups(self) -> list[IntArray]:
        """Classes of every attribute, and persons."""
        return [*(labels[self.rows] for labels in self.part.records.labels.values()), self.part.persons[self.rows]]


def find_membership(subject: Subject, rng_for: Callable[..., np.random.Generator]) -> Membership | None:
    """Members against others; None without a pool, or where nearly all records are donors."""
    if subject.substitution is None:
        return None
    members, others, against = _kinds(subject, subject.substitution)
    if min(len(members.rows), len(others.rows)) < FEWEST:
        return None
    members, others = (
        replace(kind, rows=np.sort(rng_for("membership", name).permutation(kind.rows)[:RECORDS]))
        for kind, name in ((members, "members"), (others, "others"))
    )
    statistics = _statistics(subject.substitution, subject.train, (members, others))
    is_member = np.arange(len(statistics)) < len(members.rows)
    blocks = np.concatenate([kind.part.blocks[kind.rows] for kind in (members, others)])
    first = _first_half(blocks, is_member, rng_for("membership", "halves"))
    scores = _scores(statistics, is_member, first)
    unlikely = np.sort(scores[~is_member])[::-1][int(FALSE_POSITIVES * len(others.rows))]  # for all but a hundredth of the others
    return Membership(
        members=len(members.rows),
        non_members=len(others.rows),
        against=against,
        auc=_auc(scores, is_member, first, blocks),
        true_positive_rate=float((scores[is_member] > unlikely).mean()),
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


def _statistics(substitution: Substitution, train: Part, kinds: tuple[_Kind, _Kind]) -> DoubleArray:
    """(records, statistics) of the rows of P: the largest probability, entropy, mass on donors of the record's own classes.

    Classes and persons without a donor are left out: their absence from the pool is no memory of the protector.
    """
    # A donor who is no training record has no classes (−1).
    rows, known = substitution.donor_rows, substitution.donor_rows >= 0
    donors = [*(np.where(known, labels[rows], -1) for labels in train.records.labels.values()), substitution.donor_persons]
    groups = [kind.groups() for kind in kinds]
    shared = [np.isin(np.concatenate(sides), donors[k]).all() for k, sides in enumerate(zip(*groups, strict=True))]
    found = []
    for kind, records in zip(kinds, groups, strict=True):
        own = [pair for *pair, has_donors in zip(records, donors, shared, strict=True) if has_donors]
        channel = substitution.channel(kind.split, kind.rows)
        for place, p in channel.blocks(kind.part.records.features[kind.rows]):
            entropy = torch.special.entr(torch.from_numpy(p)).sum(dim=1).numpy()
            masses = [p.max(axis=1), *((p * (record[place, None] == donor)).sum(axis=1) for record, donor in own)]
            logarithms = [np.log(np.maximum(mass, SMALLEST_MASS)) for mass in masses]
            found.append(np.stack([entropy, *logarithms], axis=1).astype(np.float64))
    return np.concatenate(found)


def _first_half(blocks: IntArray, is_member: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Half of the members and half of the others, by whole blocks; by records where a kind is one block only."""
    for units in (blocks, np.arange(len(blocks))):
        of_others = np.unique(units[~is_member])
        chosen = [rng.permutation(part)[: len(part) // 2] for part in (of_others, np.setdiff1d(units, of_others))]
        first = np.isin(units, np.concatenate(chosen))
        if len(np.unique(2 * first + is_member)) == 4:
            break
    return first


def _scores(statistics: DoubleArray, is_member: BoolArray, first: BoolArray) -> DoubleArray:
    """How much a record looks like a member, by a rule learnt on the other half; as ranks within its half."""
    spread = statistics.std(axis=0)
    standard = (statistics - statistics.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    shown = np.concatenate([standard, standard**2], axis=1)  # squares show what differs in spread alone
    scores = np.empty(len(statistics))
    for half in (first, ~first):
        rule = LogisticRegression(class_weight="balanced", max_iter=1000, tol=1e-3).fit(shown[~half], is_member[~half])
        scores[half] = stats.rankdata(rule.decision_function(shown[half])) / half.sum()
    return scores


def _auc(scores: DoubleArray, is_member: BoolArray, first: BoolArray, blocks: IntArray) -> Estimate:
    """The halves' mean. Each half taught the other's rule, so their errors go together: deviations are averaged."""
    areas, spreads = [], []
    for half in (first, ~first):
        area, influence = area_under_curve(scores[half], is_member[half])
        weights = np.where(is_member[half], 1 / is_member[half].sum(), 1 / (~is_member[half]).sum())
        areas.append(area)
        spreads.append(Blocks.of(blocks[half], is_member[half].astype(np.int64)).spread(influence, weights))
    deviation = float(np.mean([spread.variance**0.5 for spread in spreads]))
    spread = Spread(deviation**2, sum(spread.degrees for spread in spreads))
    return Blocks.of(blocks, is_member.astype(np.int64)).proportion(float(np.mean(areas)), spread)


def _checks(membership: Membership, thresholds: Thresholds) -> Iterator[Check]:
    limit, auc = thresholds.membership_auc_at_most, membership.auc
    sentence = f"training records are recognised with AUC {with_interval(auc)}, at most {limit.value:.1%} allowed"
    passed = auc.low <= limit.value
    yield Check.of("membership_auc_at_most", limit, "membership", found=auc.value, passed=passed, sentence=sentence)


def _section(membership: Membership | None) -> Iterator[Block]:
    if membership is None:
        yield "Not analysed: this needs the replacement probabilities, and training records that are not donors."
        return
    yield (
        f"Does the model reveal which records it was trained on? {membership.members} training records are compared with "
        f"{membership.non_members} {membership.against}. Donors are left out: their participation is published anyway. Of "
        "100 pairs of a training record and another record, the attacker picks the right one in "
        f"{100 * membership.auc.value:.0f}; a coin toss gives 50."
    )
    found = f"{membership.true_positive_rate:.1%}"
    yield (
        Card.of("Training records recognised (AUC)", membership.auc, "50 % is a coin toss"),
        Card("Recognised with 1 % false alarms", found, "of the training records; 1 % is chance"),
    )


ANALYSIS = Analysis(
    key="membership",
    rank=20,
    title="Membership",
    finding=Membership,
    find=lambda audited: find_membership(audited.subject, audited.rng_for),
    checks=_checks,
    section=_section,
    demands={"membership_auc_at_most": Demand("Training records cannot be recognised", "AUC at most {:.1%}", 1.0)},
)
