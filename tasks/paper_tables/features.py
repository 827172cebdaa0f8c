"""Features of a data set for its tables: extracted once by the pipeline's own steps, and reused."""

import dataclasses
import hashlib
import os
from pathlib import Path

import numpy as np

from pass_core.errors import DataError
from tasks.config import Config
from tasks.paper_tables.cells import FeatureSet
from tasks.registry import STEPS, is_generated
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.running.step_io import Reporter, RunKey
from tasks.storage.code_digest import code_digest
from tasks.storage.files import digest, json_digest
from tasks.storage.parquet import SPLIT, read_folder

STEPS_TO_FEATURES = ("generate", "ingest", "validate", "extract")


def prepare_features(
    dataset: str, attributes: tuple[str, ...], config: Config, *, root: Path, project: Path, progress: Reporter
) -> FeatureSet:
    """The features of a data set with these attributes, extracted below `root` where they are missing."""
    config = _with_attributes(config.with_names((dataset,), config.methods), dataset, attributes)
    layout, key = _layout(dataset, config, root, project), RunKey(dataset)
    if not layout.step_report("extract", key).exists():
        for name in STEPS_TO_FEATURES:
            if name != "generate" or is_generated(dataset):
                run_step(STEPS[name], key, config, layout, "bench", progress=progress, store=project)
    folder = layout.artefact("features", key)
    splits = np.array(read_folder(folder, [SPLIT]).column(SPLIT).to_pylist())
    train, test = (int((splits == split).sum()) for split in ("train", "test"))
    used = config.dataset[dataset].extractor
    return FeatureSet(
        dataset=dataset, folder=folder, digest=digest(folder), train_records=train, test_records=test, extractor=used
    )


def _with_attributes(config: Config, dataset: str, attributes: tuple[str, ...]) -> Config:
    """Keeps attributes without a role in the data set's section with the records."""
    section = config.dataset[dataset]
    missing = tuple(sorted(set(attributes) - set(section.attribute_names())))
    kept = dataclasses.replace(section, kept=section.kept + missing)
    return dataclasses.replace(config, dataset={**config.dataset, dataset: kept})


def _layout(dataset: str, config: Config, root: Path, project: Path) -> Layout:
    """A separate root for features that differ in raw files, settings or code."""
    section, raw_root = config.dataset[dataset], None if is_generated(dataset) else raw_folder(project)
    entries = (f"tasks.datasets.{section.reader or dataset}", f"tasks.extractors.{section.extractor}")
    recipe = {
        "section": dataclasses.asdict(section),
        "extractor": str(config.extractor.get(section.extractor)),
        "compute": dataclasses.asdict(config.compute),
        "seed": config.seed if is_generated(dataset) else None,
        "raw": _signature(raw_root / dataset, dataset) if raw_root and section.needs_raw else "",
        "code": code_digest(("tasks.steps.ingest", "tasks.steps.extract", *entries)),
    }
    return Layout(root / "data" / f"{dataset}-{json_digest(recipe)[:16]}", raw_root)


def raw_folder(project: Path) -> Path:
    """The folder of raw data sets: PASS_RAW_DATA, or the project's own, which DVC's stages always read."""
    elsewhere = os.environ.get("PASS_RAW_DATA")
    return Path(elsewhere) if elsewhere and "DVC_STAGE" not in os.environ else project / "data" / "raw"


def _signature(folder: Path, dataset: str) -> str:
    """Names, sizes and times of the raw files."""
    if not folder.is_dir():
        raise DataError(
            f"data set {dataset}: expected its published files in {folder}, found no such folder; set PASS_RAW_DATA to the "
            f"folder that holds {dataset}/, laid out as in docs/datasets.md"
        )
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        stat = file.stat()
        whole.update(f"{file.relative_to(folder).as_posix()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return whole.hexdigest()
