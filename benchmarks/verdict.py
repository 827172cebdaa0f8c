"""Whole-verdict false alarms on private releases, and the power to show leaks, over simulated data.

python benchmarks/verdict.py [alarms|power|files] [SEEDS [NAME ...]]

alarms: every record is replaced by a random donor of its useful class, so nothing leaks; counted is how often any check of the
audit says *leak shown*. power: mechanisms that leak on purpose, in payloads and draws, by size of the leak and number of
records. files: secrets in what is written beside the payload, audited as `audit pair` does it. Attacks are reduced to logistic
regression, boosted trees and, where P(x'|x) is known, the exact attacker (files: logistic regression only); everything else of
the verdict runs as in a full audit.
"""

import json
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from pass_core.attacks import exact_bayes, gradient_boosting, logistic_regression
from pass_core.auditing.findings import AuditFindings
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import ColumnValues, DrawnRelease, MadeRelease, Part, Subject, make_subject
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.randomness import stream
from pass_core.statistics.intervals import wilson

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.tasks.audits.releases import PLANTED, FilesRelease, leaks_of

WIDTH = 12  # features of a record
USEFUL = 4
DONORS = 400
LINEAR = NamedAttack("linear", logistic_regression.ATTACK, logistic_regression.LogisticRegressionConfig(draws=1))
BOOSTED = NamedAttack("boosted", gradient_boosting.ATTACK, gradient_boosting.GradientBoostingConfig(draws=1, iterations=20))
EXACT = NamedAttack("exact", exact_bayes.ATTACK, exact_bayes.ATTACK.config_type())
DEPTH = Depth(fresh_draws=1, permutations=60, bundles=(1, 5), draws=(1,), gallery=300, subgroup_records=60)


@dataclass(frozen=True, kw_only=True)
class Design:
    """Simulated data: records of people with a private class, and how they are split."""

    records: int = 4000  # in all, half of them for training
    persons: int = 0  # 0: every record is a person's of its own
    new_people: bool = False  # whether test records are of people who are not in training
    classes: int = 6  # of the general attribute
    minority: float = 0.5  # share of the second private class
    shifted: bool = False  # whether the class shares of training and test differ
    noise_column: bool = False
    pool: bool = True
    leak: str = ""
    share: float = 0.0  # of the records that the leak concerns


@dataclass(frozen=True)
class Drawn:
    """Simulated records: classes, persons and features, before they are released."""

    private: IntArray
    useful: IntArray
    general: IntArray
    persons: IntArray
    features: FloatArray


def simulated(design: Design, rng: np.random.Generator) -> tuple[Drawn, Drawn]:
    """Training and test records."""
    parts = []
    people = max(design.persons, 2)
    of_people = (rng.random(2 * people) < design.minority).astype(np.int64)
    of_people[[0, 1, people, people + 1]] = 0, 1, 0, 1  # both classes are in both parts
    for number in range(2):
        n = design.records // 2
        share = design.minority + (0.15 if design.shifted and number else 0.0)
        if design.persons:
            persons = np.arange(n) % people + (people if design.new_people and number else 0)
            private = of_people[persons]
        else:
            persons, private = np.arange(n) + number * n, (rng.random(n) < share).astype(np.int64)
        useful, general = rng.integers(0, USEFUL, n), rng.integers(0, design.classes, n)
        features = rng.normal(size=(n, WIDTH)).astype(np.float32)
        features[:, 0] += 3 * private
        features[:, 1] += 2 * general / design.classes
        features[np.arange(n), 2 + useful] += 4
        parts.append(Drawn(private, useful, general, persons, features))
    return parts[0], parts[1]


