"""Withdraws donors: a new pool without them, and models that never draw them; the other donors' chances still sum to one."""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from pass_core.data import IntArray
from pass_core.errors import DataError, MethodError
from pass_core.methods.base import Withdrawable, find_method
from pass_core.storage.models import describe_model, load_tensors, save_tensors
from tasks.production.manifest import Pins, Receipt, Receipts
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.sections.dataset import DatasetConfig
from tasks.storage.files import digest, publish, read_json, staging_folder, storage_errors, write_json
from tasks.storage.parquet import PERSON, RECORD_ID, copy_description, read_folder, shard_path, write_table

FILE = "withdrawal.json"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """The origin of a pool from which donors were withdrawn."""

    pool: str  # digest of the pool before
    models: tuple[str, ...]  # digests of the models before
    donors: tuple[int, ...]  # withdrawn donors: numbers in the pool before


def read_withdrawal(pool: Path) -> Withdrawal | None:
    """The withdrawal that made a pool; None where there was none."""
    if not (pool / FILE).exists():
        return None
    raw = read_json(pool / FILE)
    try:
        return Withdrawal(raw["pool"], tuple(raw["models"]), tuple(raw["donors"]))
    except (KeyError, TypeError):
        raise DataError(f"{pool / FILE}: expected a withdrawal, found a damaged file; withdraw the donors again") from None


def still_good(receipt: Receipt, now: Pins, left: Withdrawal, receipts: Receipts) -> bool:
    """Whether a partition may stay as it is: it was made before donors were withdrawn, and shows none of them."""
    if receipt.pins.pool != left.pool or receipt.pins.model not in left.models:
        return False
    if set(receipt.pins.changes(now)) - {"model", "pool"}:
        return False
    with contextlib.suppress(DataError):  # a lost or damaged receipt: the partition is protected again
        return not receipts.donors(receipt)[list(left.donors)].any()
    return False


def withdraw(
    before: Layout, after: Layout, dataset: str, config: DatasetConfig, ids: Sequence[str], *, by: Literal["record", "person"]
) -> Withdrawal:
    """Writes pool and models without these donors below another root; messages contain no id."""
    pool = before.artefact("pool", RunKey(dataset))
    table = read_folder(pool)
    names, wanted = table.column(RECORD_ID if by == "record" else PERSON).to_pylist(), set(ids)
    if (unknown := len(wanted - set(names))) or not wanted:
        raise DataError(f"expected the {by} ids of donors, found {unknown} of {len(wanted)} that are not in the pool; check them")
    left = [k for k, name in enumerate(names) if name in wanted]
    kept = np.setdiff1d(np.arange(len(table)), left)
    rest = table.take(pa.array(kept))
    for name in config.useful:
        if lost := len(set(table.column(name).to_pylist()) - set(rest.column(name).to_pylist())):
            found = f"found none for {lost} class(es) of {name!r}"
            raise DataError(f"expected a donor of every useful class to remain, {found}; sample a new pool and train")
    models = sorted(path for path in before.artefact("model", RunKey(dataset, "*")).parent.glob("*") if path.is_dir())
    withdrawal = Withdrawal(digest(pool), tuple(map(digest, models)), tuple(left))
    with storage_errors(after.root), staging_folder(after.staging, f"withdraw-{dataset}") as staging:
        write_table(rest, shard_path(staging / "pool", 0))
        copy_description(pool, staging / "pool")
        write_json(staging / "pool" / FILE, dataclasses.asdict(withdrawal))
        renewed = digest(staging / "pool")
        for model in models:
            _without(model, staging / model.name, kept, renewed)
        for model in models:
            publish(staging / model.name, after.artefact("model", RunKey(dataset, model.name)))
        publish(staging / "pool", after.artefact("pool", RunKey(dataset)))
    return withdrawal


def _without(model: Path, folder: Path, kept: IntArray, pool_digest: str) -> None:
    description = describe_model(model)
    method = find_method(description["method"])
    if description["has_channel"] and not isinstance(method, Withdrawable):
        raise MethodError(f"expected a method that can drop donors, found {description['method']}; train it on a new pool")
    state = load_tensors(model / "model.safetensors")
    folder.mkdir()
    renewed = method.without_donors(state, kept) if isinstance(method, Withdrawable) else state
    save_tensors(folder / "model.safetensors", renewed)
    write_json(folder / "model.json", description | {"pool_size": len(kept), "pool_digest": pool_digest})
