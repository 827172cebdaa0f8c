"""Choosing the pool of donors from the training records (pure: indices out).

Uniformly, with given shares of an attribute's classes (`target`), or with the data's own shares (`stratify`). In each case,
`only` limits who may be a donor, and each useful class that occurs in training has a donor.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np

from pass_core.data import IntArray
from pass_core.errors import ConfigError, DataError

Forbidden = Literal["none", "self", "same_person"]
Cells = Mapping[tuple[int, ...], Fraction]  # a class of each attribute -> share of the donors

ROUNDING = Fraction(1, 10**6)  # 1/3 written with seven digits is meant as a third
DONORS = 1024  # by default
LISTED = 20  # classes that a message lists


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """How many training records become donors, drawn without replacement; which ones, and which donors are excluded."""

    donors: int | None = None  # null: 1024, or half of the training records where these are fewer than 2048
    forbid: Forbidden = "none"  # donors excluded for a record: itself, or all of its own person
    target: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # attribute -> class -> share; others share the rest
    stratify: tuple[str, ...] = ()  # attributes whose combinations of classes keep their share of the training records
    only: Mapping[str, str] = field(default_factory=dict)  # column -> class that every donor has, such as consent: "yes"

    def __post_init__(self) -> None:
        if self.donors is not None and self.donors < 1:
            raise ConfigError(f"donors: expected at least 1, found {self.donors}")
        if self.target and self.stratify:
            raise ConfigError("target: expected without `stratify`: one gives shares, the other takes the data's; remove one")
        if twice := sorted({name for name in self.stratify if self.stratify.count(name) > 1}):
            raise ConfigError(f"stratify: expected every attribute once, found several times: {', '.join(twice)}")
        for name, shares in self.target.items():
            if not shares:
                raise ConfigError(f"target: expected the share of at least one class of {name!r}, found none; name one")
            if wrong := [share for share in shares.values() if not 0 <= share <= 1]:
                raise ConfigError(f"target: expected shares of {name!r} between 0 and 1, found {wrong[0]}")
            if _total(shares) > 1 + ROUNDING:
                raise ConfigError(f"target: expected shares of {name!r} that sum to 1, found {float(_total(shares)):g}")


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute of the training records, whatever its role."""

    classes: tuple[str, ...]
    labels: IntArray
    shown: tuple[str, ...]  # the classes as messages may name them: a class of a single person is shown as a number


