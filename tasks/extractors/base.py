"""The interface of extractors, how they are loaded, and what those with a model share."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

import tasks.extractors
from pass_core import discovery
from pass_core.data import FloatArray
from pass_core.devices import Device, resolve_device
from pass_core.errors import ConfigError, DataError
from tasks.payloads.payload import Payload, PayloadKind, Payloads
from tasks.sections.dataset import DatasetConfig

Job = TypeVar("Job")
Done = TypeVar("Done")
Finished = Callable[[int], None]  # called with the number of records that were done since the last call


class Loaded(Protocol):
    """An extractor with its weights in memory, on its device."""

    weights_digest: str  # empty where there are no weights

    def feature_shape(self, payload: Payload, /) -> tuple[int, ...]:
        """Shape of one record's features."""

    def features(self, payloads: Payloads, workers: int, finished: Finished, /) -> FloatArray:
        """Features (n, *feature_shape), each of its own record alone; `workers` threads decode while the model computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extractor:
    """Turns payloads into the features that channels and attacks see."""

    summary: str
    config_type: type[Any]  # every field has a default
    payloads: tuple[PayloadKind, ...]  # kinds that it can read
    worth_caching: bool = True  # computing takes longer than reading the result back
    load: Callable[[Any, torch.device], Loaded]  # a DataError explains how to get missing or damaged weights


def in_order(jobs: Iterable[Job], work: Callable[[Job], Done], workers: int) -> Iterator[Done]:
    """Results of `work` on every job, in order, from `workers` threads that stay a few jobs ahead, so that memory does not grow.

    Threads are enough: decoders and torch compute outside Python's lock.
    """
    waiting: list[Future[Done]] = []
    with ThreadPoolExecutor(workers) as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(work, job))
                if len(waiting) > workers + 1:
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()


def autocast(device: torch.device) -> torch.autocast:
    """Half precision on a GPU, bf16 where it can; float32 elsewhere."""
    half = torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float16
    return torch.autocast(device.type, dtype=half, enabled=device.type == "cuda")


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
