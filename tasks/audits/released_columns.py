"""Columns released beside the payload, as numbers for the audit."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pass_core.auditing.subject import ColumnValues
from pass_core.data import IntArray
from pass_core.errors import SchemaMismatch


def column_values(table: pa.Table, train: IntArray, test: IntArray) -> dict[str, ColumnValues]:
    """Every column of `table` by its name; `train` and `test` are the table's rows of the splits."""
    found = {}
    for name in table.column_names:
        ranks, ordered = _ranks(table.column(name), name)
        found[name] = ColumnValues(ranks[train], ranks[test], ordered)
    return found


def _ranks(column: pa.ChunkedArray, name: str) -> tuple[IntArray, bool]:
    """Every value's rank among the distinct ones, missing values last; and whether the order has a meaning."""
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
