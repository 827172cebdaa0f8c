"""Attackers who know other attributes of the record, and subgroups in which protection may be worse than on average."""

import numpy as np
from scipy import special

from pass_core.attacks.base import AttackTask
from pass_core.attacks.logistic_regression import ATTACK, LogisticRegressionConfig
from pass_core.auditing.exact_attacker import Audited, information, known_pairs
from pass_core.auditing.findings import Evidence, Information, SideInformation, Subgroup
from pass_core.auditing.subject import ReleasedColumn, Subject
from pass_core.auditing.trained_attacks import Attacked
from pass_core.data import Attribute, DoubleArray, IntArray, combinations
from pass_core.statistics.intervals import Estimate
from pass_core.statistics.nag import FLOOR, Scoring, guessed_hits, hits_of, label_entropy
from pass_core.statistics.score_test import Dealing, baseline_shares, hedged, score_test

MOST_SUBGROUPS = 20  # classes of an attribute that subgroups are made of; identities make none
FEWEST_LEARNT = 20  # training records of a known class, from which an attacker learns a rule of its own


def find_conditional(
    audited: Audited, attacked: Attacked
) -> tuple[tuple[Subgroup, ...], tuple[SideInformation, ...], tuple[Evidence, ...]]:
    """How the classes of every other attribute change the figures of this one; and tests of attackers who know them."""
    subject, attribute, rng_for = audited.subject, attacked.attribute, audited.rng_for
    pairs = {known.name for private, known in known_pairs(subject) if private.name == attribute.name}
    subgroups: list[Subgroup] = []
    side: list[SideInformation] = []
    evidence: list[Evidence] = []
    for known in subject.known():
        if known.name in (attribute.name, *subject.combines.get(attribute.name, ())):
            continue
        exact_hits, each = None, dict[int, Information]()
        if known.name in pairs:  # the attacker learns a rule for every known class: the exact one, or a linear one without a pool
            whole = None
            if audited.passed is not None:
                exact_hits = hits = audited.passed.known_hits[attribute.name, known.name]
                before = np.log(np.maximum(_baseline(subject, attribute, known), FLOOR))
                scores = audited.passed.known_scores[attribute.name, known.name] - before
                whole, each = information(audited, attribute, rng_for("null", attribute.name, known.name), known)
            else:
                guessed = _linear(subject, attribute, known, rng_for("knowing", attribute.name, known.name))
                hits = hits_of(guessed, attacked.scoring.labels)
                scores = hedged(guessed, _baseline(subject, attribute, known))
            side.append(_side_information(subject, attacked, known, hits, whole))
            if subject.assumes(known):
                evidence.append(_knowing(audited, attacked, known, scores))
        if known.n_classes <= MOST_SUBGROUPS:
            subgroups += _subgroups(audited, attacked, known, exact_hits, each)
            if attribute.role == "private":
                evidence += _subgroup_evidence(audited, attacked, known)
    return tuple(subgroups), tuple(side), tuple(evidence)


def _baseline(subject: Subject, attribute: Attribute, known: Attribute) -> DoubleArray:
    """(m, classes) what an attacker knows before seeing the release; a published column is part of the release."""
    if subject.published(known):
        return subject.baseline(attribute)
    train, test = _given(subject, attribute, known)
    return baseline_shares(subject.labels("train", attribute.name), attribute.n_classes, train, test)


def _given(subject: Subject, attribute: Attribute, known: Attribute) -> tuple[IntArray, IntArray]:
    """The combinations of useful classes and the known class."""
    parts = [np.concatenate(subject.given(attribute))]
    parts.append(np.concatenate([subject.labels("train", known.name), subject.labels("test", known.name)]))
    both = combinations(parts)
    return both[: len(subject.train)], both[len(subject.train) :]


def _linear(subject: Subject, attribute: Attribute, known: Attribute, rng: np.random.Generator) -> DoubleArray:
    """(m, classes) probabilities by one logistic regression per known class; its shares where there is little to learn from."""
    train, test = subject.released_train(0), subject.released_test
    labels, side = subject.labels("train", attribute.name), subject.labels("train", known.name)
    test_side = subject.labels("test", known.name)
    found = baseline_shares(labels, attribute.n_classes, side, test_side)
    for label in np.unique(test_side):
        inside, rows = np.flatnonzero(side == label), np.flatnonzero(test_side == label)
        if len(inside) < FEWEST_LEARNT or len(np.unique(labels[inside])) < 2:
            continue
        task = AttackTask(
            released_train=lambda _, inside=inside: train[inside],  # type: ignore[misc]
            train_labels=labels[inside],
            n_classes=attribute.n_classes,
        )
        found[rows] = ATTACK.learn(task, LogisticRegressionConfig(), rng, lambda _: None).probabilities(test[rows])
    return found


