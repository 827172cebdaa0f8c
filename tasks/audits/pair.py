"""The audit of another party's release: a table of originals, and one or several tables released for them."""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pass_core.auditing.recipient import Recipient
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import MadeRelease, Part, Subject, make_subject
from pass_core.data import Attribute, IntArray, Records, combinations, shown_classes
from pass_core.errors import DataError, SchemaMismatch
from pass_core.randomness import stream
from pass_core.storage.audits import context_of, document
from pass_core.training.epochs import Epoch
from tasks.audits.received import MOST_COLUMNS, ReceivedRows, left_out, make_received, received_table
from tasks.audits.release import column_values
from tasks.lakes.open import value_type
from tasks.lakes.pair import PairColumns, PairTable, beside_payload, matching_rows, open_pair_table, read_pair_table
from tasks.running.step_io import Reporter
from tasks.sections.audit import AuditConfig
from tasks.storage.files import digest
from tasks.storage.parquet import SPLITS, class_indices

MOST_CLASSES = 1000


def audit_pair(
    original: Path,
    protected: Sequence[Path],
    columns: PairColumns,
    *,
    config: AuditConfig,
    recipient: Recipient,
    seed: int,
    progress: Reporter,
) -> dict[str, Any]:
    """The document of an audit of another party's release; several tables are several draws, and attackers learn from all."""
    subject, split, classes = pair_subject(original, protected, columns, seed, recipient)

    def on_attack(work: str, epoch: Epoch) -> None:
        progress(f"audit {protected[0].name}, {work}", epoch.number, epoch.total)

    def rng_for(*labels: str) -> np.random.Generator:
        return stream(seed, "audit", "pair", *labels)

    attacks, thresholds, depth = config.named_attacks(), config.thresholds, config.depth
    findings = run_audit(subject, attacks, thresholds, depth, rng_for, on_attack=on_attack, effort=config.effort)
    if columns.person is None:  # then strangers cannot be identified
        findings = dataclasses.replace(findings, analyses={**findings.analyses, "strangers": None})
    digests = [digest(path) for path in protected]
    released = digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
    dataset, method = original.stem, protected[0].stem
    context = dataclasses.replace(
        context_of(subject, attacks, thresholds, depth, dataset=dataset, method=method, protected_digest=released),
        valid_days=config.valid_days,
        split=split,
        classes=classes,
        original_digest=digest(original),
    )
    return document(findings, context)


def pair_subject(
    original: Path, protected: Sequence[Path], columns: PairColumns, seed: int, recipient: Recipient | None = None
) -> tuple[Subject, str, dict[str, tuple[str, ...]]]:
    """The subject, how it was split, and the class names that may be shown."""
    originals = read_pair_table(original, columns, [*columns.roles.roles(), *columns.context()])
    releases = [read_pair_table(path, columns, None) for path in protected]
    extra = beside_payload(releases[0], columns)
    orders = [matching_rows(originals, release, columns) for release in releases]
    attributes, labels = _attributes(originals, columns)
    persons, blocks = (_numbers(originals, name) for name in (columns.person, columns.block or columns.person))
    whole = Part(Records(originals.payload, labels), persons, blocks)
    test, split = _split(originals, columns, whole, seed)
    there = np.all([order >= 0 for order in orders], axis=0)
    rows = np.flatnonzero(~test & there), np.flatnonzero(test & there)
    draws = [release.payload[order] for release, order in zip(releases, orders, strict=True)]
    received = _received(protected, columns, extra.column_names, orders, rows)
    missing = left_out(whole, test, there) | {
        "extra_rows": sum(len(release.payload) for release in releases) - sum(int((o >= 0).sum()) for o in orders)
    }
    subject = make_subject(
        attributes=attributes,
        train=whole.subset(rows[0]),
        test=whole.subset(rows[1]),
        release=MadeRelease(tuple(draw[rows[1]] for draw in draws), lambda draw: draws[draw % len(draws)][rows[0]]),
        columns=column_values(extra.take(pa.array(np.maximum(orders[0], 0))), *rows),
        received=dataclasses.replace(make_received(*received, (draws[0][rows[0]], draws[0][rows[1]]), together=True), **missing),
        recipient=recipient,
    )
    shown = {a.name: shown_classes(a.classes, labels[a.name], [str(person) for person in persons]) for a in attributes}
    return subject, split, shown | {a.name: a.classes for a in subject.attributes if a.name in subject.combines}


