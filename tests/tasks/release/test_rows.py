"""Writing released rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pass_core.errors import ValidationFailed
from tasks.payloads.payload import vectors
from tasks.release.rows import write_rows


def test_written_rows_are_compared_with_the_donors(tmp_path: Path) -> None:
    """A file that does not hold the rows that were to be written is found when it is read back."""
    table = pa.table({"payload": vectors(np.arange(12, dtype=np.float32).reshape(3, 4))})
    calls = iter([table, table.take(pa.array([0, 2, 1]))])
    with pytest.raises(ValidationFailed, match="a released row is not its donor's"):
        write_rows(tmp_path / "part.parquet", table.schema, range(3), lambda _: next(calls))
