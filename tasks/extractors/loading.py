"""Loads extractors as data sets name them, and as a trained protector needs them; checks the features that they give."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tasks.extractors
from pass_core import discovery
from pass_core.data import FloatArray
from pass_core.devices import Device, resolve_device
from pass_core.errors import ConfigError, DataError, SchemaMismatch
from tasks.extractors._components import AT_ONCE, Components, check_components, learn_components
from tasks.extractors.base import Extractor, Finished, Loaded, ReducedConfig
from tasks.extractors.engines.base import ARITHMETICS, NetworkConfig, described
from tasks.extractors.engines.quantised import Quantised
from tasks.payloads.payload import Payload, Payloads
from tasks.sections.dataset import DatasetConfig
from tasks.storage.files import json_digest
from tasks.storage.parquet import COMPONENTS, QUANTISED, TableInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedExtractor:
    """An extractor as a data set names it: with settings, weights in memory and what it learnt on training records.

    It is `Loaded` like its network, and gives the features that channels and attacks see.
    """

    name: str
    entry: Extractor
    settings: Any
    network: Any  # Loaded; one that can compute in int8 has an engine and `calibrate`, too
    learnt: Components | None = None
    quantised: Quantised | None = None  # what the network computes with in int8

    @property
    def calibrates(self) -> bool:
        """Whether the network computes in int8, with ranges that training records show."""
        return isinstance(self.settings, NetworkConfig) and self.settings.precision == "int8"

    @property
    def components(self) -> int:
        """The number of components that its outputs are to be reduced to; 0: they are the features."""
        return self.settings.components if isinstance(self.settings, ReducedConfig) else 0

    @property
    def weights_digest(self) -> str:
        """Names the weights, and in int8 what calibration made of them."""
        weights: str = self.network.weights_digest
        return json_digest([weights, self.quantised.digest]) if self.quantised else weights

    @property
    def digest(self) -> str:
        """Names all that features depend on beside the payload; empty where they are the payload."""
        settings = {name: value for name, value in described(self.settings).items() if name not in self.entry.without_effect}
        learnt = self.learnt.digest if self.learnt else ""
        return json_digest([self.name, settings, self.weights_digest, learnt]) if settings or self.weights_digest else ""

    def feature_shape(self, payload: Payload) -> tuple[int, ...]:
        shape: tuple[int, ...] = (len(self.learnt),) if self.learnt else self.network.feature_shape(payload)
        return shape

    def features(self, payloads: Payloads, workers: int, finished: Finished) -> FloatArray:
        """Reduces outputs part by part: there may be twenty times as many of them as features."""
        if not self.learnt:
            outputs: FloatArray = self.network.features(payloads, workers, finished)
            return outputs
        parts = (payloads[start : start + AT_ONCE] for start in range(0, len(payloads), AT_ONCE))
        return np.concatenate([self.reduced(self.network.features(part, workers, finished)) for part in parts])

    def reduced(self, outputs: FloatArray) -> FloatArray:
        """The features of records with these outputs of the network."""
        return self.learnt.of(outputs) if self.learnt else outputs

    def learn(self, outputs: FloatArray) -> "NamedExtractor":
        """The same with components of the outputs of training records, which are overwritten."""
        return dataclasses.replace(self, learnt=learn_components(outputs, self.components, self._setting))

    def calibrated(self, payloads: Payloads) -> "NamedExtractor":
        """The same with the network in int8, its ranges from payloads of training records."""
        return dataclasses.replace(self, quantised=self.network.calibrate(payloads))

    def save_learnt(self, folder: Path) -> None:
        """Writes what training records gave beside a table."""
        for learnt in (self.learnt, self.quantised):
            if learnt:
                learnt.save(folder)

    def with_learnt(self, folder: Path) -> "NamedExtractor":
        """The same with what training records gave for the table in `folder`."""
        quantised = Quantised.load(folder) if self.calibrates else None
        if quantised:
            self.network.engine.quantised = quantised
        return dataclasses.replace(self, learnt=Components.load(folder) if self.components else None, quantised=quantised)

    def check(self, payload: Payload, records: int | None = None) -> None:
        """Rejects more components than outputs, or so many training records, allow."""
        if self.components:
            check_components(self.components, int(np.prod(self.network.feature_shape(payload))), self._setting, records)

    @property
    def _setting(self) -> str:
        return f"extractor.{self.name}.components"


def load_extractor(
    config: DatasetConfig, settings: Mapping[str, Any], payload: Payload, device: Device, dataset: str
) -> NamedExtractor:
    """The extractor that a data set names, with its settings (by name in `settings`); components are not learnt yet."""
    entry: Extractor = discovery.load(tasks.extractors, config.extractor).EXTRACTOR
    if payload.kind not in entry.payloads:
        raise ConfigError(
            f"dataset.{dataset}.extractor: {config.extractor} reads {' or '.join(entry.payloads)} payloads, "
            f"the data set has {payload.kind} payloads; name another extractor"
        )
    chosen = settings.get(config.extractor) or entry.config_type()
    network = entry.load(chosen, resolve_device(device))
    named = NamedExtractor(name=config.extractor, entry=entry, settings=chosen, network=network)
    named.check(payload)
    return named


def load_extractor_of(
    pool: Path, config: DatasetConfig, settings: Mapping[str, Any], device: Device, dataset: str
) -> NamedExtractor:
    """The extractor of the donors in `pool`, with what was learnt for them; another one, or another precision, is rejected."""
    known = TableInfo.load(pool)
    named = load_extractor(config, settings, known.payload, device, dataset)
    _check_arithmetic(named, pool, known.extraction)
    named = named.with_learnt(pool)
    if named.digest != known.extraction:
        expected, found = known.extraction[:12] or "none", named.digest[:12] or "none"
        raise SchemaMismatch(
            f"{pool}: expected the extraction that its features come from ({expected}), found another one ({found}): correct "
            f"dataset.{dataset}.extractor and the settings of extractor.{named.name} (layer, pooling, components, weights), or "
            "run extract and the steps after it again"
        )
    return named


def _check_arithmetic(named: NamedExtractor, pool: Path, extraction: str) -> None:
    """Rejects a network that is computed otherwise than the donors' features were."""
    if not isinstance(named.settings, NetworkConfig) or (named.components and not (pool / COMPONENTS).exists()):
        return
    learnt = Components.load(pool) if named.components else None
    own = tuple(named.settings.arithmetic.values())
    for engine, precision in ARITHMETICS:
        settings = dataclasses.replace(named.settings, engine=engine, precision=precision)
        quantised = Quantised.load(pool) if precision == "int8" and (pool / QUANTISED).exists() else None
        donors = dataclasses.replace(named, settings=settings, learnt=learnt, quantised=quantised)
        if donors.digest == extraction and (engine, precision) != own:
            raise SchemaMismatch(
                f"{pool}: expected engine: {engine}, precision: {precision}, which its features were computed with, found "
                f"{' '.join(own)}: set extractor.{named.name}.engine and .precision to these, or run extract and the steps after "
                "it again"
            )


def checked_features(
    loaded: Loaded, payloads: Payloads, threads: int, place: str, finished: Finished = lambda _: None
) -> FloatArray:
    """Finite features of payloads; an error names the place of the payloads."""
    try:
        features = loaded.features(payloads, threads, finished)
    except DataError as error:
        raise DataError(f"{place}: {error}") from None
    if not np.isfinite(features).all():
        raise DataError(f"{place}: the extractor returned features that are not finite; check the payloads and its weights")
    return features
