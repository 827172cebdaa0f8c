"""The gate for records without labels: relies on a labelled audit that passed, is recent and of this model, and on no drift."""

import dataclasses
import datetime
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from pass_core.auditing.drift import Side
from pass_core.channel.draws import inverse_cdf, uniform_words
from pass_core.errors import ChecksumMismatch, ConfigError, DataError, SchemaMismatch
from pass_core.randomness import stream
from tasks.audits.unlabelled import (
    NOT_ATTACKED,
    UnlabelledAudit,
    audit_unlabelled,
    read_labelled_audit,
    side_of,
    unlabelled_document,
)
from tasks.config import Config, load_config
from tasks.payloads.payload import vectors
from tasks.registry import STEPS
from tasks.release.protector import Protector, read_protector
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.running.step_io import RunKey
from tasks.storage.files import digest, read_json, write_json
from tasks.storage.parquet import FEATURES, TableInfo, array_of, read_features, read_folder, shard_path, write_table
from tests.conftest import LENIENT, TINY, run_all, write_params

KEY = RunKey("synthetic_motion", "pass_substitution")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Tiny parameters under which the labelled audit passes."""
    return load_config(write_params(tmp_path_factory.mktemp("params"), audit=TINY["audit"] | {"thresholds": LENIENT}))


@pytest.fixture(scope="module")
def audited(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a trained and audited protector; read-only for tests."""
    root = tmp_path_factory.mktemp("audited")
    run_all(config, root, "pass_substitution", upto="audit")
    assert read_json(Layout(root).artefact("audit", KEY))["verdict"] == "pass"
    return root


@pytest.fixture
def layout(audited: Path, tmp_path: Path) -> Layout:
    """The same, to be changed."""
    shutil.copytree(audited, tmp_path / "root")
    return Layout(tmp_path / "root")


def _new_features(layout: Layout, folder: Path, scale: float = 1.0) -> Path:
    """The training records without their labels, as a folder of features."""
    source = layout.artefact("features", KEY)
    info = TableInfo.load(source)
    table = read_folder(source)
    table = table.filter(pa.compute.equal(table.column("split"), "train"))
    changed = vectors(scale * array_of(table, FEATURES, info.feature_shape))
    kept = table.select(["record_id", "split", "person", "block"]).append_column(FEATURES, changed)
    write_table(kept, shard_path(folder, 0))
    info.save(folder)
    return folder


def _failed(document: dict[str, Any]) -> set[str]:
    return {check["name"] for check in document["checks"] if check["outcome"] == "leak shown"}


def test_records_like_the_audited_ones_pass_and_the_document_says_what_it_is(
    config: Config, layout: Layout, tmp_path: Path
) -> None:
    path = _new_features(layout, tmp_path / "new")
    write_json(tmp_path / "audit.json", unlabelled_document(path, KEY, config, layout))
    found, labelled = read_json(tmp_path / "audit.json"), read_json(layout.artefact("audit", KEY))
    assert found["verdict"] == "pass", found["reasons"]
    assert (found["basis"], labelled["basis"]) == ("unlabelled", "labelled")
    assert found["not_promised"][: len(NOT_ATTACKED)] == list(NOT_ATTACKED)
    assert found["attributes"] == labelled["attributes"]  # as found on the labelled records
    assert found["unlabelled"]["labelled_audit"] == digest(layout.artefact("audit", KEY))
    assert found["unlabelled"]["records"] == len(read_features(path, ()).record_ids)
    assert {drift["name"] for drift in found["unlabelled"]["drift"]} == {
        "feature_drift_at_most",
        "entropy_drift_at_most",
        "exposure_drift_at_most",
    }
    assert found["protected_digest"] is None
    assert labelled["unlabelled"] is None


def test_shifted_records_fail(config: Config, layout: Layout, tmp_path: Path) -> None:
    found = unlabelled_document(_new_features(layout, tmp_path / "new", scale=3.0), KEY, config, layout)
    assert found["verdict"] == "fail"
    assert "feature_drift_at_most" in _failed(found)
    assert any("features separate new records from the audited ones" in reason for reason in found["reasons"])


def test_table_of_payloads_is_extracted_here(config: Config, layout: Layout, tmp_path: Path) -> None:
    """Without a label, an id or a person; values as in the folder of features give the same figures."""
    table = read_folder(layout.artefact("records", KEY))
    table = table.filter(pa.compute.equal(table.column("split"), "train"))
    write_table(table.select(["record_id", "person", "block", "payload"]), tmp_path / "lake" / "part.parquet")
    by_table = unlabelled_document(tmp_path / "lake", KEY, config, layout)
    by_features = unlabelled_document(_new_features(layout, tmp_path / "new"), KEY, config, layout)
    assert by_table["unlabelled"]["drift"] == by_features["unlabelled"]["drift"]
    write_table(table.select(["payload"]), tmp_path / "bare.parquet")
    bare = unlabelled_document(tmp_path / "bare.parquet", KEY, config, layout)
    assert bare["unlabelled"]["drift"][0]["unit"] == "record"
    assert bare["unlabelled"]["records"] == len(table)


