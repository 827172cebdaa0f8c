"""Somebody else's release as the audit sees it: a table of originals, and one or several of what was released for them."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import Part, Subject, with_combination
from pass_core.data import Attribute, IntArray, Records, combinations
from pass_core.errors import DataError, SchemaMismatch
from pass_core.randomness import stream
from pass_core.training.epochs import Epoch
from tasks.audits.document import document
from tasks.audits.released_columns import released_columns
from tasks.lakes.pair import PairColumns, PairTable, beside_payload, matching_rows, read_pair_table
from tasks.lakes.payloads import value_type
from tasks.running.step_io import Reporter
from tasks.sections.audit import AuditConfig
from tasks.steps.audit import context_of, named_attacks
from tasks.storage.files import digest
from tasks.storage.parquet import SPLITS, class_indices, shown_classes

MOST_CLASSES = 1000


def audit_pair(
    original: Path, protected: Sequence[Path], columns: PairColumns, config: AuditConfig, seed: int, progress: Reporter
) -> dict[str, Any]:
    """The document of an audit of somebody else's release.

    Args:
        protected: several are several draws of the same records, which attackers learn from and link by.
    """
    subject, split, classes = pair_subject(original, protected, columns, seed)

    def on_attack(work: str, epoch: Epoch) -> None:
        progress(f"audit {protected[0].name}, {work}", epoch.number, epoch.total)

    def rng_for(*labels: str) -> np.random.Generator:
        return stream(seed, "audit", "pair", *labels)

    findings = run_audit(subject, named_attacks(config), config.thresholds, config.depth, rng_for, on_attack=on_attack)
    if columns.person is None:  # then nobody knows who is a stranger
        findings = dataclasses.replace(findings, analyses={**findings.analyses, "strangers": None})
    released = [digest(path) for path in protected]
    context = dataclasses.replace(
        context_of(subject, config, original.stem, protected[0].stem, released[0]),
        split=split,
        classes=classes,
        protected_digest=released[0] if len(released) == 1 else hashlib.sha256("\n".join(released).encode()).hexdigest(),
        original_digest=digest(original),
    )
    return document(findings, context)


def pair_subject(
    original: Path, protected: Sequence[Path], columns: PairColumns, seed: int
) -> tuple[Subject, str, dict[str, tuple[str, ...]]]:
    """The subject, how it was split, and the classes as they may be shown."""
    originals = read_pair_table(original, columns, [*columns.roles.roles(), *columns.context()])
    releases = [read_pair_table(path, columns, None) for path in protected]
    extra = beside_payload(releases[0], columns)
    orders = [matching_rows(originals, release, columns) for release in releases]
    attributes, labels = _attributes(originals, columns)
    persons = _numbers(originals, columns.person)
    blocks = _numbers(originals, columns.block or columns.person)
    test, split = _split(originals, columns, labels, persons, blocks, seed)
    rows = np.flatnonzero(~test), np.flatnonzero(test)
    whole = Records(originals.payload, labels)
    shown = {a.name: shown_classes(a.classes, labels[a.name], [str(person) for person in persons]) for a in attributes}
    attributes, train, held, combines = with_combination(attributes, whole.subset(rows[0]), whole.subset(rows[1]))
    parts = tuple(Part(records, persons[r], blocks[r]) for records, r in zip((train, held), rows, strict=True))
    released, (train_part, test_part) = released_columns(
        extra.take(pa.array(orders[0])), attributes, (parts[0], parts[1]), (rows[0], rows[1])
    )
    draws = [release.payload[order] for release, order in zip(releases, orders, strict=True)]
    subject = Subject(
        attributes,
        train_part,
        test_part,
        draws[0][rows[1]],
        lambda draw: draws[draw % len(draws)][rows[0]],
        None,
        combines=combines,
        columns=released,
        repeated_test=tuple(draw[rows[1]] for draw in draws[1:]),
    )
    return subject, split, shown | {a.name: a.classes for a in attributes if a.name in combines}


def _attributes(originals: PairTable, columns: PairColumns) -> tuple[tuple[Attribute, ...], dict[str, IntArray]]:
    attributes, labels = [], {}
    for name, role in columns.roles.roles().items():
        if pa.types.is_floating(value_type(originals.others.schema.field(name).type)):
            raise SchemaMismatch(f"{originals.place}: column {name!r} holds floats: expected text, whole numbers or booleans")
        values = originals.texts(name)
        classes = tuple(sorted(set(values)))
        if not 2 <= len(classes) <= MOST_CLASSES:
            raise DataError(f"{originals.place}: column {name!r}: expected 2 to {MOST_CLASSES} classes, found {len(classes)}")
        attributes.append(Attribute(name, classes, role))
        labels[name] = class_indices(pa.table({name: values}), name, classes)
    return tuple(attributes), labels


def _numbers(originals: PairTable, name: str | None) -> IntArray:
    """A number per person or block; every record its own where no column tells."""
    if name is None:
        return np.arange(len(originals.payload))
    return np.unique(np.array(originals.texts(name)), return_inverse=True)[1].astype(np.int64)


def _split(
    originals: PairTable, columns: PairColumns, labels: Mapping[str, IntArray], persons: IntArray, blocks: IntArray, seed: int
) -> tuple[NDArray[np.bool_], str]:
    """Which records are test records, and how that was decided."""
    if columns.split is not None:
        told = originals.texts(columns.split)
        if set(told) != set(SPLITS):
            raise DataError(f"{originals.place}: column {columns.split!r}: expected {' and '.join(SPLITS)}, and records of both")
        return np.array(told) == SPLITS[1], f"by column {columns.split}"
    records = np.arange(len(persons))
    told_apart = {
        "person": persons if columns.person else None,
        "recording": blocks if columns.block else None,
        "record": records,
    }
    for name, units in told_apart.items():
        test = None if units is None else _half(units, list(labels.values()), stream(seed, "audit", "split", name))
        # An identity cannot be learnt from other people: such records are split within people.
        if test is not None and test.any() and all(np.isin(of[test], of[~test]).all() for of in labels.values()):
            return test, f"half to half by {name}, at random with seed {seed}"
    raise DataError(f"{originals.place}: a class is too rare to be in both halves; give --split, or remove it")


def _half(units: IntArray, labels: list[IntArray], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Records of every second unit, units of like classes side by side, so that rare classes are in both halves."""
    members = np.unique(units, return_index=True)[1]
    kinds = combinations([of[members] for of in sorted(labels, key=lambda of: -int(of.max()))])
    order = np.lexsort((rng.random(len(members)), kinds))
    return np.isin(units, units[members][order[1::2]])
