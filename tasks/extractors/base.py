"""What every extractor keeps to, and how those with a model share the work."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar, Protocol, TypeVar

import torch

from pass_core.data import FloatArray
from tasks.payloads.payload import Payload, PayloadKind, Payloads

Job = TypeVar("Job")
Done = TypeVar("Done")
Finished = Callable[[int], None]  # is told how many more records are done


class Loaded(Protocol):
    """An extractor ready to work: weights in memory, on its device."""

    weights_digest: str  # names the weights; empty where there are none

    def feature_shape(self, payload: Payload) -> tuple[int, ...]:
        """Shape of one record's features."""

    def features(self, payloads: Payloads, workers: int, finished: Finished) -> FloatArray:
        """Features (n, *feature_shape); a record's do not depend on the records beside it.

        `workers` threads decode, beside the model that computes; `finished` is told of every few records.
        """


class Extractor(Protocol):
    """Turns payloads into the features that channels and attacks see."""

    summary: ClassVar[str]
    config_type: ClassVar[type[Any]]  # every field has a default
    payloads: ClassVar[tuple[PayloadKind, ...]]  # what it can read
    worth_caching: ClassVar[bool]  # computing takes longer than reading the result back

    def load(self, config: Any, device: torch.device) -> Loaded:
        """Gets the weights, if any.

        Raises:
            DataError: weights are missing, damaged or others than pinned; the message says how to get them.
        """


def in_order(jobs: Iterable[Job], work: Callable[[Job], Done], workers: int) -> Iterator[Done]:
    """Results of `work` on every job, in order, computed by `workers` threads a few jobs ahead of the reader.

    Threads, since decoders and torch compute outside Python's lock; a few ahead, so that memory does not grow.
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
    """Half precision where it pays, on a GPU: bf16 if it has it. Elsewhere float32."""
    half = torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float16
    return torch.autocast(device.type, dtype=half, enabled=device.type == "cuda")
