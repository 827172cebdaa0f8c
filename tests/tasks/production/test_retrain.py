"""Drift, retrain, promote through the commands: what each lake leads to, what MLflow, the link and the log then say."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pyarrow as pa
import pytest
from click.testing import Result
from prefect.testing.utilities import prefect_test_harness
from typer.testing import CliRunner

from flows.cli.main import app
from flows.schedule import Retraining, deployments
from pass_core.errors import AuditFailed, ConfigError, DataError, StorageError
from tasks.production.model_versions import ModelVersions
from tasks.production.notify import ADDRESS
from tasks.production.run import Hooks, execute
from tasks.sections.running import ScheduleConfig
from tasks.storage.files import digest, read_json
from tests.conftest import LENIENT
from tests.tasks.production.lakes import DRAW_KEY, PARAMS, PassGate, make_options, make_table, write_key, write_lake, write_params
from tests.tasks.production.receiver import receiving

NAME, MODEL = "pass-calls-pass_substitution", "models/calls/pass_substitution"
TRACKED: dict[str, Any] = {"tracking": {"enabled": True, "store": "store"}}


def _moved(table: pa.Table) -> pa.Table:
    """The same calls, recorded by other machines."""
    vectors = (2.0 * np.array(table.column("vector").to_pylist()) + 1).astype(np.float32)
    place = table.column_names.index("vector")
    return table.set_column(place, "vector", pa.array(list(vectors), table.schema.field("vector").type))


def _lake(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["lake", *map(str, arguments)], catch_exceptions=False)


def _retrain(project: Path, source: str, *more: object) -> tuple[int, dict[str, Any]]:
    """`lake retrain` over a lake of the project, with a moved labelled sample."""
    options = {"--dataset": "calls", "--models": project / "models", "--params": project / "params.yaml"}
    options |= {"--key-file": write_key(project, DRAW_KEY), "--labelled": project / "sample"}
    places = [project / source, project / "out", *(word for pair in options.items() for word in pair)]
    done = _lake("retrain", *places, "--quiet", "--json", *more)
    return done.exit_code, json.loads(done.output.splitlines()[-1])


def _aliases(project: Path) -> dict[str, str]:
    """Alias -> digest of the model in the project's store."""
    client = mlflow.MlflowClient(f"sqlite:///{project / 'store' / 'mlflow.db'}")
    aliases = client.get_registered_model(NAME).aliases
    return {alias: client.get_model_version(NAME, version).tags["model_digest"] for alias, version in aliases.items()}


def _decision(project: Path) -> Any:
    """The last run of MLflow that settled a decision."""
    client = mlflow.MlflowClient(f"sqlite:///{project / 'store' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("pass-pipeline").experiment_id
    return client.search_runs([experiment], "tags.step = 'promote'", order_by=["attributes.start_time DESC"])[0].data


def _copy(project: Path, to: Path) -> Path:
    """A project of a test's own, with versions and store."""
    shutil.copytree(project, to, symlinks=True)
    return to


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=180):
        yield


