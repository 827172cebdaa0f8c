"""Steps on the tiny project: what they write, what never leaves, and what damage does to them."""

import dataclasses
import math
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pass_core.auditing.recipient import Recipient
from pass_core.errors import ChecksumMismatch, DataError, ValidationFailed
from tasks.config import Config
from tasks.payloads.payload import vectors
from tasks.registry import STEPS
from tasks.release.rows import ReleasedRows
from tasks.running.layout import Layout
from tasks.running.step import StepReport, run_step
from tasks.running.step_io import RunKey
from tasks.storage.files import digest, read_json
from tasks.storage.parquet import array_of, read_folder, read_partition, read_table, shard_path, write_table
from tests.conftest import run_all

KEY = RunKey("synthetic_motion", "pass_substitution")


@pytest.fixture
def copied(tiny_root: Path, tmp_path: Path) -> Layout:
    """The finished tiny project, to be damaged."""
    shutil.copytree(tiny_root, tmp_path / "root")
    return Layout(tmp_path / "root")


def _run(name: str, config: Config, layout: Layout, key: RunKey = KEY) -> StepReport:
    return run_step(STEPS[name], STEPS[name].key(key.dataset, key.method), config, layout, "test")


def test_every_step_leaves_its_outputs_report_and_provenance(tiny_root: Path) -> None:
    layout = Layout(tiny_root)
    for step in STEPS.values():
        key = step.key(KEY.dataset, KEY.method)
        report = StepReport.load(layout.step_report(step.name, key))
        assert set(report.digests) == set(step.outputs)
        for name, recorded in report.digests.items():
            assert digest(layout.artefact(name, key)) == recorded
        assert read_json(layout.provenance(step.name, key))["engine"] == "test"
    assert not [p for p in layout.staging.iterdir() if p.suffix != ".lock"]


def test_versioned_files_hold_nothing_of_when_or_where(tiny_root: Path) -> None:
    import platform

    texts = [p for p in tiny_root.rglob("*") if p.suffix in {".json", ".html", ".csv"} and p.is_file()]
    unversioned = {"provenance", "docs", "published"}
    texts = [p for p in texts if p.relative_to(tiny_root).parts[0] not in unversioned | {"raw"}]
    assert len(texts) > 15
    for path in texts:
        content = path.read_text()
        assert str(tiny_root) not in content, path
        assert platform.node() not in content, path


def test_same_parameters_give_the_same_bytes(tiny_config: Config, tiny_root: Path, tmp_path: Path) -> None:
    run_all(tiny_config, tmp_path, "pass_substitution", upto="substitute")
    for name in ("raw", "records", "features", "pool", "model", "protected", "linkage"):
        assert digest(Layout(tmp_path).artefact(name, KEY)) == digest(Layout(tiny_root).artefact(name, KEY)), name


def test_curves_tell_of_records_that_were_held_out(tiny_root: Path) -> None:
    header = Layout(tiny_root).artefact("curves", KEY).read_text().splitlines()[0].split(",")
    for name in ("gender", "id", "activity"):
        assert {f"held_out_information_{name}", f"held_out_chance_{name}"} <= set(header)
    assert {"total", "bound", "held_out_total", "held_out_general"} <= set(header)
    metrics = StepReport.load(Layout(tiny_root).step_report("train", KEY)).metrics
    assert {f"final_{name}" for name in header if name != "epoch"} <= set(metrics)


def test_released_data_hold_payload_and_allowed_columns_only(tiny_root: Path) -> None:
    layout = Layout(tiny_root)
    pool = {row.tobytes() for row in array_of(read_folder(layout.artefact("pool", KEY)), "payload", (2, 128))}
    originals = read_folder(layout.artefact("records", KEY))
    for split in ("train", "test"):
        released = read_partition(layout.artefact("protected", KEY), split)
        assert released.column_names == ["payload", "activity"]
        assert released.schema.field("payload").type == originals.schema.field("payload").type
        assert len(released) == originals.column("split").to_pylist().count(split)
        assert {row.tobytes() for row in array_of(released, "payload", (2, 128))} <= pool
    for path in layout.artefact("protected", KEY).rglob("*.parquet"):
        metadata = pq.ParquetFile(path).metadata
        assert not any(metadata.row_group(g).column(c).is_stats_set for g in range(metadata.num_row_groups) for c in range(2))
        assert path.stat().st_mtime == 0
    manifest = (layout.artefact("protected", KEY) / "manifest.json").read_text()
    assert not any(record_id in manifest for record_id in originals.column("record_id").to_pylist())
    assert layout.artefact("linkage", KEY).stat().st_mode & 0o777 == 0o600


