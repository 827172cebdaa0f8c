"""A real MLflow store: runs, models, aliases; and nothing of anybody's record in it."""

import os
import shutil
from pathlib import Path

import mlflow
import numpy as np
import pytest

from pass_core.errors import TrackingError
from tasks.config import Config, load_config
from tasks.registry import STEPS
from tasks.running.layout import Layout
from tasks.running.mlflow_model import load_channel
from tasks.running.step import run_step
from tasks.running.step_io import RunKey
from tasks.running.tracking import track_pipeline
from tasks.storage.files import read_json
from tasks.storage.parquet import array_of, read_folder
from tests.conftest import LENIENT, TINY, write_params

KEY = RunKey("synthetic_motion", "pass_substitution")
NAME = "pass-synthetic_motion-pass_substitution"


@pytest.fixture(scope="module")
def tracked(tiny_root: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Layout, Path, str]:
    """train, audit (which fails) and report of the tiny project, recorded in a store of its own."""
    base = tmp_path_factory.mktemp("tracked")
    shutil.copytree(tiny_root, base / "root")
    config = load_config(
        write_params(
            base,
            tracking={"enabled": True, "store": "store"},
            audit=TINY["audit"] | {"thresholds": {"useful_nag_at_least": {"value": 1.0, "reason": "a test's"}}},  # type: ignore[operator]
        )
    )
    layout = Layout(base / "root")
    with track_pipeline("tiny", config.tracking, base) as parent:
        for name in ("train", "audit", "report"):
            run_step(STEPS[name], KEY, config, layout, "test", store=base)
    return config, layout, base, str(parent)


def _client(base: Path) -> mlflow.MlflowClient:
    uri = f"sqlite:///{base / 'store' / 'mlflow.db'}"
    mlflow.set_tracking_uri(uri)
    os.environ.pop("MLFLOW_TRACKING_URI", None)  # set by the line above, for child processes
    return mlflow.MlflowClient(uri)


def _runs(base: Path) -> dict[str, mlflow.entities.Run]:
    client = _client(base)
    experiment = client.get_experiment_by_name("pass-pipeline")
    return {run.data.tags.get("step", "pipeline"): run for run in client.search_runs([experiment.experiment_id])}


def test_one_run_per_step_grouped_under_the_pipelines(tracked: tuple[Config, Layout, Path, str]) -> None:
    *_, base, parent = tracked
    runs = _runs(base)
    assert set(runs) == {"pipeline", "train", "audit", "report"}
    assert runs["pipeline"].info.run_id == parent
    for name in ("train", "audit", "report"):
        assert runs[name].data.tags["mlflow.parentRunId"] == parent
        assert runs[name].info.status == "FINISHED"
    assert runs["train"].data.params["train.epochs"] == str(TINY["train"]["epochs"])
    assert runs["train"].data.params["method.pass_substitution.embedding_size"] == "32"
    assert not any(name.startswith("audit.") for name in runs["train"].data.params)
    assert runs["audit"].data.tags["verdict"] == "fail"
    assert 0 <= runs["audit"].data.metrics["nag_id"] <= 1.2


def test_loss_terms_are_there_per_epoch(tracked: tuple[Config, Layout, Path, str]) -> None:
    *_, base, _ = tracked
    history = _client(base).get_metric_history(_runs(base)["train"].info.run_id, "private_gender")
    assert [point.step for point in history] == list(range(1, TINY["train"]["epochs"] + 1))


def test_model_is_the_candidate_and_not_the_champion_after_a_failed_audit(tracked: tuple[Config, Layout, Path, str]) -> None:
    *_, base, _ = tracked
    aliases = _client(base).get_registered_model(NAME).aliases
    assert list(aliases) == ["candidate"]


def test_registered_model_loads_and_scores_like_ours(tracked: tuple[Config, Layout, Path, str]) -> None:
    _, layout, base, _ = tracked
    _client(base)
    loaded = mlflow.pyfunc.load_model(f"models:/{NAME}@candidate")
    shape = loaded.metadata.signature.inputs.inputs[0].shape
    assert shape == (-1, 2, 128)
    features = array_of(read_folder(layout.artefact("features", KEY)), "features", (2, 128))[:50]
    ours = next(iter(load_channel(layout.artefact("model", KEY)).channel.blocks(features)))[1]
    assert np.exp(loaded.predict(features)) == pytest.approx(ours, abs=1e-6)


