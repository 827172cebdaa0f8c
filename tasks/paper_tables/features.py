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
    config = config.with_names((dataset,), config.methods)
    section = config.dataset[dataset]
    missing = tuple(sorted(set(attributes) - set(section.attribute_names())))  # attributes without a role stay with the records
    section = dataclasses.replace(section, kept=section.kept + missing)
    config = dataclasses.replace(config, dataset={**config.dataset, dataset: section})
    layout, key = _layout(dataset, config, root, project), RunKey(dataset)
    if not layout.step_report("extract", key).exists():
        for name in STEPS_TO_FEATURES:
            if name != "generate" or is_generated(dataset):
                run_step(STEPS[name], key, config, layout, "bench", progress=progress, store=project)
    folder = layout.artefact("features", key)
    splits = np.array(read_folder(folder, [SPLIT]).column(SPLIT).to_pylist())
    train, test = (int((splits == split).sum()) for split in ("train", "test"))
    counts = {"train_records": train, "test_records": test}
    return FeatureSet(dataset=dataset, folder=folder, digest=digest(folder), extractor=section.extractor, **counts)


def _layout(dataset: str, config: Config, root: Path, project: Path) -> Layout:
    """A separate root for features that differ in raw files, settings or code."""
    # PASS_RAW_DATA, or the project's own folder, which DVC's stages always read.
    elsewhere, section = "" if "DVC_STAGE" in os.environ else os.environ.get("PASS_RAW_DATA"), config.dataset[dataset]
    raw_root = None if is_generated(dataset) else Path(elsewhere or project / "data" / "raw")
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


def _signature(folder: Path, dataset: str) -> str:
    """Names, sizes and times of the raw files."""
    if not folder.is_dir():
        advice = f"set PASS_RAW_DATA to the folder that holds {dataset}/, laid out as in docs/datasets.md"
        raise DataError(f"data set {dataset}: expected its published files in {folder}, found no such folder; {advice}")
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        stat = file.stat()
        whole.update(f"{file.relative_to(folder).as_posix()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return whole.hexdigest()
