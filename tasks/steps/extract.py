"""Step extract: payloads to features, one shard of records after the other."""

import contextlib
import dataclasses
import hashlib
import json
import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pass_core.data import FloatArray
from pass_core.devices import Device, resolve_device
from pass_core.errors import DataError
from tasks.extractors.base import Loaded, checked_features, load_extractor
from tasks.payloads.payload import Payload, payload_bytes, payload_digest, vectors
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage.code_digest import code_digest
from tasks.storage.files import write_atomically
from tasks.storage.parquet import FEATURES, PAYLOAD, TableInfo, array_of, count_rows, read_table, shard_path, shards, write_table

logger = logging.getLogger(__name__)

LIBRARIES = ("torch", "torchaudio", "torchvision", "transformers", "facenet-pytorch", "soundfile", "pillow")


class FeatureCache:
    """One Parquet file per shard of records, named by the digest of its payloads and of all that their features depend on."""

    def __init__(self, folder: Path, recipe: dict[str, Any], shape: tuple[int, ...]) -> None:
        """`recipe` is everything besides the payloads that the features depend on."""
        self._folder, self._recipe, self._shape = folder, json.dumps(recipe, sort_keys=True), shape

    def path(self, payloads: pa.ChunkedArray) -> Path:
        """The file of these payloads' features."""
        name = hashlib.sha256(f"{payload_digest(payloads)} {self._recipe}".encode()).hexdigest()
        return self._folder / f"{name}.parquet"

    def get(self, path: Path, rows: int) -> FloatArray | None:
        """The features, or None when they are missing or damaged."""
        with contextlib.suppress(DataError):
            features = array_of(read_table(path), FEATURES, self._shape)
            return features if len(features) == rows else None
        return None

    def put(self, path: Path, features: FloatArray) -> None:
        """Saves features atomically."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with write_atomically(path) as temporary:
            write_table(pa.table({FEATURES: vectors(features)}), temporary)


def extract(config: DatasetConfig, settings: Mapping[str, Any], device: Device, threads: int, io: StepIO) -> StepResult:
    """Runs the data set's extractor over validated records; shards that an earlier run computed come from the cache."""
    info = TableInfo.load(io.inputs["records"])
    extractor, chosen, loaded = load_extractor(config, settings, info.payload, device, io.key.dataset)
    shape, cache = loaded.feature_shape(info.payload), None
    if extractor.worth_caching:
        recipe = {  # what features depend on beside the payloads: settings, weights, our code, libraries, arithmetic
            "extractor": config.extractor,
            "config": dataclasses.asdict(chosen),
            "weights": loaded.weights_digest,
            "code": code_digest((f"tasks.extractors.{config.extractor}",)),
            "libraries": {library: version(library) for library in LIBRARIES},
            "device": str(resolve_device(device)),
            "threads": threads,
            "processor": torch.backends.cpu.get_cpu_capability(),
        }
        cache = FeatureCache(io.cache / "features" / io.key.dataset, recipe, shape)
    records, reused = extract_shards(loaded, info.payload, cache, threads, io)
    dataclasses.replace(info, feature_shape=shape).save(io.outputs["features"])
    if reused:  # logged, not counted: a step's counts are the same for the same inputs
        logger.info("extract %s: %d of %d records came from the cache", io.key, reused, records)
    return StepResult(counts={"records": records, "features": int(np.prod(shape))})


def extract_shards(loaded: Loaded, payload: Payload, cache: FeatureCache | None, threads: int, io: StepIO) -> tuple[int, int]:
    """Writes a shard of features per shard of records; the number of records, and of those from the cache."""
    paths = shards(io.inputs["records"])
    records = sum(count_rows(path) for path in paths)
    reused = computed = 0

    def finished(more: int) -> None:
        nonlocal computed
        computed += more
        io.progress(f"extract {io.key}", computed, records - reused)

    for number, path in enumerate(paths):
        table = read_table(path)
        cached = cache.path(table.column(PAYLOAD)) if cache else Path()
        features = cache.get(cached, len(table)) if cache else None
        if features is None:
            vector = payload.kind == "vector"
            payloads = array_of(table, PAYLOAD, payload.shape) if vector else payload_bytes(table.column(PAYLOAD))
            features = checked_features(loaded, payloads, threads, str(path), finished)
            if cache:
                cache.put(cached, features)
        else:
            reused += len(table)
        kept = table.drop_columns([PAYLOAD]).append_column(FEATURES, vectors(features))
        write_table(kept, shard_path(io.outputs["features"], number))
    return records, reused
