"""The expectations of a protected lake: one row per partition, so that the cost does not depend on the number of records."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from tasks.expectations.suites import between, check, columns, in_set, not_null, row_count, unique
from tasks.production.staging import Staged

COUNTED = ("rows", "files", "donors")  # at least one of each


def check_partitions(name: str, staged: Iterable[Staged], expected: str, docs: Path) -> None:
    """Checks staged partitions, whose files must have the `expected` columns, or raises ValidationFailed."""
    rows = [
        {
            "number": number,
            "columns": one.columns(),
            "lost": one.receipt.rows_in - one.receipt.rows - one.receipt.quarantined,
            "rows": one.receipt.rows,
            "files": len(one.receipt.files),
            "donors": one.receipt.donors,
        }
        for number, one in enumerate(staged)
    ]
    suite = [
        row_count(len(rows), len(rows)),
        columns(("number", "columns", "lost", *COUNTED)),
        unique("number"),
        in_set("columns", (expected,)),
        between("lost", 0, 0),
        *(between(column, 1, float(2**53)) for column in COUNTED),
        *(not_null(column) for column in COUNTED),
    ]
    check(name, {"partitions": (pd.DataFrame(rows), suite)}, docs)
