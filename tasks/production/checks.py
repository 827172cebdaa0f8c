"""The expectations of a protected lake: one row per partition, so that the cost does not depend on the number of records."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from tasks.expectations.suites import between, check, columns, in_set, not_null, row_count, unique
from tasks.production.manifest import Receipt


def check_partitions(
    name: str, receipts: Mapping[str, Receipt], schemas: Mapping[str, str], *, expected: str, docs: Path
) -> None:
    """Checks partitions before they are published.

    Args:
        schemas: partition -> the columns that its files have.
        expected: the columns that may be published.

    Raises:
        ValidationFailed: an expectation does not hold.
    """
    rows = [
        {
            "number": number,
            "columns": schemas[partition],
            "lost": receipt.rows_in - receipt.rows - receipt.quarantined,
            "rows": receipt.rows,
            "files": len(receipt.files),
            "donors": receipt.donors,
        }
        for number, (partition, receipt) in enumerate(receipts.items())
    ]
    largest = float(2**53)
    suite = [
        row_count(len(receipts), len(receipts)),
        columns(("number", "columns", "lost", "rows", "files", "donors")),
        unique("number"),
        in_set("columns", (expected,)),
        between("lost", 0, 0),
        between("rows", 1, largest),
        between("files", 1, largest),
        between("donors", 1, largest),
        *(not_null(column) for column in ("rows", "files", "donors")),
    ]
    check(name, {"partitions": (pd.DataFrame(rows), suite)}, docs)
