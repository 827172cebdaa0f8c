"""Cache of computed features, by what they were computed from: a stopped extraction resumes."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from pass_core.data import FloatArray
from pass_core.errors import DataError
from tasks.payloads.payload import payload_digest, vectors
from tasks.storage.files import write_atomically
from tasks.storage.parquet import FEATURES, array_of, read_table, write_table


class FeatureCache:
    """One Parquet file per shard of records, named by the digest of its payloads and of all that their features depend on."""

    def __init__(self, folder: Path, recipe: dict[str, Any], shape: tuple[int, ...]) -> None:
        """`recipe` is everything besides the payloads that the features depend on."""
        self._folder = folder
        self._recipe = json.dumps(recipe, sort_keys=True)
        self._shape = shape

    def key(self, payloads: pa.ChunkedArray) -> str:
        """The name of these payloads' features."""
        return hashlib.sha256(f"{payload_digest(payloads)} {self._recipe}".encode()).hexdigest()

    def get(self, key: str, rows: int) -> FloatArray | None:
        """The features, or None when they are missing or damaged."""
        with contextlib.suppress(DataError):
            features = array_of(read_table(self._folder / f"{key}.parquet"), FEATURES, self._shape)
            return features if len(features) == rows else None
        return None

    def put(self, key: str, features: FloatArray) -> None:
        """Saves features atomically."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with write_atomically(self._folder / f"{key}.parquet") as temporary:
            write_table(pa.table({FEATURES: vectors(features)}), temporary)
