"""Reads a whole data set at once, as tests like it."""

from pathlib import Path
from typing import Any

import numpy as np

from pass_core import discovery
from tasks import datasets
from tasks.datasets.base import RawRecords, Reading
from tasks.payloads.quarantine import Quarantine


def read_everything(name: str, raw: Path, budget: int = 0, **settings: Any) -> tuple[RawRecords, Reading, Quarantine]:
    """All batches of a reader put together, with what it said about them and what it left out."""
    dataset = discovery.load(datasets, name).DATASET
    quarantine = Quarantine(budget, "corrupt_files_allowed")
    reading = dataset.read(raw, dataset.config_type(**settings), quarantine)
    batches = [batch for batch in reading.batches if len(batch)]

    def together(field: str) -> tuple[str, ...]:
        return tuple(value for batch in batches for value in getattr(batch, field))

    payloads: Any = [data for batch in batches for data in batch.payloads]
    whole = RawRecords(
        payloads=np.array(payloads) if reading.payload.kind == "vector" else payloads,
        record_ids=together("record_ids"),
        splits=together("splits"),
        persons=together("persons"),
        blocks=together("blocks"),
        labels={name: tuple(v for batch in batches for v in batch.labels[name]) for name in batches[0].labels},
        passed={name: [v for batch in batches for v in batch.passed[name].to_pylist()] for name in batches[0].passed},
    )
    assert len(whole.payloads) == len(whole) <= reading.expected
    return whole, reading, quarantine
