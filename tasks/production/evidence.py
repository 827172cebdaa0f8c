"""Recently audited records, in the private state folder: an increment that is too small to judge is judged together with them."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pass_core.channel.draws import WordArray
from tasks.storage.files import write_atomically


class Evidence:
    """The samples of published versions that were drawn alike (by model, pool, key and recipe), one file per version."""

    def __init__(self, folder: Path, draw: str, together: int) -> None:
        """`together`: how many records, new and recent, are judged at most."""
        self.folder, self._draw, self._together = folder, draw, together

    def recent(self, new: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The latest audited records that are not among the new ones."""
        found: list[dict[str, np.ndarray]] = []
        known, room = new["records"], self._together - len(new["records"])
        for path in sorted((self.folder / self._draw).glob("*.npz"), reverse=True):
            if room <= 0:
                break
            with np.load(path) as arrays:
                part = {name: arrays[name] for name in arrays.files}
            if part.keys() != new.keys() or any(part[name].shape[1:] != new[name].shape[1:] for name in new):
                continue  # of a lake whose columns were declared otherwise
            rows = np.flatnonzero(~np.isin(part["records"], known))[:room]
            found.append({name: values[rows] for name, values in part.items()})
            known, room = np.concatenate([known, part["records"]]), room - len(rows)
        return {name: np.concatenate([part[name] for part in found]) for name in new} if found else {}

    def forget(self, records: WordArray, persons: WordArray) -> int:
        """Removes records with these hashes, or about persons with these hashes; their number."""
        rows = 0
        for path in sorted(self.folder.glob("*/*.npz")):
            with np.load(path) as arrays:
                kept = {name: arrays[name] for name in arrays.files}
            gone = np.isin(kept["records"], records) | np.isin(kept["persons"], persons)
            if gone.any():
                rows += int(gone.sum())
                _save(path, {name: values[~gone] for name, values in kept.items()})
        return rows

    def expire(self, newest: int) -> None:
        """Removes the records of this version and all before it."""
        for path in self.folder.glob("*/*.npz"):
            if int(path.stem) <= newest:
                path.unlink()

    def add(self, version: int, new: Mapping[str, np.ndarray]) -> None:
        """Keeps the records of a version that is about to be published, and no more than can be needed."""
        for folder in self.folder.glob("*"):
            if folder.name != self._draw:
                shutil.rmtree(folder)
        place = self.folder / self._draw
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        _save(place / f"{version:06d}.npz", new)
        rows = 0
        for path in sorted(place.glob("*.npz"), reverse=True):
            if rows >= self._together:
                path.unlink()
                continue
            with np.load(path) as arrays:
                rows += len(arrays["records"])


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with write_atomically(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