def test_store_holds_json_html_and_plots_but_no_pickle_and_no_record(tracked: tuple[Config, Layout, Path, str]) -> None:
    _, layout, base, _ = tracked
    files = [p for p in (base / "store").rglob("*") if p.is_file()]
    names = {p.name for p in files}
    assert {"audit.json", "nag.csv", "bundles.csv", "report.html", "nag.svg", "information.svg"} <= names
    assert {"model.safetensors", "model.json"} <= names
    assert not [p for p in files if p.suffix in {".pkl", ".pickle", ".pt", ".parquet"}]
    table = read_folder(layout.artefact("records", KEY))
    ids = [record_id.encode() for record_id in table.column("record_id").to_pylist()]
    payloads = [row.tobytes() for row in array_of(table, "payload", (2, 128))[:200]]
    everything = b"\0".join(p.read_bytes() for p in files)
    assert b"synthetic_motion" in everything  # the control: the search finds what is there
    assert not any(needle in everything for needle in [*ids, *payloads])


def test_champion_is_made_by_a_passing_audit_and_unmade_by_a_failing_one(tiny_root: Path, tmp_path: Path) -> None:
    """The model comes from elsewhere (as out of DVC's cache): the audit registers it first."""
    shutil.copytree(tiny_root, tmp_path / "root")
    tracking = {"enabled": True, "store": "store"}
    strict = {"useful_nag_at_least": {"value": 1.0, "reason": "a test's"}}
    for expected, thresholds in (("champion", LENIENT), (None, strict)):
        audit = TINY["audit"] | {"thresholds": thresholds, "attacks": {"logistic_regression": {"iterations": 10}}}  # type: ignore[operator]
        config = load_config(write_params(tmp_path, tracking=tracking, audit=audit))
        run_step(STEPS["audit"], KEY, config, Layout(tmp_path / "root"), "test", store=tmp_path)
        model = _client(tmp_path).get_registered_model(NAME)
        assert ("champion" in model.aliases) == (expected is not None)
    assert len(_client(tmp_path).search_model_versions(f"name='{NAME}'")) == 1


def test_failed_step_leaves_a_failed_run(tiny_root: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_root, tmp_path / "root")
    (tmp_path / "root" / "models" / str(KEY) / "model.json").write_text("{")
    config = load_config(write_params(tmp_path, tracking={"enabled": True, "store": "store"}))
    with pytest.raises(Exception, match=r"model\.json: is damaged"):
        run_step(STEPS["substitute"], KEY, config, Layout(tmp_path / "root"), "test", store=tmp_path)
    assert _runs(tmp_path)["substitute"].info.status == "FAILED"


def test_unusable_store_is_told_before_any_work(tiny_config: Config, tiny_root: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mlflow.db").write_text("this is no database, and longer than its header")
    config = load_config(write_params(tmp_path, tracking={"enabled": True, "store": "store"}))
    before = read_json(Layout(tiny_root).provenance("report", KEY))
    with pytest.raises(TrackingError, match=r"MLflow store store: .*tracking\.enabled: false"):
        run_step(STEPS["report"], KEY, config, Layout(tiny_root), "test", store=tmp_path)
    assert read_json(Layout(tiny_root).provenance("report", KEY)) == before


def test_environment_names_another_store(tiny_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.chdir(tmp_path)  # a server chooses where artifacts go; SQLite takes the working folder
    shutil.copytree(tiny_root, tmp_path / "root")
    config = load_config(write_params(tmp_path, tracking={"enabled": True, "store": "store"}))
    run_step(STEPS["report"], KEY, config, Layout(tmp_path / "root"), "test", store=tmp_path)
    assert not (tmp_path / "store").exists()
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("pass-pipeline")
    assert [run.data.tags["step"] for run in client.search_runs([experiment.experiment_id])] == ["report"]