def test_released_order_tells_nothing(tiny_root: Path) -> None:
    links = read_table(Layout(tiny_root).artefact("linkage", KEY))
    train = links.filter(pa.compute.equal(links.column("split"), "train"))
    # Ids rise with time; in released order their ranks must not. Standard deviation 1/√n; five of them.
    ranks = np.argsort(np.argsort(train.column("record_id").to_pylist()))
    assert abs(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1]) < 5 / np.sqrt(len(ranks))


def test_two_releases_of_the_same_records_are_in_unrelated_orders(tiny_root: Path) -> None:
    """One order for two releases would put two draws of every record side by side."""
    positions = []
    for method in ("pass_substitution", "identity"):
        links = read_table(Layout(tiny_root).artefact("linkage", RunKey(KEY.dataset, method)))
        train = links.filter(pa.compute.equal(links.column("split"), "train"))
        positions.append(dict(zip(train.column("record_id").to_pylist(), train.column("row").to_pylist(), strict=True)))
    first, second = (np.array([rows[record_id] for record_id in positions[0]]) for rows in positions)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(len(first))


def test_audit_refuses_what_another_model_released(tiny_config: Config, copied: Layout) -> None:
    config = dataclasses.replace(tiny_config, train=dataclasses.replace(tiny_config.train, epochs=1))
    _run("train", config, copied)
    with pytest.raises(ChecksumMismatch, match=r"expected a release made with model .*; run substitute again"):
        _run("audit", config, copied)


@pytest.mark.parametrize(("damage", "message"), [("linkage", "found other records"), ("partition", "has no Parquet files")])
def test_incomplete_release_is_told(tiny_config: Config, copied: Layout, damage: str, message: str) -> None:
    if damage == "linkage":
        path = copied.artefact("linkage", KEY)
        write_table(read_table(path).slice(0, 50), path)
    else:
        shutil.rmtree(copied.artefact("protected", KEY) / "split=test")
    with pytest.raises(DataError, match=message):
        _run("audit", tiny_config, copied)


def _leaked(table: pa.Table) -> pa.Table:
    """Released rows of which one is not a donor's."""
    payload = array_of(table, "payload", (2, 128)).copy()
    payload[0] += 0.5
    return table.set_column(0, "payload", vectors(payload))


