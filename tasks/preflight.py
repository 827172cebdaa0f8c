"""Checks before the first step: finds at once what can be wrong, without importing torch or Prefect.

A problem is one line: the path of a parameter or a file, what was expected, what was found, what to do. Only certain errors are
reported; what needs the data themselves is checked by the step that reads them. Lakes in object stores are not opened here.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tasks.datasets
import tasks.extractors
from pass_core import discovery
from pass_core.errors import ConfigError, PassError
from tasks.config import Config, nearest, override, parse, parse_overrides, read_params
from tasks.config_types import entry_of, entry_value
from tasks.production.draw_key import find_key
from tasks.production.options import ProtectOptions
from tasks.running.layout import Layout, layout_at
from tasks.running.step_io import RunKey

if TYPE_CHECKING:
    from tasks.lakes.open import OpenLake
    from tasks.sections.lake import LakeConfig

MAX_FILES = 2000  # of a lake, whose footers are read
MAX_ROWS = 5_000_000  # whose split is counted
MAX_PERSONS = 20_000  # whose split is drawn


def check_run(
    params: Path,
    settings: Iterable[str] = (),
    *,
    datasets: Sequence[str] = (),
    methods: Sequence[str] = (),
    engine: Literal["dvc", "in-process"] = "in-process",
    root: Path | None = None,
    steps: Sequence[str] = ("ingest", "extract", "sample_pool"),
) -> list[str]:
    """All problems of a run, or of the named steps of it."""
    config, problems = _read(params, settings, datasets, methods)
    if config is None:
        return problems
    project = params.resolve().parent
    if engine == "dvc" and not (project / "dvc.yaml").exists():
        problems.append(f"{project / 'dvc.yaml'}: expected for --engine dvc, found none; give --engine in-process")
    for name in config.datasets:
        section = config.dataset[name]
        if engine == "dvc" and not section.needs_raw:
            problems.append(
                f"dataset.{name}.source: expected none in a versioned run, which reads data/raw/{name} "
                f"(`pass-pipeline datasets add`), found a path; remove it, or give --engine in-process"
            )
        elif "ingest" in steps:
            pool = config.pool.donors if "sample_pool" in steps else None
            folder = root or project / "data" / ("" if engine == "dvc" else "runs/default")
            raw = layout_at(folder, raw_data_from_environment=engine != "dvc").artefact("raw", RunKey(name))
            problems += _check_data(f"dataset.{name}", section, raw, pool)
        if "extract" in steps and section.extractor in discovery.available(tasks.extractors):
            problems += _check_extractor(f"dataset.{name}", section, config.extractor)
    return problems


def check_protect(options: ProtectOptions) -> list[str]:
    """All problems of protecting a lake that can be found before it starts."""
    source, target, dataset = options.source, options.target, options.dataset
    config, problems = _read(Path(options.params), options.settings, [dataset], [options.method])
    if any(setting.startswith("seed=") for setting in options.settings):
        problems.append("seed: expected none in production, where draws use the secret key and a seed can be guessed; remove it")
    if not options.key_block:
        try:
            find_key(Path(options.key_file) if options.key_file else None, os.environ)
        except PassError as error:
            problems.append(str(error))
    if "://" not in source + target:
        here, there = Path(source).resolve(), Path(target).resolve()
        if here == there or here in there.parents or there in here.parents:
            problems.append(f"{target}: expected a target outside the source {source}, found one inside; choose another folder")
    if config is None:
        return problems
    section: Any = config.dataset[dataset]
    if not hasattr(section, "record_id"):
        return [*problems, f"dataset.{dataset}.reader: expected lake, found {section.reader or dataset}; name the lake's section"]
    for path in (Layout(Path(options.models)).artefact(artefact, options.key) for artefact in ("model", "pool")):
        if not path.exists():
            problems.append(
                f"{path}: expected a trained model and its pool, found none; run the pipeline first, or give --models"
            )
    # A lake to be protected needs no labels.
    roles = {"private": (), "useful": (), "general": (), "kept": ()}
    return problems + list(_check_lake(f"dataset.{dataset}", section, source, None, ignored=roles))


def _read(
    params: Path, settings: Iterable[str], datasets: Sequence[str], methods: Sequence[str]
) -> tuple[Config | None, list[str]]:
    try:
        raw = read_params(params)
    except ConfigError as error:
        return None, [str(error)]
    problems = []
    for setting in settings:
        try:
            for dotted, text in parse_overrides([setting]).items():
                override(raw, dotted, text)
        except ConfigError as error:
            problems.append(str(error))
    config, found = parse(raw, datasets=datasets, methods=methods)
    return config, problems + found


def _check_data(path: str, section: Any, raw: Path, donors: int | None) -> Iterator[str]:
    name = path.removeprefix("dataset.")
    if hasattr(section, "record_id"):
        yield from _check_lake(path, section, section.source if "://" in section.source else str(raw / section.source), donors)
    elif not raw.is_dir() and not hasattr(entry_of(tasks.datasets, section.reader or name), "generate"):
        yield f"{path}: expected the published files in {raw}, found no folder; set PASS_RAW_DATA to the folder that holds {name}"


def _check_extractor(path: str, section: Any, settings: Mapping[str, Any]) -> Iterator[str]:
    """The extractor reads this kind of payload, and its weights, where they are files, are the pinned ones."""
    kinds = entry_value(tasks.extractors, section.extractor, "payloads")
    kind = getattr(section, "payload_kind", None)
    if kind is not None and kind not in kinds:
        yield f"{path}.extractor: {section.extractor} reads {' or '.join(kinds)}, found payload_kind {kind}; choose another one"
    chosen = settings.get(section.extractor) or entry_value(tasks.extractors, section.extractor, "config_type")()
    if hasattr(chosen, "check_files"):
        try:
            chosen.check_files()
        except PassError as error:
            yield f"extractor.{section.extractor}: {error}"


def _check_lake(
    path: str, section: Any, source: str, donors: int | None, ignored: Mapping[str, tuple[str, ...]] | None = None
) -> Iterator[str]:
    if "://" in source and not source.startswith("file://"):
        return
    from tasks.lakes.open import open_lake

    try:
        lake = open_lake(source, section)
        missing = list(_missing_columns(path, lake.table.schema.names, dataclasses.asdict(section) | dict(ignored or {})))
        yield from missing
        training = _training_rows(lake, section) if donors and not missing else None
    except PassError as error:
        yield f"{path}.source: {error}"
        return
    if donors and training is not None and donors > training:
        records = f"the {training} training records of {path}"
        yield f"pool.donors: expected at most {records}, found {donors}; lower it, or set it to null for half of them"


def _missing_columns(path: str, names: list[str], section: Mapping[str, Any]) -> Iterator[str]:
    for setting in ("record_id", "payload", "person", "block", "split", "private", "useful", "general", "kept", "pass_through"):
        found = section[setting]
        for column in [found] if isinstance(found, str) else found or ():
            if column not in names:
                yield (
                    f"{path}.{setting}: column {column!r}{nearest(column, names)} is not in the lake: "
                    f"expected one of {', '.join(names)}; correct the name"
                )


def _training_rows(lake: "OpenLake", config: "LakeConfig") -> int | None:
    """How many rows are for training, or at most how many; None where that takes long to find out."""
    import pyarrow.compute as pc

    from tasks.datasets.base import split_of
    from tasks.lakes.open import text_column

    if config.format != "parquet" or len(lake.fragments()) > MAX_FILES:
        return None
    with lake.reading():
        rows = int(lake.table.count_rows())  # from the files' footers
        if rows > MAX_ROWS:
            return rows
        name = config.split or config.person or config.record_id
        counts = pc.value_counts(lake.table.to_table(columns=[name]).column(0).combine_chunks())
    values, numbers = text_column(counts.field("values"), name, lake.source).to_pylist(), counts.field("counts").to_pylist()
    if not config.split and len(values) > MAX_PERSONS:
        return rows
    splits = values if config.split else [split_of(config.split_seed, value) for value in values]
    return sum(int(number) for split, number in zip(splits, numbers, strict=True) if split == "train")
