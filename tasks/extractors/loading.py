"""Loads the extractor of a data set and checks the features that it returns."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import tasks.extractors
from pass_core import discovery
from pass_core.data import FloatArray
from pass_core.devices import Device, resolve_device
from pass_core.errors import ConfigError, DataError
from tasks.extractors.base import Extractor, Finished, Loaded
from tasks.payloads.payload import Payload, Payloads
from tasks.sections.dataset import DatasetConfig


def load_extractor(
    config: DatasetConfig, settings: Mapping[str, Any], payload: Payload, device: Device, dataset: str
) -> tuple[Extractor, Any, Loaded]:
    """The extractor that a data set names, its settings (by name in `settings`), and the same with its weights in memory."""
    extractor: Extractor = discovery.load(tasks.extractors, config.extractor).EXTRACTOR
    if payload.kind not in extractor.payloads:
        raise ConfigError(
            f"dataset.{dataset}.extractor: {config.extractor} reads {' or '.join(extractor.payloads)} payloads, "
            f"the data set has {payload.kind} payloads; name another extractor"
        )
    chosen = settings.get(config.extractor) or extractor.config_type()
    return extractor, chosen, extractor.load(chosen, resolve_device(device))


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
