"""Step extract: payloads to features, one shard of records after the other."""

import dataclasses
import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

import tasks.extractors
from pass_core import discovery
from pass_core.data import FloatArray
from pass_core.devices import Device, resolve_device
from pass_core.errors import ConfigError, DataError
from tasks.extractors.base import Extractor, Finished, Loaded
from tasks.payloads.payload import Payload, Payloads, payload_bytes, vectors
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage.code_digest import code_digest
from tasks.storage.feature_cache import FeatureCache
from tasks.storage.parquet import FEATURES, PAYLOAD, TableInfo, array_of, count_rows, read_table, shard_path, shards, write_table

logger = logging.getLogger(__name__)

LIBRARIES = ("torch", "torchaudio", "torchvision", "transformers", "facenet-pytorch", "soundfile", "pillow")


def extract(config: DatasetConfig, settings: Mapping[str, Any], device: Device, threads: int, io: StepIO) -> StepResult:
    """Runs the data set's extractor over validated records; everything but the payload is kept.

    Shards that were computed before, by an earlier run or by one that was stopped, come from the cache.
    """
    info = TableInfo.load(io.inputs["records"])
    extractor, chosen, loaded = load_extractor(config, settings, info.payload, device, io.key.dataset)
    shape = loaded.feature_shape(info.payload)
    recipe = recipe_of(config.extractor, chosen, loaded, device, threads) if extractor.worth_caching else None
    cache = FeatureCache(io.cache / "features" / io.key.dataset, recipe, shape) if recipe else None
    io.outputs["features"].mkdir()
    records, reused = extract_shards(loaded, info.payload, cache, threads, io)
    dataclasses.replace(info, feature_shape=shape).save(io.outputs["features"])
    if reused:  # said, not counted: what a step counts is the same for the same inputs
        logger.info("extract %s: %d of %d records came from the cache", io.key, reused, records)
    return StepResult(counts={"records": records, "features": int(np.prod(shape))})


def load_extractor(
    config: DatasetConfig, settings: Mapping[str, Any], payload: Payload, device: Device, dataset: str
) -> tuple[Extractor, Any, Loaded]:
    """The extractor that a data set names, its settings, and itself ready to work."""
    extractor: Extractor = discovery.load(tasks.extractors, config.extractor).EXTRACTOR
    if payload.kind not in extractor.payloads:
        raise ConfigError(
            f"dataset.{dataset}.extractor: {config.extractor} reads {' or '.join(extractor.payloads)} payloads, "
            f"the data set has {payload.kind} payloads"
        )
    chosen = settings.get(config.extractor) or extractor.config_type()
    return extractor, chosen, extractor.load(chosen, resolve_device(device))


def extract_shards(loaded: Loaded, payload: Payload, cache: FeatureCache | None, threads: int, io: StepIO) -> tuple[int, int]:
    """Writes a shard of features per shard of records; the number of records, and of those that came from the cache."""
    paths = shards(io.inputs["records"])
    records = sum(count_rows(path) for path in paths)
    reused = computed = 0

    def finished(more: int) -> None:
        nonlocal computed
        computed += more
        io.progress(f"extract {io.key}", computed, records - reused)

    for number, path in enumerate(paths):
        table = read_table(path)
        key = cache.key(table.column(PAYLOAD)) if cache else ""
        features = cache.get(key, len(table)) if cache else None
        if features is None:
            features = _compute(loaded, table, payload, threads, path, finished)
            if cache:
                cache.put(key, features)
        else:
            reused += len(table)
        kept = table.drop_columns([PAYLOAD]).append_column(FEATURES, vectors(features))
        write_table(kept, shard_path(io.outputs["features"], number))
    return records, reused


def _compute(loaded: Loaded, table: pa.Table, payload: Payload, threads: int, path: Path, finished: Finished) -> FloatArray:
    column = table.column(PAYLOAD)
    payloads: Payloads = array_of(table, PAYLOAD, payload.shape) if payload.kind == "vector" else payload_bytes(column)
    return checked_features(loaded, payloads, threads, str(path), finished)


def checked_features(loaded: Loaded, payloads: Payloads, threads: int, place: str, finished: Finished) -> FloatArray:
    """Features that are numbers; what goes wrong is told with its place."""
    try:
        features = loaded.features(payloads, threads, finished)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None
    if not np.isfinite(features).all():
        raise DataError(f"{place}: the extractor gave features that are not numbers; check its weights")
    return features


def recipe_of(name: str, config: Any, loaded: Loaded, device: Device, threads: int) -> dict[str, Any]:
    """All that features depend on beside the payloads: settings, weights, our code, libraries, arithmetic."""
    return {
        "extractor": name,
        "config": dataclasses.asdict(config),
        "weights": loaded.weights_digest,
        "code": code_digest((f"tasks.extractors.{name}",)),
        "libraries": {library: version(library) for library in LIBRARIES},
        "device": str(resolve_device(device)),
        "threads": threads,
        "processor": torch.backends.cpu.get_cpu_capability(),
    }
