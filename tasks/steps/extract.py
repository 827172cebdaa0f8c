"""Step extract: payloads to features, one shard of records after the other.

A network that computes in int8 is calibrated on a few training records first. Principal components are learnt on a sample of the
training records, in a pass of its own. The pass that writes the features finds the outputs in the cache: memory holds the sample,
then one shard of outputs, and nothing is computed twice.
"""

import contextlib
import dataclasses
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from pass_core.data import FloatArray, IntArray
from pass_core.devices import Device, resolve_device
from pass_core.errors import DataError
from pass_core.randomness import stream
from tasks.extractors.base import Loaded
from tasks.extractors.engines.base import described, engine_libraries
from tasks.extractors.loading import NamedExtractor, checked_features, load_extractor
from tasks.payloads.payload import Payload, payload_bytes, payload_digest, vectors
from tasks.running.step_io import StepIO, StepResult
from tasks.sections.dataset import DatasetConfig
from tasks.storage import parquet
from tasks.storage.code_digest import code_digest
from tasks.storage.files import write_atomically
from tasks.storage.parquet import FEATURES, PAYLOAD, SPLIT, TableInfo, array_of, read_table, write_table

logger = logging.getLogger(__name__)

LIBRARIES = ("torch", "torchaudio", "torchvision", "transformers", "facenet-pytorch", "soundfile", "pillow")

SAMPLE = 10_000  # training records at most that components are learnt on
CALIBRATION = 256  # training records at most that an int8 network is calibrated on


class FeatureCache:
    """One Parquet file of outputs per shard of records, named by the digest of its payloads and of all that they depend on."""

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
    extractor = load_extractor(config, settings, info.payload, device, io.key.dataset)
    if extractor.calibrates:
        extractor = _calibrated(extractor, io)
    cache = _cache(extractor, info.payload, device, threads, io) if extractor.entry.worth_caching else None
    outputs = Outputs(extractor.network, info.payload, cache, threads, io)
    if extractor.components:
        sample = outputs.sample()
        extractor.check(info.payload, len(sample))  # before hours of work
        extractor = extractor.learn(outputs.at(sample))
    records, shape = extract_shards(outputs, extractor.reduced), extractor.feature_shape(info.payload)
    extractor.save_learnt(io.outputs["features"])
    dataclasses.replace(info, feature_shape=shape, extraction=extractor.digest).save(io.outputs["features"])
    if reused := records - outputs.computed:  # logged, not counted: a step's counts are the same for the same inputs
        logger.info("extract %s: %d of %d records came from the cache", io.key, reused, records)
    return StepResult(counts={"records": records, "features": int(np.prod(shape))})


def _cache(extractor: NamedExtractor, payload: Payload, device: Device, threads: int, io: StepIO) -> FeatureCache:
    """Outputs before they are reduced: another number of components computes nothing again."""
    settings = described(extractor.settings)
    recipe = {  # what outputs depend on beside the payloads: settings, weights, our code, libraries, arithmetic
        "extractor": extractor.name,
        "config": {name: value for name, value in settings.items() if name != "components"},
        "weights": extractor.weights_digest,
        "code": code_digest((f"tasks.extractors.{extractor.name}",)),
        "libraries": {library: version(library) for library in LIBRARIES} | engine_libraries(extractor.settings),
        "device": str(resolve_device(device)),
        "threads": threads,
        "processor": torch.backends.cpu.get_cpu_capability(),
    }
    return FeatureCache(io.cache / "features" / io.key.dataset, recipe, extractor.network.feature_shape(payload))


def _calibrated(extractor: NamedExtractor, io: StepIO) -> NamedExtractor:
    """The extractor in int8, calibrated on a few training records drawn at random."""
    paths, payloads = parquet.shards(io.inputs["records"]), list[bytes]()
    rows, start = training_rows(paths, CALIBRATION, "calibration"), 0
    for path in paths:
        shard = read_table(path, [PAYLOAD]).column(PAYLOAD)
        inside = rows[(rows >= start) & (rows < start + len(shard))] - start
        payloads += payload_bytes(shard.take(pa.array(inside)))
        start += len(shard)
    logger.info("extract %s: calibrating int8 on %d training records", io.key, len(payloads))
    return extractor.calibrated(payloads)


def training_rows(paths: Sequence[Path], at_most: int, purpose: str) -> IntArray:
    """Positions of training records in shards, drawn at random for a purpose, in order."""
    splits = [read_table(path, [SPLIT]).column(SPLIT).to_pylist() for path in paths]
    train = np.flatnonzero(np.array([split == "train" for part in splits for split in part]))
    return np.sort(stream(0, purpose, "records").permutation(train)[:at_most])


class Outputs:
    """What the extractor gives for the step's records, shard by shard, before it is reduced."""

    def __init__(self, network: Loaded, payload: Payload, cache: FeatureCache | None, threads: int, io: StepIO) -> None:
        self.io, self.paths = io, parquet.shards(io.inputs["records"])
        self.records = sum(parquet.count_rows(path) for path in self.paths)
        self.computed = self._reused = 0
        self._network, self._payload, self._cache, self._threads = network, payload, cache, threads

    def of(self, path: Path) -> tuple[pa.Table, FloatArray]:
        """A shard of records, and its outputs: from the cache, or computed and put there."""
        table, payload, cache = read_table(path), self._payload, self._cache
        place = cache.path(table.column(PAYLOAD)) if cache else Path()
        outputs = cache.get(place, len(table)) if cache else None
        if outputs is not None:
            self._reused += len(table)
            return table, outputs
        vector = payload.kind == "vector"
        payloads = array_of(table, PAYLOAD, payload.shape) if vector else payload_bytes(table.column(PAYLOAD))
        outputs = checked_features(self._network, payloads, self._threads, str(path), self._finished)
        if cache:
            cache.put(place, outputs)
        return table, outputs

    def sample(self) -> IntArray:
        """Positions of at most `SAMPLE` training records, drawn at random."""
        return training_rows(self.paths, SAMPLE, "components")

    def at(self, rows: IntArray) -> FloatArray:
        """The outputs of the records at these positions, which are in order."""
        parts, start = [], 0
        for path in self.paths:
            end = start + parquet.count_rows(path)
            inside = rows[(rows >= start) & (rows < end)] - start
            if len(inside):
                parts.append(self.of(path)[1][inside])
            start = end
        return np.concatenate(parts)

    def _finished(self, more: int) -> None:
        self.computed += more
        self.io.progress(f"extract {self.io.key}", self.computed, self.records - self._reused)


def extract_shards(outputs: Outputs, reduced: Callable[[FloatArray], FloatArray] = lambda outputs: outputs) -> int:
    """Writes a shard of features per shard of records; the number of records."""
    for number, path in enumerate(outputs.paths):
        table, found = outputs.of(path)
        kept = table.drop_columns([PAYLOAD]).append_column(FEATURES, vectors(reduced(found)))
        write_table(kept, parquet.shard_path(outputs.io.outputs["features"], number))
    return outputs.records