def _received(
    protected: Sequence[Path],
    columns: PairColumns,
    published: Sequence[str],
    orders: list[IntArray],
    rows: tuple[IntArray, IntArray],
) -> tuple[ReceivedRows, ReceivedRows]:
    """What all releases show of the training and of the test records, beside the meaning of payloads."""
    most = max(1, MOST_COLUMNS // len(protected))
    tables = [received_table(open_pair_table(path, columns), columns.key, published, most) for path in protected]
    train, test = ([table.of(order[part]) for table, order in zip(tables, orders, strict=True)] for part in rows)
    return ReceivedRows.beside(train), ReceivedRows.beside(test)


def _attributes(originals: PairTable, columns: PairColumns) -> tuple[tuple[Attribute, ...], dict[str, IntArray]]:
    attributes, labels = [], {}
    for name, role in columns.roles.roles().items():
        if pa.types.is_floating(value_type(originals.others.schema.field(name).type)):
            raise SchemaMismatch(
                f"{originals.place}: column {name!r}: expected text, whole numbers or booleans, found floats; choose another"
            )
        values = originals.texts(name)
        classes = tuple(sorted(set(values)))
        if not 2 <= len(classes) <= MOST_CLASSES:
            raise DataError(f"{originals.place}: column {name!r}: expected 2 to {MOST_CLASSES} classes, found {len(classes)}")
        attributes.append(Attribute(name, classes, role))
        labels[name] = class_indices(pa.table({name: values}), name, classes)
    return tuple(attributes), labels


def _numbers(originals: PairTable, name: str | None) -> IntArray:
    """A number per person or block; without a column every record has its own."""
    if name is None:
        return np.arange(len(originals.payload))
    return np.unique(np.array(originals.texts(name)), return_inverse=True)[1].astype(np.int64)


def _split(originals: PairTable, columns: PairColumns, whole: Part, seed: int) -> tuple[NDArray[np.bool_], str]:
    """Which records are test records, and how that was decided."""
    if columns.split is not None:
        given = originals.texts(columns.split)
        if set(given) != set(SPLITS):
            raise DataError(
                f"{originals.place}: column {columns.split!r}: expected {' and '.join(SPLITS)}, both and nothing else, "
                f"found {len(set(given))} distinct value(s); give another --split, or none"
            )
        return np.array(given) == SPLITS[1], f"by column {columns.split}"
    labels = list(whole.records.labels.values())
    candidates = {"person": whole.persons} if columns.person else {}
    candidates |= {"recording": whole.blocks} if columns.block else {}
    for name, units in (candidates | {"record": np.arange(len(whole))}).items():
        test = _half(units, labels, stream(seed, "audit", "split", name))
        # An identity cannot be learnt from other people: such records are split within people.
        if test.any() and all(np.isin(of[test], of[~test]).all() for of in labels):
            return test, f"half to half by {name}, at random with seed {seed}"
    raise DataError(
        f"{originals.place}: expected every class in both halves, found one that is too rare; give --split, or remove it"
    )


def _half(units: IntArray, labels: list[IntArray], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Records of every second unit; units are ordered by their classes, so that rare classes are in both halves."""
    members = np.unique(units, return_index=True)[1]
    kinds = combinations([of[members] for of in sorted(labels, key=lambda of: -int(of.max()))])
    order = np.lexsort((rng.random(len(members)), kinds))
    return np.isin(units, units[members][order[1::2]])
