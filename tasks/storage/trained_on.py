"""Which records a model learnt from. Secret, so never a part of the model's folder: models are pushed and logged."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from pass_core.errors import ChecksumMismatch
from tasks.storage.models import model_digest
from tasks.storage.parquet import RECORD_ID, read_table, write_table

MODEL_DIGEST = "model_digest"


def save_trained_on(path: Path, record_ids: Sequence[str], model: Path) -> None:
    """Writes the ids of the records that the model in folder `model` learnt from, readable by the owner only."""
    write_table(pa.table({RECORD_ID: list(record_ids), MODEL_DIGEST: [model_digest(model)] * len(record_ids)}), path)
    path.chmod(0o600)


def read_trained_on(path: Path, model: str) -> list[str]:
    """Ids of the records that the model with the digest `model` learnt from."""
    table = read_table(path, [RECORD_ID, MODEL_DIGEST])
    other = set(table.column(MODEL_DIGEST).to_pylist()) - {model}
    if other:
        raise ChecksumMismatch(
            f"{path}: expected the records that model {model[:12]} learnt from, found those of model {min(other)[:12]}; "
            "run train again"
        )
    record_ids: list[str] = table.column(RECORD_ID).to_pylist()
    return record_ids
