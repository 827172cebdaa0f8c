"""Withdrawals that a target knows of: who may still be shown by a version that is published, also after a rollback."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pass_core.errors import DataError
from tasks.production.manifest import Manifest, Receipts
from tasks.storage.files import read_json, write_json

FOLDER = "withdrawals"  # in the private state folder


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedWithdrawal:
    """Donors who withdrew, by their numbers in the pool before."""

    pool: str  # digest of the pool before
    after: str  # digest of the pool without them
    donors: tuple[int, ...]
    models: str  # root folder of the pool and the models without them


def note_withdrawal(state: Path, withdrawal: NotedWithdrawal) -> None:
    """Makes a target remember a withdrawal; a repetition changes nothing."""
    folder = state / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_json(folder / f"{withdrawal.after[:32]}.json", dataclasses.asdict(withdrawal))


def noted_withdrawals(state: Path) -> list[NotedWithdrawal]:
    """All withdrawals that the target knows of."""
    found = []
    for path in sorted((state / FOLDER).glob("*.json")):
        raw = read_json(path)
        try:
            found.append(NotedWithdrawal(**raw | {"donors": tuple(raw["donors"])}))
        except (KeyError, TypeError):
            raise DataError(f"{path}: expected a withdrawal, found a damaged file; withdraw the donors again") from None
    return found


def still_shown(manifest: Manifest, state: Path, withdrawals: Sequence[NotedWithdrawal]) -> list[str]:
    """The published partitions that show a donor who has withdrawn, from their pool or from a smaller one made of it."""
    receipts, gone = Receipts(state / "receipts"), {one.pool: one for one in withdrawals}
    found = []
    for name, receipt in manifest.partitions.items():
        if receipt.pins.pool in gone:
            shown = receipts.donors(receipt)
            if shown[list(_gone(receipt.pins.pool, len(shown), gone))].any():
                found.append(name)
    return found


def _gone(pool: str, size: int, withdrawals: Mapping[str, NotedWithdrawal]) -> Iterator[int]:
    """Numbers in a pool of this size of all who withdrew from it, at once or later."""
    kept = np.arange(size)
    while pool in withdrawals:
        one = withdrawals[pool]
        yield from (int(kept[number]) for number in one.donors)
        kept, pool = np.delete(kept, list(one.donors)), one.after
