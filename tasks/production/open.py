"""Chooses the kind of target at a path or URL."""

from pathlib import Path
from typing import Literal

import pyarrow.fs as pafs

from tasks.lakes.open import find_filesystem
from tasks.production.options import state_of
from tasks.production.versions import FolderTarget, ObjectTarget, Target


def open_target(place: str, state: str | Path | None = None, form: Literal["parquet", "delta"] | None = None) -> Target:
    """The target at a path or URL.

    Args:
        state: its private folder, which for a path must be on the same file system; default: beside the path.
        form: default: what is there, and Parquet in an empty place.
    """
    folder = state_of(place, state)
    if form == "delta" or (form is None and _holds_delta_log(place)):
        from tasks.production.delta import DeltaTarget

        return DeltaTarget(place, folder)
    return ObjectTarget(place, folder) if "://" in place else FolderTarget(place, folder)


def _holds_delta_log(place: str) -> bool:
    """Looked up without deltalake, whose threads a forked process cannot use, and which does not support every store."""
    files, base = find_filesystem(place)
    return bool(files.get_file_info(f"{base}/_delta_log").type == pafs.FileType.Directory)
