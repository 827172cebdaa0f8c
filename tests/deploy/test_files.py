"""The files of docs/deploy: linted, and checked against the schemas of the tools that read them; damaged copies are controls."""

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from tests.conftest import PROJECT

DEPLOY = PROJECT / "docs" / "deploy"
BIN = Path(sys.executable).parent


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)


def test_dockerfile_passes_hadolint(tmp_path: Path) -> None:
    assert _run(BIN / "hadolint", DEPLOY / "Dockerfile").stdout == ""
    text = (DEPLOY / "Dockerfile").read_text()
    bad = tmp_path / "Dockerfile"
    bad.write_text(text.replace("WORKDIR /app\n", "RUN cd /app\n").replace("USER 10001:10001\n", "USER root\n"))
    found = _run(BIN / "hadolint", bad)
    assert found.returncode == 1
    assert {"DL3002", "DL3003"} <= set(re.findall(r"DL\d+", found.stdout))  # the last user is root; cd in RUN
    assert text.index("USER 10001:10001") < text.index("ENTRYPOINT")


def test_the_image_is_built_from_nothing_else_than_what_it_needs() -> None:
    """Data, models, keys and git's history never reach the build: the list says what does, and COPY asks for no more."""
    lines = [line for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied: set[str] = set()
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY") and "--from" not in line:
            copied |= set(line.split()[1:-1])
    assert copied == let_in
    assert all((PROJECT / path).exists() for path in copied)
    packages = set(tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"])
    assert {name.rstrip("*") for name in packages} <= copied


def test_the_lock_has_a_version_for_every_requirement() -> None:
    pins: dict[str, str] = {}
    for name in ("requirements.lock", "torch.lock"):
        for line in (DEPLOY / name).read_text().splitlines()[1:]:
            match = re.fullmatch(r"([a-z0-9-]+)==(\S+)( --hash=sha256:[0-9a-f]{64})?", line)
            assert match, line
            assert bool(match[3]) == (name == "requirements.lock")
            pins[match[1]] = match[2]
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(text) for text in (*project["dependencies"], *extras["distributed"], *extras["lineage"])]
    assert len(wanted) > 25
    lost = [str(one) for one in wanted if not one.specifier.contains(pins[one.name.lower().replace("_", "-")])]
    assert not lost, "run `python docs/deploy/lock.py`"


def _compose_problems(compose: dict[str, Any]) -> list[str]:
    """What `docker compose config` refuses beyond the schema, and what we promise: no open port, no privileges."""
    problems = []
    for name, service in compose["services"].items():
        named = {str(one).split(":")[0] for one in service.get("volumes", ())}
        problems += [f"{name}: volume {one}" for one in named if one.isidentifier() and one not in compose["volumes"]]
        for kind in ("networks", "secrets"):
            problems += [f"{name}: {kind} {one}" for one in service.get(kind, ()) if one not in compose.get(kind, {})]
        problems += [f"{name}: depends on {one}" for one in service.get("depends_on", ()) if one not in compose["services"]]
        problems += [f"{name}: open port" for one in service.get("ports", ()) if not one.startswith("${PASS_BIND:-127.0.0.1}:")]
        problems += [f"{name}: privileges"] if service.get("cap_drop") != ["ALL"] or not service.get("read_only") else []
    return problems


def test_compose_file_is_valid_and_opens_nothing(tmp_path: Path) -> None:
    check = (BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec")
    done = _run(*check, DEPLOY / "compose.yaml")
    assert done.returncode == 0, done.stdout
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(compose["services"]) == {"prefect", "mlflow", "serve", "proxy"}
    assert not _compose_problems(compose)
    compose["services"]["prefect"] |= {"restrat": "always", "ports": ["4200:4200"], "volumes": ["lost:/state"]}
    (tmp_path / "compose.yaml").write_text(yaml.safe_dump(compose))
    assert _run(*check, tmp_path / "compose.yaml").returncode == 1
    assert _compose_problems(compose) == ["prefect: volume lost", "prefect: open port"]


def test_kubernetes_objects_are_valid(tmp_path: Path) -> None:
    check = (BIN / "kubernetes-validate", "--strict", "--quiet")
    assert _run(*check, DEPLOY / "kubernetes.yaml").returncode == 0
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
    pods = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment"]
    pods += [one["spec"]["jobTemplate"]["spec"]["template"]["spec"] for one in objects if one["kind"] == "CronJob"]
    assert len(pods) == 4
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        claims = {one["name"] for one in pod["volumes"]}
        for container in pod["containers"]:
            assert not container["securityContext"]["allowPrivilegeEscalation"]
            assert {one["name"] for one in container["volumeMounts"]} <= claims
    objects[2]["spec"]["replcias"] = 3
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump_all(objects))
    assert _run(*check, tmp_path / "bad.yaml").returncode != 0


@pytest.mark.parametrize("name", ["pass-serve.service", "pass-status.service", "pass-status.timer"])
def test_units_are_valid_and_their_commands_exist(name: str, tmp_path: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "systemd" / name)
    if name.endswith(".service"):
        service = dict(unit["Service"])
        assert service["User"] == "pass"
        assert service["NoNewPrivileges"] == "yes"
        words = service["ExecStart"].split()
        done = _run(BIN / "pass-pipeline", *words[1:3], "--help")
        assert done.returncode == 0
        assert all(word in done.stdout for word in words if word.startswith("--"))
    if shutil.which("systemd-analyze"):
        text = (DEPLOY / "systemd" / name).read_text().replace("/srv/pass/.venv/bin/pass-pipeline", sys.executable)
        (tmp_path / name).write_text(text)
        if name.endswith(".timer"):
            shutil.copy(DEPLOY / "systemd" / "pass-status.service", tmp_path)
            service_file = tmp_path / "pass-status.service"
            service_file.write_text(service_file.read_text().replace("/srv/pass/.venv/bin/pass-pipeline", sys.executable))
        done = _run("systemd-analyze", "verify", tmp_path / name)
        assert tmp_path.name not in done.stderr, done.stderr