def sample_pool(
    columns: Mapping[str, Column], useful: tuple[str, ...], n_records: int, config: PoolConfig, rng: np.random.Generator
) -> IntArray:
    """Sorted indices of the donors. A useful class without any donor is a DataError: L_U would be infinite."""
    allowed = _allowed(columns, n_records, config.only)
    n_donors = config.donors or max(1, min(DONORS, len(allowed) // 2))
    if n_donors > len(allowed):
        barred = f", of {n_records}, that pool.only allows" if config.only else ""
        raise DataError(f"pool.donors: expected at most the {len(allowed)} training records{barred}, found {n_donors}; lower it")
    if config.target or config.stratify:
        donors = _draw(columns, n_donors, n_records, allowed=allowed, config=config, rng=rng)
    else:
        donors = allowed[rng.choice(len(allowed), size=n_donors, replace=False)]
    given = "give every class a share in pool.target, or raise pool.donors"
    advice = given if config.target else "raise pool.donors or change the seed"
    for name in useful:
        labels = columns[name].labels
        missing = np.setdiff1d(labels, labels[donors])
        if len(missing):
            excluded = len(np.setdiff1d(missing, labels[allowed]))
            raise DataError(
                f"pool: expected a donor of each class, found none for {len(missing)} class(es) of useful attribute {name!r}: "
                + (f"pool.only allows no record of {excluded} of them; widen it" if excluded else advice)
            )
    return np.sort(donors)


def apportion(shares: Iterable[Fraction], donors: int, rng: np.random.Generator) -> list[int]:
    """Numbers of donors for shares that sum to 1, by largest remainder; ties are broken at random."""
    quotas = [share * donors for share in shares]
    counts = [math.floor(quota) for quota in quotas]
    by_remainder = sorted(rng.permutation(len(quotas)).tolist(), key=lambda k: counts[k] - quotas[k])
    larger = set(by_remainder[: donors - sum(counts)])
    return [count + (k in larger) for k, count in enumerate(counts)]


def _allowed(columns: Mapping[str, Column], n_records: int, only: Mapping[str, str]) -> IntArray:
    """Positions of the records that may be donors."""
    may = np.ones(n_records, dtype=np.bool_)
    for name, wanted in only.items():
        column = _column(columns, name, "pool.only")
        may &= column.labels == _class_index(column, name, wanted, "pool.only")
    return np.flatnonzero(may).astype(np.int64)


def _target_cells(columns: Mapping[str, Column], config: PoolConfig, n_donors: int) -> Cells:
    """Every combination of classes with the product of its shares: the attributes are independent in the pool."""
    shares = [_class_shares(_column(columns, name, "pool.target"), name, wanted) for name, wanted in config.target.items()]
    combinations = math.prod(len(wanted) for wanted in shares)
    if combinations > n_donors:
        raise ConfigError(
            f"pool.target: expected at least one donor for each of its {combinations} combinations of classes, found "
            f"pool.donors: {n_donors}; raise it or name fewer attributes"
        )
    return {
        tuple(index for index, _ in cell): math.prod((share for _, share in cell), start=Fraction(1))
        for cell in itertools.product(*(wanted.items() for wanted in shares))
    }


def _class_shares(column: Column, name: str, wanted: Mapping[str, float]) -> dict[int, Fraction]:
    """Class -> share. Classes that are not named but occur in training share the rest equally: a target replaces the data's."""
    shares = {_class_index(column, name, text, "pool.target"): _exact(share) for text, share in wanted.items()}
    others = [index for index in np.unique(column.labels).tolist() if index not in shares]
    total = _total(wanted)
    if abs(1 - total) <= ROUNDING:
        shares = {index: share / total for index, share in shares.items()}
    elif others:
        shares |= dict.fromkeys(others, (1 - total) / len(others))
    else:
        found = f"found {float(total):g} and no other class for the rest"
        raise ConfigError(f"pool.target: expected shares of {name!r} that sum to 1, {found}")
    return {index: share for index, share in shares.items() if share}


def _draw(
    columns: Mapping[str, Column], n: int, n_records: int, *, allowed: IntArray, config: PoolConfig, rng: np.random.Generator
) -> IntArray:
    """Draws each combination's share of the `n` donors, uniformly among its records."""
    names = tuple(config.target) or config.stratify
    stacked = np.stack(
        [_column(columns, name, "pool.target" if config.target else "pool.stratify").labels for name in names], axis=1
    )
    found, cell_of, counts = np.unique(stacked, axis=0, return_inverse=True, return_counts=True)
    number = {tuple(cell): k for k, cell in enumerate(found.tolist())}
    if config.target:
        cells = _target_cells(columns, config, n)
    else:  # the data's own shares
        cells = {cell: Fraction(count, n_records) for cell, count in zip(number, counts.tolist(), strict=True)}
    drawn = []
    for cell, wanted in zip(cells, apportion(cells.values(), n, rng), strict=True):
        members = allowed[cell_of.reshape(-1)[allowed] == number.get(cell, -1)]
        if len(members) < wanted:
            classes = " and ".join(f"{name} {columns[name].shown[k]!r}" for name, k in zip(names, cell, strict=True))
            raise DataError(
                f"pool.{'target' if config.target else 'stratify'}: expected {wanted} training record(s) with {classes} to draw "
                f"donors from, found {len(members)}{' that pool.only allows' if config.only else ''}; lower pool.donors"
                f"{' or this share' if config.target else ''}"
            )
        drawn.append(rng.choice(members, size=wanted, replace=False))
    return np.concatenate(drawn)


def _column(columns: Mapping[str, Column], name: str, parameter: str) -> Column:
    if name not in columns:
        raise ConfigError(
            f"{parameter}: unknown attribute {name!r}: expected some of {', '.join(columns)}; "
            "one without a role stays with the records when the data set's section names it under `kept`"
        )
    return columns[name]


def _class_index(column: Column, name: str, wanted: str, parameter: str) -> int:
    if wanted not in column.classes:
        named = [text for text, shown in zip(column.classes, column.shown, strict=True) if text == shown]
        known = ", ".join(named[:LISTED]) + (", …" if len(named) > LISTED else "")
        quotes = " (put yes and no in quotes: YAML reads them as true and false)" if wanted in ("true", "false") else ""
        raise ConfigError(
            f"{parameter}: unknown class {wanted!r} of {name!r}: expected one of "
            f"{known or f'its {len(column.classes)} classes, each of one person'}{quotes}"
        )
    return column.classes.index(wanted)


def _total(shares: Mapping[str, float]) -> Fraction:
    return sum(map(_exact, shares.values()), start=Fraction(0))


def _exact(share: float) -> Fraction:
    """A share as written: a tenth of 30 donors is 3, not 3.0000000000000004."""
    return Fraction(str(float(share)))
