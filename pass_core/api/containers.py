"""Arrays and tables as people have them: numpy, torch, polars or pandas in, the same kind out."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pass_core.data import FloatArray, IntArray, Records
from pass_core.errors import DataError

Values = NDArray[Any]  # of the caller's own number type
Names = NDArray[np.str_]

_MISSING = {"None", "nan", "<NA>", "NaT"}  # how libraries print a missing value


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """Records with everything that an audit needs of them."""

    records: Records
    ids: Names
    persons: Names  # a record without a person is a person of its own
    learnt_from: IntArray | None = None  # positions that the protector was trained on; None: unknown

    def subset(self, rows: IntArray) -> "Labelled":
        """The records at these positions."""
        return Labelled(records=self.records.subset(rows), ids=self.ids[rows], persons=self.persons[rows])

    @property
    def blocks(self) -> IntArray:
        """Records with one number depend on each other: those of one person."""
        return np.unique(self.persons, return_inverse=True)[1].astype(np.int64)


def read_values(X: Any) -> Values:
    """(n, *shape) the finite numbers of an array, a tensor or a table with numeric columns; anything else is a DataError."""
    values = np.asarray(X.detach().cpu() if isinstance(X, Tensor) else X)
    if values.dtype.kind not in "fiub":
        raise DataError(f"X: expected numbers only, found type {values.dtype}; drop or encode other columns")
    if values.ndim < 2 or not len(values):
        raise DataError(f"X: expected an array of records (n, features…), found shape {values.shape}")
    if not np.isfinite(values).all():
        raise DataError("X: expected finite numbers, found missing or infinite ones; fill or drop those records")
    return values


def as_features(values: Values) -> FloatArray:
    """The numbers as methods and attacks compute with them."""
    return np.ascontiguousarray(values, dtype=np.float32)


def columns_of(X: Any) -> tuple[str, ...] | None:
    """Names of a table's columns; None for an array."""
    names = getattr(X, "columns", None)
    return None if names is None else tuple(map(str, names))


def like(X: Any, released: Values) -> Any:
    """Released records in the container that X is: with its columns and, in pandas, its index."""
    if isinstance(X, Tensor):
        return torch.from_numpy(released).to(X.device)
    if columns_of(X) is None:
        return released
    same_kind = np.can_cast(released.dtype, np.asarray(X).dtype, "same_kind")
    if hasattr(X, "iloc"):  # pandas
        frame = type(X)(released, index=X.index, columns=X.columns)
        return frame.astype(X.dtypes) if same_kind else frame
    frame = type(X)(released, schema=list(X.columns))
    return frame.cast(dict(X.schema)) if same_kind else frame


def read_labels(labels: Any, names: Sequence[str], n: int) -> dict[str, Names]:
    """Classes as text, per attribute, from a mapping, a table, or a single array where there is one attribute."""
    if isinstance(labels, Mapping) or columns_of(labels) is not None:
        known = tuple(labels) if isinstance(labels, Mapping) else columns_of(labels) or ()
        missing = [name for name in names if name not in known]
        if missing:
            raise DataError(f"labels: expected the attributes {', '.join(names)}; missing: {', '.join(missing)}")
        return {name: read_names(labels[name], n, f"labels of {name!r}") for name in names}
    if labels is None or len(names) != 1:
        raise DataError(f"labels: expected a mapping or a table with {', '.join(names)}, found {type(labels).__name__}")
    return {names[0]: read_names(labels, n, f"labels of {names[0]!r}")}


def class_numbers(texts: Mapping[str, Names], classes: Mapping[str, tuple[str, ...]]) -> dict[str, IntArray]:
    """The numbers of these classes among those of `fit`."""
    labels: dict[str, IntArray] = {}
    for name, text in texts.items():
        number = {label: k for k, label in enumerate(classes[name])}
        labels[name] = np.array([number.get(label, -1) for label in text.tolist()], dtype=np.int64)
        if unknown := int((labels[name] < 0).sum()):
            found = f"expected the {len(number)} classes of fit, found {unknown} record(s) of others"
            raise DataError(f"labels of {name!r}: {found}; drop those records, or fit with them")
    return labels


def read_names(values: Any, n: int, what: str) -> Names:
    """(n,) labels, ids or persons as text; missing ones are refused."""
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.shape != (n,):
        raise DataError(f"{what}: expected one value for each of the {n} records, found shape {array.shape}")
    missing = sum(not isinstance(value, str) and str(value) in _MISSING for value in array.tolist())
    if missing:
        raise DataError(f"{what}: expected a value for every record, found {missing} missing; fill or drop those records")
    return array.astype(np.str_)


def read_ids(ids: Any, features: FloatArray) -> Names:
    """Ids as text; where there are none, from each record's numbers alone: equal records have equal ids, in any batch."""
    if ids is not None:
        return read_names(ids, len(features), "ids")
    return np.array([hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest() for row in features])
