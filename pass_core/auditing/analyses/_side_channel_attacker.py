"""The attacker who reads everything that is received: several readers of one matrix, mixed as they do on held-out records.

Trees and linear models read all numbers together, with products of two of them where those predict the class: a secret may be the
exclusive or of two harmless columns. Others look up the classes of training records in rows nearby, or with the same values.
"""

import heapq
import itertools
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from pass_core.attacks._flat import flat_features, principal_components
from pass_core.auditing.subject import Received, Subject
from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, one_hot
from pass_core.statistics.score_test import baseline_shares

MOST_RECORDS = 20_000  # that the attacker learns from
HELD_OUT = 0.2  # of the training records: they decide how much each reader counts
TREES = 400  # over all classes,
ITERATIONS = (8, 40)  # in at least and at most so many rounds
MOST_BOOSTED = 50  # classes for which trees are grown
FEW_CLASSES = 10  # for which payloads are summarised and products are sought
COMPONENTS = 32  # of payloads
MOST_PRODUCTS = 16
SURE = 5.5  # deviations of a product before it is used: ten thousand pairs reach it by chance once in a thousand cases
WINDOWS = (1, 8)  # training records on either side
MOST_LOOKUPS = 8
MOST_SETS = 2000  # of two or three numbers that are tried together
LOOKED_UP = ("columns:", "files:", "keys:")
JOINT = (re.compile("^columns: value of"), re.compile("^columns: .* modulo [0-9]+$"))
COUNTERS = ("row order: number of the row", "keys: number at the end")
CYCLES = range(2, 257)
MOST_CYCLES = 2  # of a counter
FLOOR = 1e-9
POSITION = "row order: position"  # from 0 to 1

Model = Callable[[DoubleArray | FloatArray], DoubleArray]  # (n, numbers) -> (n, classes)
Predict = Callable[[DoubleArray, DoubleArray], DoubleArray]  # numbers, baseline -> (n, classes)


@dataclass(frozen=True, slots=True)
class Attacker:
    """Readers with what each of them counts."""

    readers: tuple[Predict, ...]
    weights: DoubleArray
    summary: Callable[[FloatArray], DoubleArray]  # of payloads

    def probabilities(self, numbers: DoubleArray, payloads: FloatArray, baseline: DoubleArray) -> DoubleArray:
        """(n, classes) of records with these numbers and payloads."""
        with threadpool_limits(1):
            seen = np.concatenate([numbers, self.summary(payloads)], axis=1)
            return np.asarray(
                sum(w * read(seen, baseline) for w, read in zip(self.weights, self.readers, strict=True) if w > 1e-4)
            )


def learn(subject: Subject, received: Received, attribute: Attribute, rng: np.random.Generator) -> Attacker:
    """Learns on the training records; the baseline is what the useful classes reveal."""
    rows: IntArray = np.sort(rng.permutation(len(subject.train))[:MOST_RECORDS])
    # A person's records stay together where the test records are of other people.
    units = subject.train.persons[rows] if subject.population == "new people" else rows
    names = rng.permutation(np.unique(units))
    held = np.isin(units, names[: max(1, round(HELD_OUT * len(names)))])
    if held.all():
        held = rng.random(len(rows)) < HELD_OUT
    labels, given = subject.labels("train", attribute.name)[rows], subject.given(attribute)[0][rows]
    fit, check = np.flatnonzero(~held), np.flatnonzero(held)
    baseline = baseline_shares(labels[fit], attribute.n_classes, given[fit], given)
    with threadpool_limits(1):  # so small models only wait for threads
        summary, own = _payload_summary(received.payloads[0][rows], labels, fit, attribute.n_classes, rng)
        seen = np.concatenate([received.train[rows], own], axis=1)
        task = _Task(received.names, seen[fit], labels[fit], baseline[fit], attribute.n_classes, rng)
        readers = (lambda _, known: known, *task.models(), *task.neighbours(received.axes), *task.lookups(), *task.cycles())
        found = np.stack([read(seen[check], baseline[check])[np.arange(len(check)), labels[check]] for read in readers], axis=1)
    return Attacker(readers, _weights(found), summary)


def _weights(likelihoods: DoubleArray) -> DoubleArray:
    """Of a mixture, by expectation maximisation on held-out records (n, readers)."""
    weights = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(200):
        shares = weights * np.maximum(likelihoods, FLOOR)
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.asarray(weights)


