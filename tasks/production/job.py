"""Makes the job of a run: what all workers get, pinned by digest."""

from pathlib import Path

from pass_core.channel.draws import key_id
from tasks.config import Config
from tasks.extractors.engines.base import described
from tasks.extractors.loading import load_extractor_of
from tasks.production.interfaces import Job, PinnedColumns
from tasks.production.manifest import Pins
from tasks.production.source import LakeSource
from tasks.production.versions import Target
from tasks.running.step_io import RunKey
from tasks.storage.files import digest, json_digest


def make_job(
    config: Config,
    run: RunKey,
    source: LakeSource,
    target: Target,
    *,
    files: tuple[Path, Path],
    columns: PinnedColumns,
    key: bytes,
    minutes: float,
) -> Job:
    """Everything that a draw depends on; `files` are model and pool, `key` is the draw key, `minutes` the time of a partition."""
    (model, pool), device = files, config.compute.device
    section, forbid = source.config, config.pool.forbid
    named = load_extractor_of(pool, section, config.extractor, device, run.dataset)
    release, plain_lists = config.release.get(run.dataset, ()), target.plain_lists
    schema = source.released_schema(release, plain_lists)
    pins = Pins(
        dataset=run.dataset,
        model=digest(model),
        pool=digest(pool),
        key=key_id(key),
        recipe=json_digest([section.extractor, described(named.settings), named.weights_digest, forbid]),
        columns=json_digest([str(schema), source.partition_columns, section.payload_is_path]),
    )
    return Job(
        pins=pins,
        run=run,
        lake=section,
        extractor=config.extractor,
        release=release,
        forbid=forbid,
        device=device,
        model=model,
        pool=pool,
        staging=target.state / "staging",
        columns=columns,
        plain_lists=plain_lists,
        key=key,
        minutes=minutes,
    )
