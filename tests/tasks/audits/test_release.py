"""An audit attacks the records that the protector was trained on, and only a release that was made under its own seed."""

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from pass_core.auditing.recipient import Recipient
from pass_core.errors import ChecksumMismatch, DataError
from tasks.audits.release import release_subject
from tasks.config import Config
from tasks.payloads.payload import vectors
from tasks.registry import STEPS
from tasks.release.protector import read_protector
from tasks.running.layout import Layout
from tasks.running.progress import silent
from tasks.running.step import run_step
from tasks.running.step_io import RunKey, StepIO
from tasks.storage.files import digest
from tasks.storage.parquet import TableInfo, array_of, read_features, read_folder, read_table, shard_path, write_table
from tests.conftest import PROJECT, write_params

KEY = RunKey("synthetic_motion", "pass_substitution")
ENTRIES = {
    "pass-pipeline audit": "import sys; from flows.cli.main import main; sys.argv[0] = 'pass-pipeline'; main()",
    "python -m tasks audit": "import sys; from tasks.__main__ import main; sys.exit(main())",
}


@pytest.fixture
def copied(tiny_root: Path, tmp_path: Path) -> Layout:
    """The tiny project to change."""
    shutil.copytree(tiny_root, tmp_path / "root")
    return Layout(tmp_path / "root")


def _run(step: str, config: Config, layout: Layout) -> None:
    run_step(STEPS[step], KEY, config, layout, "test")


@pytest.mark.parametrize("entry", ENTRIES)
def test_audit_with_another_seed_than_the_releases_is_refused(copied: Layout, entry: str, tmp_path: Path) -> None:
    """With another seed it used to attack records that the protector had not learnt from, and reported no leak."""
    write_params(tmp_path)  # its seed made the release
    before = digest(copied.artefact("audit", KEY))
    command = ["audit", "release"] if entry == "pass-pipeline audit" else ["audit"]
    arguments = [*command, "--dataset", KEY.dataset, "--method", str(KEY.method), "--root", "root", "--set", "seed=8", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", ENTRIES[entry], *arguments],
        cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "expected a release drawn with key id" in line
    assert "audit with the seed of the release, or run substitute again with this seed" in line
    assert digest(copied.artefact("audit", KEY)) == before


def test_audit_reads_which_records_were_trained_on(tiny_config: Config, copied: Layout) -> None:
    """The model is of seed 3; released and audited under seed 8, its members stay those of seed 3."""
    path = copied.artefact("trained_on", KEY)
    trained_on = set(read_table(path).column("record_id").to_pylist())
    features = read_features(copied.artefact("features", KEY), ())
    train = [features.record_ids[row] for row in features.rows("train")]
    assert trained_on < set(train)  # some are held out
    assert path.stat().st_mode & 0o777 == 0o600
    _run("substitute", dataclasses.replace(tiny_config, seed=8), copied)
    _run("audit", dataclasses.replace(tiny_config, seed=8), copied)
    attributes = tiny_config.dataset[KEY.dataset].attributes(TableInfo.load(copied.artefact("features", KEY)).classes)
    model, pool = (copied.artefact(name, KEY) for name in ("model", "pool"))
    io = StepIO(
        key=KEY,
        inputs={name: copied.artefact(name, KEY) for name in STEPS["audit"].inputs},
        outputs={},
        data_docs=copied.root,
        cache=copied.cache,
        seed=8,
        labels=("audit", str(KEY)),
        progress=silent,
    )
    subject = release_subject(
        read_features(copied.artefact("features", KEY), attributes),
        attributes,
        read_protector(model, pool, attributes, torch.device("cpu")),
        fresh_draws=1,
        forbid="self",
        recipient=Recipient(),
        io=io,
    )
    assert subject.learnt_from is not None
    assert {train[row] for row in subject.learnt_from} == trained_on


def test_records_of_another_training_are_refused(tiny_config: Config, copied: Layout) -> None:
    path = copied.artefact("trained_on", KEY)
    table = read_table(path)
    other = table.set_column(1, "model_digest", pa.array(["0" * 64] * len(table)))
    write_table(other, path)
    with pytest.raises(ChecksumMismatch, match=r"expected training records that model .*, found records of model 0000"):
        _run("audit", tiny_config, copied)
    path.unlink()
    with pytest.raises(DataError, match="expected input 'trained_on' of step audit is missing"):
        _run("audit", tiny_config, copied)


@pytest.mark.parametrize("changed", ["held out", "trained on"])
def test_a_model_depends_on_exactly_the_records_it_says(tiny_config: Config, copied: Layout, changed: str) -> None:
    """Training is repeated with other features of some records: only records that it says it learnt from may matter."""
    trained_on = read_table(copied.artefact("trained_on", KEY)).column("record_id").to_pylist()
    donors = read_folder(copied.artefact("pool", KEY), ["record_id"]).column("record_id").to_pylist()
    path = shard_path(copied.artefact("features", KEY), 0)
    table, shape = read_table(path), TableInfo.load(copied.artefact("features", KEY)).feature_shape
    ids = np.array(table.column("record_id").to_pylist())
    train = (np.array(table.column("split").to_pylist()) == "train") & ~np.isin(ids, donors)
    chosen = train & (np.isin(ids, trained_on) == (changed == "trained on"))
    features = array_of(table, "features", shape).copy()
    features[chosen] += 0.5
    write_table(table.set_column(table.column_names.index("features"), "features", vectors(features)), path)
    before = digest(copied.artefact("model", KEY))
    _run("train", tiny_config, copied)
    assert chosen.any()
    assert (digest(copied.artefact("model", KEY)) == before) == (changed == "held out")
