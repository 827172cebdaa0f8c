"""Step extract: payloads to features, one shard of records after the other."""

import dataclasses
import logging
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from pass_core.devices import Device, resolve_device
from tasks.extractors.base import Loaded
from tasks.extractors.loading import checked_features, load_extractor
from tasks.payloads.payload import Payload, payload_bytes, vectors
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage.code_digest import code_digest
from tasks.storage.feature_cache import FeatureCache
from tasks.storage.parquet import FEATURES, PAYLOAD, TableInfo, array_of, count_rows, read_table, shard_path, shards, write_table

logger = logging.getLogger(__name__)

LIBRARIES = ("torch", "torchaudio", "torchvision", "transformers", "facenet-pytorch", "soundfile", "pillow")


def extract(config: DatasetConfig, settings: Mapping[str, Any], device: Device, threads: int, io: StepIO) -> StepResult:
    """Runs the data set's extractor over validated records and keeps all columns but the payload.

    Shards that an earlier or a stopped run computed come from the cache.
    """
    info = TableInfo.load(io.inputs["records"])
    extractor, chosen, loaded = load_extractor(config, settings, info.payload, device, io.key.dataset)
    shape = loaded.feature_shape(info.payload)
    recipe = recipe_of(config.extractor, chosen, loaded, device, threads) if extractor.worth_caching else None
    cache = FeatureCache(io.cache / "features" / io.key.dataset, recipe, shape) if recipe else None
    io.outputs["features"].mkdir()
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
        key = cache.key(table.column(PAYLOAD)) if cache else ""
        features = cache.get(key, len(table)) if cache else None
        if features is None:
            vector = payload.kind == "vector"
            payloads = array_of(table, PAYLOAD, payload.shape) if vector else payload_bytes(table.column(PAYLOAD))
            features = checked_features(loaded, payloads, threads, str(path), finished)
            if cache:
                cache.put(key, features)
        else:
            reused += len(table)
        kept = table.drop_columns([PAYLOAD]).append_column(FEATURES, vectors(features))
        write_table(kept, shard_path(io.outputs["features"], number))
    return records, reused


def recipe_of(name: str, config: Any, loaded: Loaded, device: Device, threads: int) -> dict[str, Any]:
    """What features depend on beside the payloads: settings, weights, our code, libraries, arithmetic."""
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
