"""The interface of extractors, and what those with a model share."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from pass_core.checks import Checked, ranged
from pass_core.data import FloatArray
from tasks.payloads.payload import Payload, PayloadKind, Payloads

Job = TypeVar("Job")
Done = TypeVar("Done")
Finished = Callable[[int], None]  # called with the number of records that were done since the last call


class Loaded(Protocol):
    """An extractor with its weights in memory, on its device."""

    @property
    def weights_digest(self) -> str:
        """Names the weights; empty where there are none."""

    def feature_shape(self, payload: Payload, /) -> tuple[int, ...]:
        """Shape of one record's features."""

    def features(self, payloads: Payloads, workers: int, finished: Finished, /) -> FloatArray:
        """Features (n, *feature_shape), each of its own record alone; `workers` threads decode while the model computes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedConfig(Checked):
    """Settings of an extractor whose outputs may be reduced to principal components (`_components.py`)."""

    components: int = ranged(0, at_least=0)  # principal components, learnt on training records; 0: the outputs as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Extractor:
    """Turns payloads into the features that channels and attacks see."""

    summary: str
    config_type: type[Any]  # every field has a default
    payloads: tuple[PayloadKind, ...]  # kinds that it can read
    without_effect: tuple[str, ...] = ()  # settings that the features do not depend on, beside the weights' digest
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
