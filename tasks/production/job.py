"""The job that all workers of a run get: everything that a draw depends on, pinned by digest."""

import dataclasses
from pathlib import Path

from pass_core.channel.draws import key_id
from pass_core.errors import ConfigError, DataError
from tasks.config import Config
from tasks.extractors.base import load_extractor
from tasks.production.interfaces import Job, PinnedColumns
from tasks.production.manifest import Pins
from tasks.production.options import ProtectOptions, absolute
from tasks.production.source import LakeSource
from tasks.running.layout import Layout
from tasks.sections.lake import LakeConfig
from tasks.storage.files import digest, json_digest
from tasks.storage.parquet import TableInfo


def lake_section(config: Config, options: ProtectOptions, layout: Layout) -> LakeConfig:
    """The data set's section, with the lake to protect as its source and vectors as long as the pool's."""
    section = config.dataset.get(options.dataset)
    if not isinstance(section, LakeConfig):
        raise ConfigError(f"dataset.{options.dataset}: expected a section with `reader: lake` that names the lake's columns")
    for name in ("model", "pool"):
        path = layout.artefact(name, options.key)
        if not path.exists():
            raise DataError(f"{path}: expected a trained model with its pool; run the pipeline first, or give --models")
    shape = TableInfo.load(layout.artefact("pool", options.key)).payload.shape
    return dataclasses.replace(section, source=absolute(options.source), payload_shape=shape)


def make_job(
    options: ProtectOptions, config: Config, source: LakeSource, columns: PinnedColumns, *, plain_lists: bool, draw_key: bytes
) -> Job:
    """The job of a run, with digests of all that it depends on."""
    model, pool = (Layout(Path(options.models)).artefact(name, options.key) for name in ("model", "pool"))
    section, release, forbid = source.config, config.release.get(options.dataset, ()), config.pool.forbid
    _, chosen, extractor = load_extractor(section, config.extractor, source.payload, config.compute.device, options.dataset)
    recipe = [section.extractor, dataclasses.asdict(chosen), extractor.weights_digest, forbid]
    published = [str(source.released_schema(release, plain_lists)), source.partition_columns, section.payload_is_path]
    pins = Pins(
        dataset=options.dataset,
        model=digest(model),
        pool=digest(pool),
        key=key_id(draw_key),
        recipe=json_digest(recipe),
        columns=json_digest(published),
    )
    return Job(
        pins=pins,
        dataset=options.dataset,
        method=options.method,
        lake=section,
        extractor=config.extractor,
        release=release,
        forbid=forbid,
        device=config.compute.device,
        model=model,
        pool=pool,
        staging=options.state_folder / "staging",
        columns=columns,
        plain_lists=plain_lists,
        key=draw_key,
        ledger_key=b"",  # known once the lock is held
    )
