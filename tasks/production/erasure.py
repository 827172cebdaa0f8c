"""Erases records from a protected lake: notes them, cleans what is private, and has the ordinary run publish without them.

The receipt is written before anything is published, and every later run goes on from it (`erased.py`).
"""

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pass_core.channel.draws import keyed_words
from pass_core.errors import ConfigError, DataError, StorageError
from tasks.production.draw_ledger import Ledger
from tasks.production.erased import Erasure, Erasures
from tasks.production.evidence import Evidence
from tasks.production.history import open_target
from tasks.production.options import ProtectOptions, absolute
from tasks.production.plan import REPAIRS
from tasks.production.run import Hooks, draw_key_of, execute, plan_of
from tasks.production.source import LakeSource
from tasks.production.versions import Target
from tasks.running.layout import Layout
from tasks.sections.lake import LakeConfig
from tasks.storage.files import storage_errors
from tasks.storage.parquet import PERSON, RECORD_ID, read_folder

CACHES = ("features", "controls", "training")  # below .cache: whatever may hold values of training records


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What an erasure did, and what is left for people to do."""

    receipt: Erasure
    unread: int  # partitions of the source that could not be read, and so may hold the records
    trained: int  # records among the model's training data (or hold-out)
    donors: int  # records among the pool's donors
    few: int  # protect.min_change, where fewer records were erased than that, so that the change would have waited; else 0
    cached: bool  # whether caches of the training run were deleted


def erase(
    options: ProtectOptions,
    records: Sequence[str],
    persons: Sequence[str],
    reason: str,
    *,
    run: Callable[[ProtectOptions], object] | None = None,
    hooks: Hooks | None = None,
) -> Erased:
    """Erases records, by their ids, and all records of persons; `run` protects the lake again, `execute` by default.

    An error of the run leaves an unfinished erasure, which the next run finishes.
    """
    hooks = hooks or Hooks()
    section, target = _checked(options, records, persons, reason)
    plan, before = plan_of(options, hooks), target.current()
    if before is None:
        raise DataError(f"{target.location}: expected a protected lake, found no published version; check TARGET and --state")
    rows, holding, unread = _search(options, section, draw_key_of(options, hooks), records, persons)
    # What the source no longer shows as it was read may have held them, too.
    changed = {one.name for one in plan.work if one.reason not in REPAIRS} | set(plan.missing)
    waiting = tuple(name for name in before.partitions if name in holding | unread | changed)
    with storage_errors(target.state), target.lock(options.break_lock):
        if target.current() != before:
            raise StorageError(f"{target.location}: another run has published meanwhile; run again")
        forgotten = _clean(options, target, records, persons)
        found = {"rows": rows, "evidence": forgotten, "partitions": len(waiting), "waiting": waiting}
        receipt = Erasures(target.state).add(records, persons, reason=reason, **found)
    layout = Layout(Path(options.models))
    trained, donors = (_count(layout.artefact(name, options.key), records, persons) for name in ("records", "pool"))
    cached = _clean_caches(layout, options.dataset) if trained != 0 else False
    (run or (lambda given: execute(given, hooks)))(options)
    receipt = next(one for one in Erasures(target.state).all() if one.number == receipt.number)
    least = options.load_config().protect.min_change
    few = least if 0 < rows < least else 0
    return Erased(few=few, receipt=receipt, unread=len(unread), trained=trained or 0, donors=donors or 0, cached=cached)


def _checked(options: ProtectOptions, records: Sequence[str], persons: Sequence[str], reason: str) -> tuple[LakeConfig, Target]:
    section = options.section(options.load_config())
    if not (records or persons):
        raise ConfigError("erase: expected ids with --record or --person, found none; give them, or a file as @FILE")
    if persons and not section.person:
        raise ConfigError(f"dataset.{options.dataset}.person: expected the column of persons, found none; erase by --record")
    if not reason.strip():
        raise ConfigError("--reason: expected why these records are erased, found nothing; the receipt keeps it")
    return section, open_target(options.target, options.state, options.target_format)


def _search(
    options: ProtectOptions, section: LakeConfig, draw_key: bytes, records: Sequence[str], persons: Sequence[str]
) -> tuple[int, set[str], set[str]]:
    """How many records the source holds, the partitions that hold them, and those that cannot be read."""
    source = LakeSource(dataclasses.replace(section, source=absolute(options.source)), draw_key)
    rows, holding, unread = 0, set(), set()
    for name, partition in source.partitions().items():
        try:
            found = source.count_named(partition, records, persons)
        except DataError:
            unread.add(name)
            continue
        rows += found
        if found:
            holding.add(name)
    return rows, holding, unread


def _clean(options: ProtectOptions, target: Target, records: Sequence[str], persons: Sequence[str]) -> int:
    """Removes staging, what killed runs left, and the records' audited evidence; the number of these."""
    for name in ("staging", "version", "retired"):
        shutil.rmtree(target.state / name, ignore_errors=True)
    key = Ledger(options.ledger_folder(options.load_config())).key()
    hashes = keyed_words(key, "ledger", (options.dataset,), records), keyed_words(key, "person", (), persons)
    return Evidence(target.state / "audited", "", 0).forget(*hashes)


def _count(folder: Path, records: Sequence[str], persons: Sequence[str]) -> int | None:
    """How many rows of a folder of records are about them; None where there is no such folder."""
    if not folder.exists():
        return None
    table = read_folder(folder, [RECORD_ID, PERSON])
    ids, people = pa.array(records, pa.string()), pa.array(persons, pa.string())
    found = pc.or_(pc.is_in(table[RECORD_ID], ids), pc.is_in(table[PERSON], people))
    return int(pc.sum(found).as_py() or 0)


def _clean_caches(layout: Layout, dataset: str) -> bool:
    """Deletes what the training run keeps to compute nothing twice; whether there was anything."""
    places = [layout.cache / name / (dataset if name == "features" else "") for name in CACHES]
    found = [place for place in places if place.exists()]
    for place in found:
        shutil.rmtree(place)
    return bool(found)