def _knowing(audited: Audited, attacked: Attacked, known: Attribute, scores: DoubleArray) -> Evidence:
    """The test of an attacker who knows an attribute, or uses a published column, whichever of its values it reads."""
    subject, attribute, labels = audited.subject, attacked.attribute, attacked.scoring.labels
    rng, given = audited.rng_for("chance knowing", attribute.name, known.name), subject.given(attribute)[1]
    how = f"{attribute.name} when {known.name} is known"
    if subject.published(known):
        how = f"{attribute.name} from the release and the published column {known.name}"
        column = next(one for one in subject.columns if one.attribute.name == known.name)
        alone = baseline_shares(
            subject.labels("train", attribute.name), attribute.n_classes, column.train_values, column.test_values
        )
        scores = np.logaddexp(scores, hedged(alone, subject.baseline(attribute))) - np.log(2)
    else:
        given = _given(subject, attribute, known)[1]
    return Evidence(
        attribute=attribute.name,
        about=how,
        population=subject.population,
        test=score_test(scores, labels, Dealing.of(labels, subject.dependent(), given), rng),
        entropy=label_entropy(labels),
        required=subject.names(known),
    )


def _side_information(
    subject: Subject, attacked: Attacked, known: Attribute, hits: DoubleArray, whole: Information | None
) -> SideInformation:
    """With a column published beside the record, the worse of what its value reveals alone and what both reveal together."""
    attribute, scoring = attacked.attribute, attacked.scoring
    column = next((one for one in subject.columns if one.attribute.name == known.name), None)
    if column is None:
        guesses = _baseline(subject, attribute, known).argmax(axis=1)
        alone = guessed_hits(scoring.labels, guesses)
        nag = _gain(scoring, hits, alone)
    else:
        alone = _lookup_hits(column, subject.labels("train", attribute.name), scoring)
        hits = alone if alone.mean() > hits.mean() else hits
        nag = scoring.nag(hits) if scoring.readable else None
    return SideInformation(
        known=known.name,
        released=column is not None,
        guess=float(alone.mean()),
        accuracy=scoring.accuracy(hits),
        nag=nag,
        information=whole,
        judged=subject.assumes(known),
    )


def _lookup_hits(column: ReleasedColumn, labels: IntArray, scoring: Scoring) -> DoubleArray:
    """Hits of guessing the commonest class among training records of the same value; for a new value, the commonest of all."""
    guesses = baseline_shares(labels, int(labels.max()) + 1, column.train_values, column.test_values).argmax(axis=1)
    return np.asarray((guesses == scoring.labels).astype(np.float64))


def _gain(scoring: Scoring, hits: DoubleArray, guessed: DoubleArray) -> Estimate | None:
    """NAG above a guess that differs from record to record; None where originals add nothing to it."""
    span = float(scoring.control.mean() - guessed.mean())
    if span <= 0:
        return None
    value = float(hits.mean() - guessed.mean()) / span
    influence = scoring.blocks.centred(hits - guessed - value * (scoring.control - guessed), scoring.labels) / span
    ends = scoring.blocks.spread(influence).around(value)
    return Estimate(max(0.0, value), max(0.0, ends.low), max(0.0, ends.high))


def _groups(audited: Audited, known: Attribute) -> list[tuple[int, IntArray]]:
    """Classes of a known attribute with their test records, where they are enough."""
    side = audited.subject.labels("test", known.name)
    rows = ((label, np.flatnonzero(side == label)) for label in range(known.n_classes))
    return [(label, inside) for label, inside in rows if len(inside) >= audited.depth.subgroup_records]


def _subgroups(
    audited: Audited, attacked: Attacked, known: Attribute, exact_hits: DoubleArray | None, each: dict[int, Information]
) -> list[Subgroup]:
    subject, private = audited.subject, attacked.attribute.role == "private"
    guesses = _baseline(subject, attacked.attribute, known).argmax(axis=1) if private else None
    # All figures of subgroups are judged together: one attack of many is right in one subgroup of many by chance.
    among = len(attacked.hits) * sum(min(one.n_classes, MOST_SUBGROUPS) for one in subject.known()) if private else 1
    found = []
    for label, rows in _groups(audited, known):
        scoring = attacked.scoring.on(rows, subject.dependent(), None if guesses is None else guesses[rows])
        # An attack may succeed only in here; utility is that of one model, whichever subgroup it is used on.
        counts = attacked.hits[attacked.strongest(rows if private else None)]
        exact = exact_hits[rows] if scoring.readable and exact_hits is not None else None
        found.append(
            Subgroup(
                attribute=known.name,
                label=label,
                records=len(rows),
                persons=len(np.unique(subject.test.persons[rows])),
                nag=scoring.nag(counts[rows], among) if scoring.readable else None,
                exact_nag=None if exact is None else scoring.nag(exact, among),
                information=each.get(label),
                trained_on_released=scoring.nag(attacked.downstream[rows]) if scoring.readable and not private else None,
            )
        )
    return found


def _subgroup_evidence(audited: Audited, attacked: Attacked, known: Attribute) -> list[Evidence]:
    """Tests of all attacks together within every class of another attribute."""
    subject, attribute = audited.subject, attacked.attribute
    mixed = special.logsumexp(np.stack(list(attacked.scores.values())), axis=0) - np.log(len(attacked.scores))
    found = []
    for label, rows in _groups(audited, known):
        labels = attacked.scoring.labels[rows]
        if len(np.unique(labels)) < 2:
            continue
        rng = audited.rng_for("chance within", attribute.name, known.name, str(label))
        found.append(
            Evidence(
                attribute=attribute.name,
                about=f"{attribute.name} in a subgroup of {known.name}",
                population=subject.population,
                test=score_test(mixed[rows], labels, subject.dealing(attribute, rows), rng),
                entropy=label_entropy(labels),
            )
        )
    return found