@pytest.fixture(scope="module")
def project(champion: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lakes like the champion's and moved ones, and a folder of versions with one champion."""
    folder = tmp_path_factory.mktemp("project")
    write_params(folder, **TRACKED)
    write_lake(make_table(start=2000), folder / "alike")
    write_lake(_moved(make_table(start=4000)).drop_columns(["gender", "topic"]), folder / "moved")
    write_lake(_moved(make_table(days=4, start=8000)), folder / "sample")
    added = _lake("models", "add", folder / "models", champion, "--dataset", "calls", "--params", folder / "params.yaml")
    assert added.exit_code == 0, added.output
    return folder


@pytest.fixture(scope="module")
def promoted(project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """A project in which drift has led to a new champion; what the command printed, and what was posted."""
    own = _copy(project, tmp_path_factory.mktemp("promoted") / "project")
    patch = pytest.MonkeyPatch()
    with receiving() as (handler, address):
        patch.setenv(ADDRESS, address)
        code, found = _retrain(own, "moved")
    patch.undo()
    assert code == 0, found
    return own, found, handler.received


def test_the_first_version_that_passed_is_the_champion(project: Path, champion: Path) -> None:
    assert (project / "models" / "champion").resolve() == champion.resolve()
    assert _aliases(project)["champion"] == digest(champion / MODEL)
    assert "version 1  champion" in _lake("models", "list", project / "models").output


def test_without_drift_nothing_happens(project: Path) -> None:
    before = read_json(project / "models" / "decisions.json")
    for more in ((), ("--dry-run",), ("--from", "2026-11-12", "--to", "2026-11-12")):
        code, found = _retrain(project, "alike", *more)
        assert (code, found["due"], found["decision"], found["champion"]) == (0, [], None, 1), found
    assert "200 record(s) of 1 partition(s) are like those" in found["drift"]
    assert read_json(project / "models" / "decisions.json") == before
    assert ModelVersions(project / "models").versions() == [1]


def test_a_dry_run_reports_drift_of_features_and_of_classes(project: Path) -> None:
    code, found = _retrain(project, "moved", "--dry-run")
    assert code == 3
    assert any("features separate new records" in reason for reason in found["due"])
    women = make_table(start=2000).to_pylist()
    women = [row for number, row in enumerate(women) if row["gender"] == "f" or number % 5 == 0]
    write_lake(pa.Table.from_pylist(women, schema=make_table().schema), project / "women")
    code, found = _retrain(project, "women", "--dry-run")
    assert code == 3
    assert any("new records have another class of gender than in the audit" in reason for reason in found["due"])
    assert not any("class of topic" in reason for reason in found["due"])
    assert ModelVersions(project / "models").versions() == [1]


def test_drift_trains_a_candidate_that_is_promoted(
    promoted: tuple[Path, dict[str, Any], list[dict[str, Any]]], champion: Path
) -> None:
    project, found, posted = promoted
    assert (found["decision"], found["version"], found["champion"]) == ("PROMOTE", 2, 2)
    link, version = project / "models" / "champion", project / "models" / "versions" / "002"
    assert link.resolve() == version.resolve()
    assert _aliases(project) == {"champion": digest(version / MODEL), "candidate": digest(version / MODEL)}
    logged = _decision(project)
    assert logged.params["decision"] == "PROMOTE"
    assert [logged.params[f"reason_{number + 1}"] for number in range(len(found["reasons"]))] == found["reasons"]
    assert {"candidate_nag_gender", "champion_nag_gender", "candidate_nag_topic", "champion_nag_topic"} <= set(logged.metrics)
    assert any("topic: NAG" in reason for reason in found["reasons"])
    assert (version / "published" / "calls" / "pass_substitution" / "report.html").exists()
    (notice,) = posted
    assert (notice["event"], notice["dataset"], notice["target"]) == ("promotion", "calls", str(project / "out"))
    assert "version 2 is the champion" in notice["reason"]
    assert f"--models {link} " in notice["next"]
    assert "--redraw" in notice["next"]
    assert not [word for word in ("gender", "topic", "%", "call-", "customer-") if word in json.dumps(posted)]
    assert digest(champion / MODEL) == read_json(champion / "audits/calls/pass_substitution/audit.json")["model_digest"]


def test_a_rollback_restores_alias_and_link(
    promoted: tuple[Path, dict[str, Any], list[dict[str, Any]]], champion: Path, tmp_path: Path, received: list[Any]
) -> None:
    project = _copy(promoted[0], tmp_path / "project")
    models, params = project / "models", ("--params", project / "params.yaml")
    done = _lake("models", "rollback", models, "--reason", "complaints", *params)
    assert (done.exit_code, "Version 1 is the champion" in done.output) == (0, True), done.output
    assert (models / "champion").resolve() == champion.resolve()
    assert _aliases(project)["champion"] == digest(champion / MODEL)
    assert (received[0]["event"], _decision(project).params["reason_1"]) == ("promotion", "complaints")
    with pytest.raises(ConfigError, match="expected an earlier champion"):
        _lake("models", "rollback", models, "--reason", "again", *params)
    _lake("models", "promote", models, 2, "--reason", "back", *params)
    assert ModelVersions(models).champion() == 2
    listed = json.loads(_lake("models", "list", models, "--json").output)
    assert [one["decision"] for one in listed["decisions"]] == ["ADD", "PROMOTE", "PROMOTE", "ROLLBACK", "PROMOTE"]
    with pytest.raises(ConfigError, match=r"expected one of 1, 2 version\(s\), found 7"):
        _lake("models", "promote", models, 7, "--reason", "wrong", *params)
    audit = models / "versions" / "002" / "audits/calls/pass_substitution/audit.json"
    audit.write_text(audit.read_text().replace('"verdict": "pass"', '"verdict": "fail"', 1))
    _lake("models", "rollback", models, "--reason", "complaints", *params)
    with pytest.raises(AuditFailed, match="verdict fail; the champion stays"):
        _lake("models", "promote", models, 2, "--reason", "past the gate", *params)
    assert ModelVersions(models).champion() == 1


def test_a_run_under_way_publishes_with_the_model_that_it_started_with(
    promoted: tuple[Path, dict[str, Any], list[dict[str, Any]]], champion: Path, tmp_path: Path
) -> None:
    project = _copy(promoted[0], tmp_path / "project")
    models = project / "models"

    def call(name: str, _title: str, body: Any) -> Any:
        if name == "publish":  # all is staged with version 2
            _lake("models", "rollback", models, "--reason", "meanwhile", "--params", project / "params.yaml")
        return body()

    options = make_options(models / "champion", project / "sample", project / "out")
    published = execute(options, Hooks(call=call, gate=PassGate())).manifest
    assert published is not None
    assert ModelVersions(models).champion() == 1
    (pinned,) = {one.pins.model for one in published.partitions.values()}
    assert pinned == digest(models / "versions" / "002" / MODEL)
    # The next run follows the link: another model, so it asks before it draws anything again.
    with pytest.raises(ConfigError, match="--redraw"):
        execute(options, Hooks(gate=PassGate()))
    again = execute(options.model_copy(update={"redraw": "rolled back"}), Hooks(gate=PassGate())).manifest
    assert again is not None
    assert {one.pins.model for one in again.partitions.values()} == {digest(champion / MODEL)}


def test_a_candidate_that_fails_its_audit_is_rejected(project: Path, tmp_path: Path, received: list[Any]) -> None:
    own = _copy(project, tmp_path / "project")
    strict = LENIENT | {"private_auc_at_most": {"value": 0.0, "reason": "a test's"}}  # a coin toss has 0.5
    write_params(own, **TRACKED, audit=PARAMS["audit"] | {"thresholds": strict})
    champion = _aliases(own)["champion"]
    code, found = _retrain(own, "moved")
    assert (code, found["decision"], found["champion"]) == (3, "REJECT", 1)
    assert any("AUC" in reason for reason in found["reasons"])
    assert _aliases(own)["champion"] == champion
    assert _decision(own).params["decision"] == "REJECT"
    assert "was rejected; version 1 stays" in received[0]["reason"]
    assert ModelVersions(own / "models").champion() == 1


def test_a_candidate_that_is_not_clearly_better_is_held_until_somebody_decides(
    project: Path, tmp_path: Path, received: list[Any]
) -> None:
    own = _copy(project, tmp_path / "project")
    shutil.rmtree(own / "sample")
    write_lake(make_table(days=4, start=8000), own / "sample")  # not moved
    models = ModelVersions(own / "models")
    with models.lock(), pytest.raises(StorageError, match="is running this step"):
        _retrain(own, "alike", "--force", "a new release of the method")
    assert received.pop()["event"] == "failed"
    code, found = _retrain(own, "alike", "--force", "a new release of the method")
    assert (code, found["decision"], found["champion"]) == (3, "HOLD", 1), found
    assert "not clearly better" in found["reasons"][0]
    assert _decision(own).params["forced"] == "a new release of the method"
    notice = received[0]
    assert "lake models promote" in notice["next"]
    assert _aliases(own)["champion"] != _aliases(own)["candidate"]
    _lake("models", "promote", own / "models", 2, "--reason", "newer people", "--params", own / "params.yaml")
    assert models.champion() == 2
    assert _aliases(own)["champion"] == _aliases(own)["candidate"]


def test_unfinished_candidates_and_damaged_folders(project: Path, tmp_path: Path) -> None:
    models = ModelVersions(_copy(project, tmp_path / "project") / "models")
    assert models.next() == 2
    models.root(2).mkdir()
    assert models.next() == 2  # nobody has decided about it: the next run continues in it
    models.note(models.decided(2, "REJECT", ("because",), models.key_of(1)))
    assert models.next() == 3
    (models.folder / "decisions.json").write_text('[{"version": 1}]')
    with pytest.raises(DataError, match="damaged file; restore it"):
        models.decisions()
    (models.folder / "versions" / "001").unlink()
    with pytest.raises(DataError, match="a link to one of the versions"):
        models.champion()


def test_schedules_follow_the_link_and_retraining_is_off_unless_asked_for(project: Path) -> None:
    link = project / "models" / "champion"
    options = make_options(link, project / "alike", project / "out")
    nightly, weekly = deployments(options, ScheduleConfig())
    assert (nightly.parameters["options"]["models"], weekly.parameters["root"]) == (str(link), str(link))
    *_, third = deployments(options, ScheduleConfig(), Retraining("0 5 1 * *", str(project / "sample")))
    assert third.name.startswith("retrain-calls-")
    given = third.parameters["options"]
    assert (given["models"], given["labelled"]) == (str(project / "models"), str(project / "sample"))
    with pytest.raises(ConfigError, match="expected --models DIR/champion"):
        deployments(make_options(link.resolve(), project / "alike", project / "out"), ScheduleConfig(), Retraining("0 5 1 * *"))