def test_protected_suite_finds_a_payload_that_is_nobodys(
    tiny_config: Config, copied: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that contain an original are found before the release is published."""
    make = ReleasedRows.rows
    monkeypatch.setattr(ReleasedRows, "rows", lambda *arguments: _leaked(make(*arguments)))
    before = digest(copied.artefact("protected", KEY))
    with pytest.raises(ValidationFailed, match="column 'payload_is_a_donors'"):
        _run("substitute", tiny_config, copied)
    assert digest(copied.artefact("protected", KEY)) == before


def test_released_label_is_the_donors(tiny_root: Path) -> None:
    layout = Layout(tiny_root)
    links = read_table(layout.artefact("linkage", KEY))
    test = links.filter(pa.compute.equal(links.column("split"), "test"))
    pool = read_folder(layout.artefact("pool", KEY))
    donors = [pool.column("activity")[d].as_py() for d in test.column("donor").to_pylist()]
    assert donors == read_partition(layout.artefact("protected", KEY), "test").column("activity").to_pylist()


def test_audit_of_unprotected_data_fails(tiny_root: Path) -> None:
    """The positive control: the same attacks read the private attributes when nothing protects them."""
    open_audit = read_json(Layout(tiny_root).artefact("audit", RunKey(KEY.dataset, "identity")))
    rows = {row["name"]: row for row in open_audit["attributes"]}
    assert open_audit["verdict"] == "fail"
    assert rows["id"]["nag"]["value"] > 0.9
    assert rows["id"]["exact"] is None
    assert open_audit["confusion"] is None


def test_audit_figures_agree_with_each_other(tiny_root: Path) -> None:
    """What one audit.json must hold whatever was found; its form is docs/audit.schema.json's."""
    document = read_json(Layout(tiny_root).artefact("audit", KEY))
    broken = [check for check in document["checks"] if check["outcome"] in ("leak shown", "lost")]
    open_ = [check for check in document["checks"] if check["outcome"] == "cannot be decided" and check["required"]]
    assert document["verdict"] == ("fail" if broken else "undecided" if open_ else "pass")
    stopped = [check["sentence"] for check in broken or open_]
    assert len(document["reasons"]) == len(stopped)
    assert all(sentence in reason for sentence, reason in zip(stopped, document["reasons"], strict=True))
    assert [row["name"] for row in document["attributes"]] == ["gender", "id", "activity"]  # id settles gender: no combination
    for row in document["attributes"]:
        for estimate in (row["unprotected"], row["protected"], row["nag"], *(attack["nag"] for attack in row["attacks"])):
            assert estimate["low"] <= estimate["value"] <= estimate["high"]
        accuracies = {attack["name"]: attack["accuracy"] for attack in row["attacks"]}
        accuracies["exact"] = row["exact"]["rule_accuracy"]
        assert set(accuracies) == {"network", "logistic_regression", "pool_lookup", "exact"}
        assert accuracies[row["attack"]] == row["protected"]
        assert row["exact"]["rule"]["value"] <= row["exact"]["plug_in"] <= row["exact"]["bound"]
        assert row["exact"]["information"]["found"] >= 0
    for matrix in document["confusion"].values():
        assert np.array(matrix).sum(axis=1) == pytest.approx(np.ones(len(matrix)), abs=1e-4)


def test_missing_input_says_which_step_is_wanting(tiny_config: Config, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected input 'features' of step train is missing"):
        _run("train", tiny_config, Layout(tmp_path))
    assert not (tmp_path / "models").exists()


def test_failing_suite_stops_and_names_column_and_expectation(tiny_config: Config, copied: Layout) -> None:
    folder = copied.artefact("records", KEY)
    table = read_folder(folder)
    before = digest(copied.artefact("validation", KEY))
    genders = ["CANARY" if k == 5 else value for k, value in enumerate(table.column("gender").to_pylist())]
    ids = [table.column("record_id")[0].as_py()] * 2 + table.column("record_id").to_pylist()[2:]
    table = table.set_column(table.column_names.index("gender"), "gender", pa.array(genders))
    table = table.set_column(table.column_names.index("record_id"), "record_id", pa.array(ids))
    write_table(table, shard_path(folder, 0))
    with pytest.raises(ValidationFailed) as error:
        _run("validate", tiny_config, copied)
    assert "expect_column_values_to_be_in_set on column 'gender'" in str(error.value)
    assert "expect_column_values_to_be_unique on column 'record_id'" in str(error.value)
    assert digest(copied.artefact("validation", KEY)) == before  # nothing was published
    docs = copied.data_docs("validate", RunKey(KEY.dataset))
    assert (docs / "index.html").exists()
    pages = [p.read_text() for p in docs.rglob("*.html")]
    assert any("gender" in page for page in pages)  # the control: the pages do speak of the column
    assert not any("CANARY" in page or ids[0] in page or "female" in page for page in pages)


@pytest.mark.parametrize("damage", ["nan", "class gone"])
def test_bad_payload_or_balance_fails_validation(tiny_config: Config, copied: Layout, damage: str) -> None:
    folder = copied.artefact("records", KEY)
    table = read_folder(folder)
    if damage == "nan":
        payload = array_of(table, "payload", (2, 128)).copy()
        payload[3, 0, 0] = np.nan
        table = table.set_column(table.column_names.index("payload"), "payload", vectors(payload))
        expected = "column 'payload_min'"
    else:
        table = table.filter(pa.compute.not_equal(table.column("activity"), "jog"))
        expected = "column 'activity_min_share'"
    write_table(table, shard_path(folder, 0))
    with pytest.raises(ValidationFailed, match=expected):
        _run("validate", tiny_config, copied)


def test_tampered_release_is_found_by_the_audit(tiny_config: Config, copied: Layout) -> None:
    part = next((copied.artefact("protected", KEY) / "split=test").glob("*.parquet"))
    table = read_table(part)
    write_table(table.take(pa.array([*range(1, len(table)), 0])), part)
    with pytest.raises(ChecksumMismatch, match="expected the drawn donors' payloads"):
        _run("audit", tiny_config, copied)


@pytest.mark.parametrize("forbid", ["none", "self", "same_person"])
def test_forbidden_donors_are_never_met(tiny_config: Config, copied: Layout, forbid: str) -> None:
    pool = dataclasses.replace(tiny_config.pool, forbid=forbid)
    config = dataclasses.replace(tiny_config, pool=pool)
    before = read_table(copied.artefact("linkage", KEY)).column("record_id").to_pylist()
    _run("substitute", config, copied)
    links = read_table(copied.artefact("linkage", KEY)).to_pylist()
    # Another rule is another release: its rows stand in another order, or the two would be draws side by side.
    assert ([link["record_id"] for link in links] == before) == (forbid == tiny_config.pool.forbid)
    donors = read_folder(copied.artefact("pool", KEY)).select(["record_id", "person"]).to_pylist()
    records = read_folder(copied.artefact("records", KEY), ["record_id", "person"]).to_pylist()
    person_of = {record["record_id"]: record["person"] for record in records}
    met_self = sum(link["record_id"] == donors[link["donor"]]["record_id"] for link in links)
    met_person = sum(person_of[link["record_id"]] == donors[link["donor"]]["person"] for link in links)
    assert (met_self == 0) == (forbid != "none")  # the control: without the rule it does happen
    assert (met_person == 0) == (forbid == "same_person")
    if forbid == "same_person":
        with pytest.raises(ChecksumMismatch, match=r"expected pool\.forbid self, found a release made with same_person"):
            _run("audit", tiny_config, copied)
        _run("audit", config, copied)
        assert read_json(copied.artefact("audit", KEY))["donors"]["same_person_rate"] == 0


def test_training_says_what_the_data_allow(tiny_config: Config, copied: Layout, caplog: pytest.LogCaptureFixture) -> None:
    roles = dataclasses.replace(tiny_config.dataset["synthetic_motion"], private=("id",), useful=("gender",))
    with caplog.at_level("INFO"):
        report = _run("train", dataclasses.replace(tiny_config, dataset={"synthetic_motion": roles}), copied)
    assert "at most 0 % of what the useful ones say can survive" in caplog.text  # who it is tells the gender
    assert "private attribute 'id' shares 0.69 nats" in caplog.text
    records = report.counts["records"]  # four people with about as many records each
    assert f"at most {math.log(records / 4):.2f} of {math.log(records):.2f} nats of which record it was" in caplog.text
    assert report.metrics["useful_ceiling"] == pytest.approx(0, abs=1e-6)


def test_training_names_what_it_cannot_hide(tiny_config: Config, copied: Layout, caplog: pytest.LogCaptureFixture) -> None:
    """Released classes are known to everybody; here they share information with the gender. Identities settle it."""
    roles = dataclasses.replace(tiny_config.dataset["synthetic_motion"], private=("gender",), general=("id",))
    config = dataclasses.replace(tiny_config, dataset={"synthetic_motion": roles}).with_names(
        ("synthetic_motion",), ("transport_substitution",)
    )
    key, named = RunKey("synthetic_motion", "transport_substitution"), []
    lenient = dataclasses.replace(config.method["transport_substitution"], residual=0.01)
    config = dataclasses.replace(config, method={"transport_substitution": lenient})
    for knows, released in (((), ()), ((), ("activity",)), (("id",), ())):
        changed = dataclasses.replace(config, attacker=Recipient(knows=knows), release={"synthetic_motion": released})
        report = run_step(STEPS["train"], key, changed, copied, "test")
        assert report.metrics["held_out_accuracy_gender"] > 0.5
        assert all(note in caplog.text for note in report.notes)
        named.append(report.notes)
    of_activity, of_id = named[1][0], named[2][0]
    assert named == [(), (of_activity,), (of_id,)]
    assert "from people who know activity: it is useful and shares 0.001 nats with the private ones" in of_activity
    assert "from people who know id: each of its classes has one private class only" in of_id
    strict = {"transport_substitution": dataclasses.replace(lenient, residual=1e-6)}
    strict_config = dataclasses.replace(config, method=strict, attacker=Recipient(knows=()), release={})
    (left,) = run_step(STEPS["train"], key, strict_config, copied, "test").notes
    assert "anybody still learns 0." in left
    assert "of gender from training records, above the limit of 1e-06: raise rounds or epsilon" in left


def test_model_of_another_pool_is_refused(tiny_config: Config, copied: Layout) -> None:
    pool = shard_path(copied.artefact("pool", KEY), 0)
    write_table(read_table(pool).take(pa.array(list(range(63, -1, -1)))), pool)
    with pytest.raises(ChecksumMismatch, match="expected the pool that it was trained for, found another"):
        _run("substitute", tiny_config, copied)


def test_pickle_in_place_of_weights_is_refused(tiny_config: Config, copied: Layout) -> None:
    import pickle

    weights = copied.artefact("model", KEY) / "model.safetensors"
    weights.write_bytes(pickle.dumps({"donors": [1, 2, 3]}))
    with pytest.raises(DataError, match=r"model\.safetensors: is damaged or not safetensors"):
        _run("substitute", tiny_config, copied)
