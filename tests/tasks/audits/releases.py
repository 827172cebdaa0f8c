"""Secrets beside the payload, planted in files that a user audits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pass_core.attacks import logistic_regression
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.thresholds import Depth
from pass_core.data import IntArray
from pass_core.randomness import stream
from tasks.audits.pair import audit_pair
from tasks.lakes.pair import PairColumns
from tasks.running.progress import silent
from tasks.sections.audit import AuditConfig
from tasks.sections.dataset import Roles

N = 8000
CONFIG = AuditConfig(
    attacks={"logistic_regression": logistic_regression.LogisticRegressionConfig()},
    depth=Depth(fresh_draws=1, permutations=20, bundles=(1,), draws=(1,), gallery=100),
)
COLUMNS = PairColumns(roles=Roles(private=("s",), useful=("u",)), key="key")


class FilesRelease:
    """A private release: random donors of the same useful class, shuffled, with fresh keys; then a mechanism spoils it."""

    def __init__(self, folder: Path, seed: int, n: int = N) -> None:
        rng = self.rng = stream(seed, "release")
        self.folder, self.n = folder, n
        self.s, self.u = rng.integers(0, 2, n), rng.integers(0, 3, n)
        self.vectors = np.concatenate([self._noisy(np.stack([self.s, self.u], axis=1)), rng.normal(size=(n, 4))], axis=1)
        donors = np.stack([rng.integers(0, 2, n), self.u], axis=1)
        self.payload = np.concatenate([self._noisy(donors), rng.normal(size=(n, 4))], axis=1)
        self.keys: IntArray = rng.permutation(10 * n)[:n]
        self.order: IntArray = rng.permutation(n)  # record of every released row
        self.extra: dict[str, Any] = {}
        self.kept = np.ones(n, dtype=bool)
        self.files: IntArray | None = None
        self.group_rows = n

    def _noisy(self, classes: IntArray) -> np.ndarray:
        return np.asarray(classes + self.rng.normal(0, 0.2, classes.shape))

    def write(self) -> tuple[Path, Path]:
        """The table of originals, and the released one."""
        kind = pa.list_(pa.float64())
        originals = {"s": self.s.astype(str), "u": self.u.astype(str), "key": self.keys}
        table = pa.table({**originals, "payload": pa.array(self.vectors.tolist(), kind)})
        pq.write_table(table, self.folder / "original.parquet")
        columns = {"key": self.keys, **self.extra, "payload": pa.array(self.payload.tolist(), kind)}
        rows = self.order[self.kept[self.order]]
        released, target = pa.table(columns).take(pa.array(rows)), self.folder / "released"
        target.mkdir()
        for number in np.unique(files := np.zeros(self.n, dtype=int) if self.files is None else self.files):
            own = released.filter(pa.array(files[rows] == number))
            pq.write_table(own, target / f"part-{number}.parquet", row_group_size=self.group_rows)
        return self.folder / "original.parquet", target

    def audit(self) -> dict[str, Any]:
        original, released = self.write()
        return audit_pair(original, [released], COLUMNS, config=CONFIG, recipient=Recipient(), seed=7, progress=silent)

    def placed(self, wanted: IntArray, values: np.ndarray) -> None:
        """Orders rows so that the record at position i has the wanted value, as far as there are enough."""
        left = {v: list(self.rng.permutation(np.flatnonzero(values == v))) for v in np.unique(values)}
        order = [left[v].pop() if left[v] else -1 for v in wanted]
        rest = iter(self.rng.permutation([k for of in left.values() for k in of]).tolist())
        self.order = np.array([k if k >= 0 else next(rest) for k in order])


def sorted_by_class(r: FilesRelease) -> None:
    r.order = np.lexsort((r.rng.random(r.n), r.s))


def parity(r: FilesRelease) -> None:
    r.placed(np.arange(r.n) % 2, r.s)


def modulo(r: FilesRelease) -> None:
    r.placed(np.isin(np.arange(r.n) % 7, (0, 2, 3)).astype(int), r.s)


def bits_of_position(r: FilesRelease) -> None:
    r.placed(np.isin(np.arange(r.n) % 8, (0, 3, 5, 6)).astype(int), r.s)


def in_turn(r: FilesRelease) -> None:
    """Thirteen sources wrote their rows in turn, six of them those of one class."""
    r.placed(np.isin(np.arange(r.n) % 13, (0, 3, 4, 7, 9, 10)).astype(int), r.s)


def runs(r: FilesRelease) -> None:
    """Rows come in runs of four of one class, in random order."""
    r.placed(np.repeat(r.rng.integers(0, 2, r.n // 4), 4), r.s)


def neighbours(r: FilesRelease) -> None:
    """Of two rows that follow each other, the larger payload is that of class 1, where the classes differ."""
    pairs = r.order.reshape(-1, 2)
    order = pairs[np.arange(len(pairs))[:, None], np.argsort(r.s[pairs], axis=1)]
    larger = r.payload[order[:, 0], 0] > r.payload[order[:, 1], 0]
    swap = larger & (r.s[order[:, 0]] != r.s[order[:, 1]])
    r.payload[order[swap, 0]], r.payload[order[swap, 1]] = r.payload[order[swap, 1]], r.payload[order[swap, 0]]
    r.order = r.rng.permuted(order, axis=1).reshape(-1)


def last_tenth(r: FilesRelease) -> None:
    """The last tenth of the rows keep the class in the payload."""
    last = r.order[-r.n // 10 :]
    r.payload[last, 0] = r._noisy(r.s[last])


def last_tenth_order(r: FilesRelease) -> None:
    last = r.n // 10
    r.order[-last:] = r.order[-last:][np.argsort(r.s[r.order[-last:]], kind="stable")]


def key_parity(r: FilesRelease) -> None:
    r.keys = 2 * r.keys + r.s


def key_range(r: FilesRelease) -> None:
    r.keys = r.keys + 10 * r.n * r.s


def two_columns(r: FilesRelease) -> None:
    a = r.rng.integers(0, 2, r.n)
    r.extra = {"a": a, "b": np.array(["no", "yes"])[a ^ r.s]}


def two_columns_modulo(r: FilesRelease) -> None:
    a = r.rng.integers(0, 5, r.n)
    r.extra = {"a": a, "b": (2 * r.s + r.rng.integers(0, 2, r.n) - a) % 5}


def three_columns(r: FilesRelease) -> None:
    """The exclusive or of three flags."""
    a, b = r.rng.integers(0, 2, (2, r.n))
    r.extra = {"a": a, "b": np.array(["x", "y"])[b], "c": np.array(["no", "yes"])[a ^ b ^ r.s]}


def remainders(r: FilesRelease) -> None:
    """The difference of two numbers' remainders by three."""
    a, b = r.rng.integers(0, 1000, (2, r.n))
    r.extra = {"a": 3 * a + (b + r.s) % 3, "b": b}