@dataclass(frozen=True)
class Rows:
    """P(x'|x) by rows; the last feature of a record is its row."""

    table: FloatArray

    @property
    def pool_size(self) -> int:
        return self.table.shape[1]

    def blocks(self, features: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
        numbers = features[:, -1].astype(np.int64)
        for start in range(0, len(numbers), 1024):
            rows = slice(start, min(start + 1024, len(numbers)))
            yield rows, self.table[numbers[rows]].copy()


def laws(design: Design, part: Drawn, donors: Drawn, rng: np.random.Generator) -> FloatArray:
    """P(x'|x): a random donor of the useful class, except for what the leak changes."""
    table = (part.useful[:, None] == donors.useful).astype(np.float64)
    own = table * (part.private[:, None] == donors.private)
    leaking = rng.random(len(table)) < design.share
    if design.leak == "own class":
        mixed = design.share * own / own.sum(axis=1, keepdims=True)
        table = (1 - design.share) * table / table.sum(axis=1, keepdims=True) + mixed
    elif design.leak == "speakers":  # every person has donors of their own class that others rarely get
        habits = stream(11, "habits").random((int(part.persons.max()) + 1, table.shape[1])) < 0.3
        table *= np.where(habits[part.persons] & (own > 0), 6.0, 1.0)
    elif design.leak == "rows":
        table[leaking] = own[leaking]
    elif design.leak == "minority":  # of the rare class only, so that the other one stays likelier for every donor
        table[leaking & (part.private == 1)] = own[leaking & (part.private == 1)]
    elif design.leak == "last rows":
        late = np.arange(len(table)) >= (1 - design.share) * len(table)
        table[late] = own[late]
    elif design.leak == "boundary":
        near = np.abs(part.features[:, 0] - 1.5) <= np.quantile(np.abs(part.features[:, 0] - 1.5), design.share)
        table[near] = own[near]
    return (table / table.sum(axis=1, keepdims=True)).astype(np.float32)


def subject_of(design: Design, seed: int) -> Subject:
    """The audit's subject for one seed."""
    rng = stream(seed, "verdict", repr(design))
    train, test = simulated(design, rng)
    donors = simulated(Design(records=2 * DONORS, minority=design.minority), rng)[0]
    attributes = (
        Attribute("s", ("a", "b"), "private"),
        Attribute("u", tuple(str(k) for k in range(USEFUL)), "useful"),
        Attribute("h", tuple(str(k) for k in range(design.classes)), "general"),
    )
    tables = np.concatenate([laws(design, part, donors, rng) for part in (train, test)])
    n = len(train.private)

    def part_of(drawn: Drawn, first: int) -> Part:
        numbered = np.concatenate([drawn.features, first + np.arange(n, dtype=np.float32)[:, None]], axis=1)
        labels = {"s": drawn.private, "u": drawn.useful, "h": drawn.general}
        return Part(Records(numbered.astype(np.float32), labels), drawn.persons, drawn.persons)

    chosen = [
        np.array([rng.choice(DONORS, p=row / row.sum()) for row in half.astype(np.float64)]) for half in np.split(tables, 2)
    ]
    shown = np.concatenate([donors.features, rng.normal(size=(DONORS, 1))], axis=1).astype(np.float32)
    released = [shown[of] for of in chosen]
    for split, (part, made) in enumerate(zip((train, test), released, strict=True)):
        if design.leak == "copies":
            verbatim = rng.random(n) < design.share
            made[verbatim] = part_of(part, split * n).records.features[verbatim]
        if design.leak == "known":  # the class, hidden by a bit of the general attribute
            made[:, -2] = ((part.private + part.general) % 2) * 3 + rng.normal(size=n)
        if design.leak == "rare":  # one class in fifty records, revealed
            made[:, -2] = 3.0 * part.private + rng.normal(size=n)
        if design.leak == "pairs":  # of a person's two releases that follow each other, two random bits sum to the class
            order = np.argsort(part.persons, kind="stable")
            bits = rng.integers(0, 2, n)
            bits[order[1::2]] = bits[order[::2]] ^ part.private[order[1::2]]
            made[:, -2] = 2.0 * bits - 1 + 0.3 * rng.normal(size=n)
    release = MadeRelease((released[1],), lambda _: released[0])
    drawn = DrawnRelease(
        channel=lambda _split, _rows: Rows(tables), donor_features=shown, drawn_test=chosen[1], drawn_train=chosen[0],
        fresh_draws=1, rng=rng,
    )  # fmt: skip
    noise = {"noise": ColumnValues(rng.integers(0, 5, n), rng.integers(0, 5, n), ordered=True)} if design.noise_column else {}
    return make_subject(
        attributes=attributes,
        train=part_of(train, 0),
        test=part_of(test, n),
        release=drawn if design.pool else release,
        columns=noise,
        recipient=Recipient(records_per_person=5),
    )


def audited(design: Design, seed: int) -> AuditFindings:
    """The audit of one seed."""
    torch.set_num_threads(1)
    attacks = (LINEAR, BOOSTED, EXACT) if design.pool else (LINEAR, BOOSTED)
    return run_audit(
        subject_of(design, seed), attacks, Thresholds(), DEPTH, lambda *labels: stream(seed, *labels),
        on_attack=lambda _work, _epoch: None,
    )  # fmt: skip


ALARMS = {
    "records": Design(),
    "general_20": Design(classes=20, pool=False),
    "records_pair": Design(pool=False),
    "persons_24": Design(persons=24),
    "persons_40_new": Design(persons=40, new_people=True),
    "persons_60_pair": Design(persons=60, pool=False),
    "noise_column": Design(records=2000, noise_column=True),
    "few_records": Design(records=600, pool=False),
    "shifted": Design(shifted=True, pool=False),
    "shifted_pool": Design(shifted=True),
    "many_records": Design(records=10_000),
    "rare_class": Design(minority=0.05, pool=False),
}
N_LARGE, N_SMALL = 16_000, 4000  # half of them for training
POWER = {
    f"{name}, n {design.records // 2}": design
    for name, large in {
        "own class 2 %": Design(leak="own class", share=0.02),
        "own class 5 %": Design(leak="own class", share=0.05),
        "own class 10 %, pair": Design(leak="own class", share=0.1, pool=False),
        "own class 20 %, pair": Design(leak="own class", share=0.2, pool=False),
        "minority posterior 30 %": Design(leak="minority", share=0.3, minority=0.1),
        "minority posterior 30 %, pair": Design(leak="minority", share=0.3, minority=0.1, pool=False),
        "speakers": Design(persons=60, leak="speakers", minority=0.2),
        "copies 1 %": Design(leak="copies", share=0.01, pool=False),
        "copies 2 %": Design(leak="copies", share=0.02, pool=False),
        "known attribute": Design(leak="known", classes=2, pool=False),
        "rare class 2 %": Design(leak="rare", minority=0.02, pool=False),
        "pairs of a person": Design(persons=800, leak="pairs", pool=False),
        "last tenth": Design(leak="last rows", share=0.1),
        "last tenth, pair": Design(leak="last rows", share=0.1, pool=False),
        "boundary 10 %": Design(leak="boundary", share=0.1),
        "boundary 10 %, pair": Design(leak="boundary", share=0.1, pool=False),
        "boundary 25 %, pair": Design(leak="boundary", share=0.25, pool=False),
    }.items()
    for design in (replace(large, records=N_LARGE), replace(large, records=N_SMALL))
}
FILES = {f"{spoil.__name__.replace('_', ' ')}, n {n}": (spoil, n) for spoil in PLANTED for n in (8000, 2000)}


@threadpool_limits.wrap(limits=1)  # two processes share the cores
def one(job: tuple[str, str, int]) -> tuple[str, list[str], str]:
    """Which checks show a leak, and the verdict."""
    kind, name, seed = job
    if kind == "files":
        spoil, n = FILES[name]
        with tempfile.TemporaryDirectory() as folder:
            release = FilesRelease(Path(folder), seed=1000 + seed, n=n)
            spoil(release)
            document = release.audit()
        return name, leaks_of(document), document["verdict"]
    found = audited((ALARMS if kind == "alarms" else POWER)[name], seed)
    return name, [f"{check.name}: {check.about}" for check in found.checks if check.outcome == "leak shown"], found.verdict


def main() -> None:
    kind, number, wanted = (sys.argv[1:2] or ["alarms"])[0], int((sys.argv[2:3] or ["100"])[0]), sys.argv[3:]
    names = [name for name in {"alarms": ALARMS, "power": POWER, "files": FILES}[kind] if not wanted or name in wanted]
    jobs = [(kind, name, seed) for name in names for seed in range(number)]
    shown = dict.fromkeys(names, 0)
    verdicts: dict[str, dict[str, int]] = {name: {} for name in names}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for name, leaks, verdict in pool.imap_unordered(one, jobs):
            shown[name] += bool(leaks)
            verdicts[name][verdict] = verdicts[name].get(verdict, 0) + 1
            if bool(leaks) == (kind == "alarms"):
                print(name, "|", "; ".join(leaks) or "nothing shown", flush=True)
    for name, count in shown.items():
        low, high = wilson(count / number, number)
        print(f"{name:36} leak shown in {count} of {number} ({low:.1%} to {high:.1%}); verdicts {verdicts[name]}")
    print("RESULT " + json.dumps({"kind": kind, "seeds": number, **{name: count / number for name, count in shown.items()}}))


if __name__ == "__main__":
    main()
