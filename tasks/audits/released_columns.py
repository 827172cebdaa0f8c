"""Columns that leave beside the payload, as an attacker reads them: value by value, and in a few classes."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pass_core.auditing.subject import Part, ReleasedColumn
from pass_core.data import Attribute, IntArray, Records, with_role
from pass_core.errors import SchemaMismatch

MOST_CLASSES = 20  # that the values of a column are put into
MOST_COMBINATIONS = 256  # of them with the classes of a private attribute


def released_columns(
    table: pa.Table, attributes: tuple[Attribute, ...], parts: tuple[Part, Part], rows: tuple[IntArray, IntArray]
) -> tuple[tuple[ReleasedColumn, ...], tuple[Part, Part]]:
    """The columns of `table`, and train and test with their classes among the labels.

    Args:
        attributes: all that are attacked; a column of the same name is called `released …`.
        rows: the rows of the table that belong to train and to test.
    """
    largest = max((a.n_classes for a in with_role(attributes, "private")), default=1)
    at_most = int(np.clip(MOST_COMBINATIONS // largest, 2, MOST_CLASSES))
    taken, columns = {a.name for a in attributes}, []
    for name in table.column_names:
        values, ordered = _numbered(table.column(name), name)
        classes = few_classes(values, ordered, rows[0], at_most)
        shown = tuple(str(k + 1) for k in range(int(classes.max(initial=0)) + 1))
        attribute = Attribute(f"released {name}" if name in taken else name, shown, "general")
        columns.append(ReleasedColumn(attribute, values[rows[0]], values[rows[1]]))
        parts = (_labelled(parts[0], attribute, classes[rows[0]]), _labelled(parts[1], attribute, classes[rows[1]]))
    return tuple(columns), parts


def few_classes(values: IntArray, ordered: bool, train: IntArray, at_most: int) -> IntArray:
    """Numbered values in at most so many classes: themselves where they are few, else stretches of equally many training
    records where they have an order, else the commonest and the rest."""
    n_values = int(values.max(initial=-1)) + 1
    if n_values <= at_most:
        return values
    if ordered:
        inner = np.quantile(values[train], np.linspace(0, 1, at_most + 1)[1:-1])
        stretches: IntArray = np.searchsorted(inner, values, side="right").astype(np.int64)
        return stretches
    commonest = np.argsort(-np.bincount(values[train], minlength=n_values), kind="stable")[: at_most - 1]
    places = np.full(n_values, at_most - 1, dtype=np.int64)
    places[commonest] = np.arange(at_most - 1)
    return places[values]


def _numbered(column: pa.ChunkedArray, name: str) -> tuple[IntArray, bool]:
    """Every value's rank among the distinct ones, a missing one last; and whether their order means something."""
    plain = column.combine_chunks()
    if pa.types.is_dictionary(plain.type):
        plain = plain.dictionary_decode()
    try:
        distinct = pc.unique(plain).drop_null()
        distinct = distinct.take(pc.sort_indices(distinct))
        ranks = pc.fill_null(pc.index_in(plain, value_set=distinct), len(distinct))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise SchemaMismatch(
            f"column {name!r}: expected text, numbers or dates beside the payload, found {plain.type}; do not release it"
        ) from None
    texts = pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type)
    return ranks.to_numpy(zero_copy_only=False).astype(np.int64), not texts


def _labelled(part: Part, attribute: Attribute, labels: IntArray) -> Part:
    return Part(Records(part.records.features, {**part.records.labels, attribute.name: labels}), part.persons, part.blocks)