def _payload_summary(
    payloads: FloatArray, labels: IntArray, fit: IntArray, n_classes: int, rng: np.random.Generator
) -> tuple[Callable[[FloatArray], DoubleArray], DoubleArray]:
    """Log-probabilities of a linear attack, so that a payload that leaks in some rows only is read together with their place.

    Each half of the records is summarised by a model of the other half; other records by the mean of both models.
    """
    flat, half = flat_features(payloads), rng.permutation(len(fit)) % 2
    if n_classes > FEW_CLASSES or any(len(np.unique(labels[fit[half == k]])) < 2 for k in (0, 1)):
        return (lambda others: np.empty((len(others), 0))), np.empty((len(payloads), 0))
    prepare = principal_components(flat[fit], COMPONENTS, rng)
    models = [_linear(prepare(flat[fit[half == k]]), labels[fit[half == k]], n_classes, strength=0.1) for k in (0, 1)]

    def logs(vectors: FloatArray) -> list[DoubleArray]:
        found = [np.log(np.maximum(model(prepare(vectors)), FLOOR)) for model in models]
        return [each[:, 1:] - each[:, :1] for each in found]

    one, other = logs(flat)
    own = (one + other) / 2
    own[fit] = np.where((half == 0)[:, None], other[fit], one[fit])
    return (lambda others: np.asarray(sum(logs(flat_features(others))) / 2)), own


def _linear(matrix: DoubleArray | FloatArray, labels: IntArray, n_classes: int, strength: float) -> Model:
    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=50, tol=1e-3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an attack is as long as its budget
        model.fit(matrix, labels)
    return lambda others: _spread(model.predict_proba(others), model.classes_, n_classes)


def _spread(found: DoubleArray, classes: IntArray, n_classes: int) -> DoubleArray:
    """Probabilities with a column for classes that training never saw, too."""
    every: DoubleArray = np.zeros((len(found), n_classes))
    every[:, classes] = found
    return every