@pytest.mark.parametrize(
    ("extractor", "value", "error", "message"),
    [
        ("identity", np.nan, DataError, "the extractor returned features that are not finite"),
        ("logmel", 0.0, ConfigError, r"dataset\.synthetic_motion\.extractor: logmel reads audio payloads"),
    ],
    ids=["not finite", "payload kind"],
)
def test_features_of_new_records_are_checked(
    config: Config, layout: Layout, tmp_path: Path, extractor: str, value: float, error: type[Exception], message: str
) -> None:
    """The same checks as in step extract: no audit of features that are no numbers, no extractor of another payload kind."""
    table = read_folder(layout.artefact("records", KEY))
    payload = array_of(table, "payload", (2, 128)).copy()
    payload[5] = value
    write_table(pa.table({"payload": vectors(payload)}), tmp_path / "lake.parquet")
    section = dataclasses.replace(config.dataset[KEY.dataset], extractor=extractor)
    changed = dataclasses.replace(config, dataset={KEY.dataset: section})
    with pytest.raises(error, match=message):
        unlabelled_document(tmp_path / "lake.parquet", KEY, changed, layout)


def test_old_audit_fails(config: Config, layout: Layout, tmp_path: Path) -> None:
    path = layout.provenance("audit", KEY)
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=config.audit.valid_days + 2)
    write_json(path, read_json(path) | {"time": long_ago.isoformat()})
    found = unlabelled_document(_new_features(layout, tmp_path / "new"), KEY, config, layout)
    assert _failed(found) == {"valid_days"}
    assert "367 day(s) old, at most 365 allowed" in found["reasons"][0]


def test_failed_audit_fails(config: Config, layout: Layout, tmp_path: Path) -> None:
    path = layout.artefact("audit", KEY)
    write_json(path, read_json(path) | {"verdict": "fail"})
    found = unlabelled_document(_new_features(layout, tmp_path / "new"), KEY, config, layout)
    assert _failed(found) == {"labelled_audit"}


def test_audit_of_another_model_or_of_unknown_age_is_refused(config: Config, layout: Layout, tmp_path: Path) -> None:
    new = _new_features(layout, tmp_path / "new")
    layout.provenance("audit", KEY).unlink()
    with pytest.raises(DataError, match=r"expected the time of audit\.json, found none; run audit again"):
        unlabelled_document(new, KEY, config, layout)
    write_json(layout.provenance("audit", KEY), {"time": datetime.datetime.now(datetime.UTC).isoformat()})
    other = load_config(write_params(tmp_path, seed=4))
    run_step(STEPS["train"], KEY, other, layout, "test")
    with pytest.raises(ChecksumMismatch, match=r"labelled audit: expected one of model .*run audit again"):
        unlabelled_document(new, KEY, config, layout)


def test_features_of_another_extractor_and_missing_payloads_are_told(config: Config, layout: Layout, tmp_path: Path) -> None:
    new = _new_features(layout, tmp_path / "new")
    write_json(new / "table.json", read_json(new / "table.json") | {"feature_shape": [256]})
    with pytest.raises(SchemaMismatch, match=r"\(shape \(2, 128\), extraction none\), found others \(shape \(256,\)"):
        unlabelled_document(new, KEY, config, layout)
    write_table(pa.table({"other": [1.0] * 30}), tmp_path / "table.parquet")
    with pytest.raises(SchemaMismatch, match="missing columns: payload; found other"):
        unlabelled_document(tmp_path / "table.parquet", KEY, config, layout)


def _gate(config: Config, layout: Layout, protector: Protector, new: Side) -> UnlabelledAudit:
    table = read_features(layout.artefact("features", KEY), ())
    return audit_unlabelled(
        protector,
        read_labelled_audit(layout, KEY),
        reference=side_of(protector, table, table.rows("test"), forbid=config.pool.forbid),
        new=new,
        config=config.audit,
        rng_for=lambda *labels: stream(1, *labels),
        now=datetime.datetime.now(datetime.UTC),
    )


def test_gate_looks_at_the_draws_it_is_given(config: Config, audited: Path) -> None:
    """As production calls it: features and the donors drawn for them."""
    layout = Layout(audited)
    attributes = config.dataset["synthetic_motion"].attributes(TableInfo.load(layout.artefact("features", KEY)).classes)
    protector = read_protector(*(layout.artefact(name, KEY) for name in ("model", "pool")), attributes, torch.device("cpu"))
    table = read_features(layout.artefact("features", KEY), ())
    rows = table.rows("train")
    side = side_of(protector, table, rows, forbid=config.pool.forbid)
    assert side.channel is not None
    p = np.concatenate([block for _, block in side.channel(np.arange(len(rows))).blocks(side.features)])
    drawn = inverse_cdf(p, uniform_words(stream(2, "draws"), len(p)))
    good = _gate(config, layout, protector, dataclasses.replace(side, drawn=drawn))
    assert good.verdict == "pass", good.reasons
    assert good.findings.drift[-1].name == "usage_drift_at_most"
    replayed = np.full_like(drawn, drawn[0])
    bad = _gate(config, layout, protector, dataclasses.replace(side, drawn=replayed))
    assert [check.name for check in bad.checks if not check.passed] == ["usage_drift_at_most"]