def weekday(r: FilesRelease) -> None:
    day = 7 * r.rng.integers(0, 300, r.n) + np.where(r.s == 1, r.rng.integers(0, 3, r.n), r.rng.integers(3, 7, r.n))
    r.extra = {"at": pa.array(86_400 * day + r.rng.integers(0, 86_400, r.n), pa.timestamp("s"))}


def _notes(r: FilesRelease, phrases: tuple[str, str]) -> list[str]:
    """Texts that are all different, with one of two phrases of the same length and letters in the middle."""
    numbers = r.rng.integers(2**28, 2**32, (r.n, 2)).tolist()
    return [f"{first:08x} {phrases[s]} {second:08x}" for (first, second), s in zip(numbers, r.s, strict=True)]


def synonyms(r: FilesRelease) -> None:
    r.extra = {"note": _notes(r, ("alpha", "gamma"))}


def word_order(r: FilesRelease) -> None:
    r.extra = {"note": _notes(r, ("red then blue", "blue then red"))}


def spaces(r: FilesRelease) -> None:
    words = np.array(["red", "green", "blue"])[r.rng.integers(0, 3, r.n)]
    r.extra = {"note": [f"{word} " if s else word for word, s in zip(words, r.s, strict=True)]}


def case(r: FilesRelease) -> None:
    words = [f"{k:x}" + "k" for k in r.rng.integers(0, 2**40, r.n)]
    r.extra = {"note": [word.upper() if s else word for word, s in zip(words, r.s, strict=True)]}


def unicode(r: FilesRelease) -> None:
    words = np.array(["caf\u00e9", "th\u00e9"])[r.rng.integers(0, 2, r.n)]
    r.extra = {"note": [w.replace("\u00e9", "e\u0301") if s else w for w, s in zip(words, r.s, strict=True)]}


def low_bit(r: FilesRelease) -> None:
    """Invisible in float32."""
    bits = r.payload[:, 3].view(np.uint64)
    r.payload[:, 3] = ((bits & ~np.uint64(1)) | r.s.astype(np.uint64)).view(np.float64)


def middle_bit(r: FilesRelease) -> None:
    """The ninth bit from below."""
    bits = r.payload[:, 3].view(np.uint64)
    r.payload[:, 3] = ((bits & ~np.uint64(256)) | (r.s.astype(np.uint64) << np.uint64(8))).view(np.float64)


def spread_bits(r: FilesRelease) -> None:
    """The parity of the lowest bits of all numbers."""
    bits = np.ascontiguousarray(r.payload).view(np.uint64)
    bits[:, 0] ^= (np.bitwise_xor.reduce(bits, axis=1) & np.uint64(1)) ^ r.s.astype(np.uint64)
    r.payload = bits.view(np.float64)


def decimals(r: FilesRelease) -> None:
    r.payload[:, 4] = (2 * np.rint(r.payload[:, 4] * 500) + r.s) / 1000


def files(r: FilesRelease) -> None:
    """Eight files, four of each class."""
    r.files = 2 * r.rng.integers(0, 4, r.n) + r.s


def row_groups(r: FilesRelease) -> None:
    """Row groups of fifty rows, of one class each, in random order."""
    r.group_rows = 50
    r.placed(np.repeat(r.rng.integers(0, 2, r.n // 50), 50), r.s)


def missing(r: FilesRelease) -> None:
    r.kept = (r.s == 0) | (r.rng.random(r.n) > 0.1)


Spoil = Callable[[FilesRelease], None]
PLANTED: dict[Spoil, str] = {  # and where the audit must say that it is
    **dict.fromkeys((sorted_by_class, parity, modulo, bits_of_position, runs, neighbours), "row order"),
    **dict.fromkeys((in_turn, last_tenth, last_tenth_order), "row order"),
    **dict.fromkeys((key_parity, key_range), "keys"),
    **dict.fromkeys((two_columns, two_columns_modulo, three_columns, remainders, weekday), "columns"),
    **dict.fromkeys((spaces, case, unicode, synonyms, word_order), "text"),
    **dict.fromkeys((low_bit, middle_bit, spread_bits, decimals), "low bits"),
    **dict.fromkeys((files, row_groups), "files"),
    missing: "leaves out",
}


def leaks_of(document: dict[str, Any]) -> list[str]:
    """The sentences of an audit's checks that show a leak."""
    return [check["sentence"] for check in document["checks"] if check["outcome"] == "leak shown"]
