"""Receipts of published partitions, with how often each donor is shown: private files, named by their content."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from pass_core.data import IntArray
from pass_core.errors import DataError
from tasks.production.manifest import Manifest, Receipt, to_json
from tasks.storage.files import sync_folder, write_atomically, write_json


class Receipts:
    """A private folder of receipts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, receipt: Receipt, donors: IntArray) -> None:
        """Saves a receipt; a repetition changes nothing."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with write_atomically(self.folder / f"{receipt.id}.npy", sync=True) as temporary, temporary.open("wb") as file:
            np.save(file, donors)
        write_json(self.folder / f"{receipt.id}.json", to_json(receipt))
        sync_folder(self.folder)

    def donors(self, receipt: Receipt) -> IntArray:
        """How often each donor of its pool is shown in a published partition."""
        path = self.folder / f"{receipt.id}.npy"
        try:
            counts: IntArray = np.load(path)
        except (OSError, ValueError):
            raise DataError(
                f"{path}: expected the receipt of a published partition, found none or a damaged one; restore the state folder"
            ) from None
        return counts

    def showing(self, manifest: Manifest, pool: str, donors: Iterable[int]) -> list[str]:
        """Published partitions that were made from a pool and show any of these donors (numbers in that pool)."""
        wanted = np.array(sorted(donors), dtype=np.int64)
        made = {name: receipt for name, receipt in manifest.partitions.items() if receipt.pins.pool == pool}
        return [name for name, receipt in made.items() if self.donors(receipt)[wanted].any()]
