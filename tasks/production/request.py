"""What a run was asked for, and the job that its workers get: everything pinned by digest."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pass_core.channel.draws import key_id
from pass_core.errors import ConfigError, DataError
from tasks.config import Config
from tasks.extractors.loading import load_extractor
from tasks.production.interfaces import Job, PinnedColumns
from tasks.production.manifest import Pins
from tasks.production.source import LakeSource
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.sections.lake import LakeConfig
from tasks.storage.files import digest, json_digest
from tasks.storage.models import model_digest
from tasks.storage.parquet import TableInfo


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be protected, with what, and what was decided about it."""

    key: RunKey
    source: str
    state: Path
    layout: Layout  # where model and pool lie
    draw_key: bytes = dataclasses.field(repr=False)
    only: Callable[[str], bool] | None = None  # partitions to look at; None: all
    new_columns: bool = False
    drop_missing: bool = False
    redraw: str | None = None  # why records may be drawn more often than the limit
    partial: bool = False  # publish what succeeded when something failed


def lake_section(config: Config, request: Request) -> LakeConfig:
    """The data set's section, with the lake that is to be protected as its source and vectors as long as the pool's.

    Raises:
        DataError: there is no model with its pool.
    """
    key = request.key
    section = config.dataset.get(key.dataset)
    if not isinstance(section, LakeConfig):
        raise ConfigError(f"dataset.{key.dataset}: expected a section with `reader: lake` that names the lake's columns")
    for name in ("model", "pool"):
        path = request.layout.artefact(name, key)
        if not path.exists():
            raise DataError(f"{path}: expected a trained model with its pool; run the pipeline first, or give --root")
    shape = TableInfo.load(request.layout.artefact("pool", key)).payload.shape
    place = request.source if "://" in request.source else str(Path(request.source).resolve())
    return dataclasses.replace(section, source=place, payload_shape=shape)


def make_job(request: Request, config: Config, source: LakeSource, columns: PinnedColumns, plain_lists: bool) -> Job:
    """The job of a run, with digests of all that it depends on."""
    key, section = request.key, lake_section(config, request)
    model, pool = (request.layout.artefact(name, key) for name in ("model", "pool"))
    release, forbid = config.release.get(key.dataset, ()), config.pool.forbid
    _, chosen, extractor = load_extractor(section, config.extractor, source.payload, config.compute.device, key.dataset)
    recipe = [section.extractor, dataclasses.asdict(chosen), extractor.weights_digest, forbid]
    leaving = [str(source.released_schema(release, plain_lists)), source.partition_columns, section.payload_is_path]
    pins = Pins(
        dataset=key.dataset,
        model=model_digest(model),
        pool=digest(pool),
        key=key_id(request.draw_key),
        recipe=json_digest(recipe),
        columns=json_digest(leaving),
    )
    return Job(
        pins=pins,
        dataset=key.dataset,
        method=str(key.method),
        lake=section,
        extractor=config.extractor,
        release=release,
        forbid=forbid,
        device=config.compute.device,
        model=model,
        pool=pool,
        staging=request.state / "staging",
        columns=columns,
        plain_lists=plain_lists,
        key=request.draw_key,
        ledger_key=b"",  # known once the lock is held
    )