@dataclass(frozen=True, slots=True)
class _Task:
    """Training records as the readers see them."""

    names: tuple[str, ...]  # of the first numbers; the summary of the payload follows
    seen: DoubleArray  # (n, f)
    labels: IntArray
    baseline: DoubleArray  # (n, classes)
    n_classes: int
    rng: np.random.Generator

    def models(self) -> list[Predict]:
        """Linear models and trees, of fewer and of more rounds, on all numbers, products and the baseline."""
        if len(np.unique(self.labels)) < 2:
            return []
        products = self._products()

        def known(baseline: DoubleArray) -> DoubleArray:
            return np.log(np.maximum(baseline, FLOOR)) if self.n_classes <= MOST_BOOSTED else np.empty((len(baseline), 0))

        def placed(seen: DoubleArray, baseline: DoubleArray) -> DoubleArray:
            return np.concatenate([self._by_tenth(seen), known(baseline)], axis=1)

        def design(seen: DoubleArray, baseline: DoubleArray) -> DoubleArray:
            return np.concatenate([seen, products(seen), placed(seen, baseline)], axis=1)

        matrix, few = design(self.seen, self.baseline), placed(self.seen, self.baseline)
        linear = _linear(matrix, self.labels, self.n_classes, strength=0.003)
        found: list[Predict] = [lambda seen, baseline: linear(design(seen, baseline))]
        if few.shape[1]:
            local = _linear(few, self.labels, self.n_classes, strength=0.1)
            found.append(lambda seen, baseline: local(placed(seen, baseline)))
        if self.n_classes <= MOST_BOOSTED:
            rounds = int(np.clip(TREES // self.n_classes, *ITERATIONS))
            trees = [self._trees(matrix, number) for number in (max(1, rounds // 5), rounds)]
            found += [lambda seen, baseline, grown=grown: grown(design(seen, baseline)) for grown in trees]  # type: ignore[misc]
        return found

    def _trees(self, matrix: DoubleArray, rounds: int) -> Model:
        settings = {"learning_rate": 0.15, "max_leaf_nodes": 15, "early_stopping": False, "max_features": 0.5}
        seed = int(self.rng.integers(2**31))
        trees = HistGradientBoostingClassifier(max_iter=rounds, random_state=seed, **settings).fit(matrix, self.labels)
        return lambda others: _spread(trees.predict_proba(others), trees.classes_, self.n_classes)

    def _by_tenth(self, seen: DoubleArray) -> DoubleArray:
        """The summary of the payload in every tenth of the rows, and 0 in the others: a part of a release may leak."""
        summary = seen[:, len(self.names) :]
        if POSITION not in self.names:
            return np.empty((len(seen), 0))
        tenths = np.clip((seen[:, self.names.index(POSITION)] * 10).astype(np.int64), 0, 9)
        return np.asarray((one_hot(tenths, 10)[:, :, None] * summary[:, None]).reshape(len(seen), -1))

    def _products(self) -> Callable[[DoubleArray], DoubleArray]:
        """Products of two numbers, each as above or below its middle, that predict a class beyond doubt."""
        middle = (self.seen.min(axis=0) + self.seen.max(axis=0)) / 2
        several = np.array([len(np.unique(column)) > 2 for column in self.seen.T], dtype=bool)
        middle[several] = np.median(self.seen[:, several], axis=0)
        signs = (self.seen > middle).astype(np.float32)
        centred = signs - signs.mean(axis=0)
        spread = np.sqrt((centred**2).T @ centred**2)
        best = np.zeros((self.seen.shape[1],) * 2)
        common = np.argsort(-np.bincount(self.labels))[:FEW_CLASSES]
        for label in common:
            one = (self.labels == label) - (self.labels == label).mean()
            scores = np.abs(centred.T @ (centred * one[:, None].astype(np.float32))) / np.maximum(spread * one.std(), FLOOR)
            best = np.maximum(best, np.where(spread > 5, scores, 0))
        first, second = np.triu_indices(len(best), 1)
        strongest = np.argsort(-best[first, second])[:MOST_PRODUCTS]
        strongest = strongest[best[first, second][strongest] > SURE]
        a, b = first[strongest], second[strongest]
        return lambda seen: ((seen[:, a] > middle[a]) != (seen[:, b] > middle[b])).astype(np.float64)

    def neighbours(self, axes: tuple[str, ...]) -> list[Predict]:
        """Classes of the nearest training records in an order that both share."""
        return [self._near(self.names.index(axis), window) for axis, window in itertools.product(axes, WINDOWS)]

    def _near(self, place: int, window: int) -> Predict:
        order = np.argsort(self.seen[:, place], kind="stable")
        reference, classes = self.seen[order, place], one_hot(self.labels[order], self.n_classes)
        sums: DoubleArray = np.concatenate([np.zeros((1, self.n_classes)), np.cumsum(classes, axis=0)])

        def near(seen: DoubleArray, baseline: DoubleArray) -> DoubleArray:
            middle = np.searchsorted(reference, seen[:, place])
            low, high = np.maximum(middle - window, 0), np.minimum(middle + window, len(reference))
            return np.asarray((sums[high] - sums[low] + baseline) / (high - low + 1)[:, None])

        return near

    def lookups(self) -> list[Predict]:
        """Classes of training records with the same value, or the same two or three values, of columns, files and keys."""
        ranks = {k: np.unique(column, return_inverse=True)[1] for k, column in enumerate(self.seen.T[: len(self.names)])}
        counts, most = [int(ranks[k].max()) + 1 for k in ranks], len(self.seen) // 4
        single = [(k,) for k, name in enumerate(self.names) if name.startswith(LOOKED_UP) and 2 < counts[k] <= most]
        joint = [k for k, name in enumerate(self.names) if any(form.search(name) for form in JOINT) and counts[k] > 1]
        sets = itertools.chain(*(itertools.combinations(joint, size) for size in (2, 3)))
        few = itertools.islice((chosen for chosen in sets if math.prod(counts[k] for k in chosen) <= most), MOST_SETS)

        def dependence(chosen: tuple[int, ...]) -> float:
            return self._dependence(np.ravel_multi_index([ranks[k] for k in chosen], [counts[k] for k in chosen]))

        return [self._lookup(chosen) for chosen in heapq.nlargest(MOST_LOOKUPS, [*single, *few], key=dependence)]

    def cycles(self) -> list[Predict]:
        """Classes of training records at the same place of a cycle: several sources wrote rows in turn, or keys were dealt so."""
        return [read for name in COUNTERS if name in self.names for read in self._turns(self.names.index(name))]

    def _turns(self, place: int) -> list[Predict]:
        own = self.seen[:, place].astype(np.int64)
        lengths = [length for length in CYCLES if length <= len(own) // 8]
        strongest = heapq.nlargest(MOST_CYCLES, lengths, key=lambda length: self._dependence(own % length))
        return [self._turn(place, length) for length in strongest]

    def _turn(self, place: int, length: int) -> Predict:
        own = self.seen[:, place].astype(np.int64) % length
        return lambda seen, _: baseline_shares(self.labels, self.n_classes, own, seen[:, place].astype(np.int64) % length)

    def _codes(self, chosen: tuple[int, ...], seen: DoubleArray) -> IntArray:
        """A number per combination of values that training has; another one for all others."""
        codes = np.zeros(len(seen), dtype=np.int64)
        for k in chosen:
            values = np.unique(self.seen[:, k])
            places = np.minimum(np.searchsorted(values, seen[:, k]), len(values) - 1)
            codes = codes * (len(values) + 1) + np.where(values[places] == seen[:, k], places, len(values))
        return codes

    def _dependence(self, values: IntArray) -> float:
        """How far a table of values and classes is from independence: chi-square in deviations."""
        codes = np.unique(values, return_inverse=True)[1]
        table = np.zeros((int(codes.max()) + 1, self.n_classes))
        np.add.at(table, (codes, self.labels), 1.0)
        table = table[:, table.sum(axis=0) > 0]
        expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
        degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
        return float((((table - expected) ** 2 / expected).sum() - degrees) / np.sqrt(2 * max(degrees, 1)))

    def _lookup(self, chosen: tuple[int, ...]) -> Predict:
        own = self._codes(chosen, self.seen)
        return lambda seen, _: baseline_shares(self.labels, self.n_classes, own, self._codes(chosen, seen))
