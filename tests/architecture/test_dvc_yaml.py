"""dvc.yaml repeats the step table, and lists every first-party file a stage's code really imports."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import pass_core.attacks
import pass_core.methods
import tasks.datasets
import tasks.extractors
from pass_core import discovery
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.channel.pool import PoolConfig
from pass_core.training.loop import TrainConfig
from tasks.config import load_config
from tasks.registry import STEPS, is_generated
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.sections.running import ComputeConfig
from tests.conftest import PROJECT

CONFIG = load_config(PROJECT / "params.yaml")
DVC: dict[str, Any] = yaml.safe_load((PROJECT / "dvc.yaml").read_text())
STAGES: dict[str, Any] = DVC["stages"]
GENERATED: list[str] = DVC["vars"][0]["generated"]
# Docstrings and exception classes: they hold no behaviour, and listing them would re-run everything for a word.
WITHOUT_BEHAVIOUR = {"pass_core/errors.py"}


def _keys(name: str) -> list[RunKey]:
    methods = CONFIG.methods if STEPS[name].per_method else (None,)
    datasets = GENERATED if name == "generate" else CONFIG.datasets
    return [RunKey(dataset, method) for dataset in datasets for method in methods]


def _resolve(text: str, key: RunKey) -> str:
    return text.replace("${item.dataset}", key.dataset).replace("${item.method}", str(key.method))


def _paths(entries: list[Any], key: RunKey) -> list[str]:
    return [_resolve(entry if isinstance(entry, str) else next(iter(entry)), key) for entry in entries]


CASES = [(name, key) for name in STEPS for key in _keys(name)]


def test_stages_are_the_steps() -> None:
    assert list(STAGES) == list(STEPS)


@pytest.mark.parametrize(("name", "key"), CASES, ids=str)
def test_stage_equals_its_step(name: str, key: RunKey) -> None:
    step, stage, layout = STEPS[name], STAGES[name], Layout(Path("data"))
    command = f"python -m tasks {name} --dataset {key.dataset}" + (f" --method {key.method}" if step.per_method else "")
    assert _resolve(stage["cmd"], key) == command
    inputs = [path for path in _paths(stage["deps"], key) if path.startswith("data/")]
    assert sorted(inputs) == sorted(str(layout.artefact(artefact, key)) for artefact in step.inputs)
    outputs = _paths([*stage["outs"], *stage.get("metrics", []), *stage.get("plots", [])], key)
    expected = [str(layout.artefact(artefact, key)) for artefact in step.outputs] + [str(layout.step_report(name, key))]
    assert sorted(outputs) == sorted(expected)
    assert _paths(stage.get("params", []), key) == list(step.watched(key))
    datasets = "${generated}" if name == "generate" else "${datasets}"
    assert stage["matrix"] == {"dataset": datasets} | ({"method": "${methods}"} if step.per_method else {})


def test_private_results_are_never_pushed() -> None:
    """Originals, donors, the linkage and the list of training records stay here; staging is no result at all."""
    outs = [out if isinstance(out, dict) else {out: {}} for stage in STAGES.values() for out in stage["outs"]]
    found = {(path.split("/")[1], given.get("push", True)) for out in outs for path, given in out.items()}
    private = {"raw", "records", "features", "pools", "trained_on", "linkage"}
    shared = {"reports", "validation", "models", "protected", "audits"}
    assert found == {(name, False) for name in private} | {(name, True) for name in shared}


def test_generated_data_sets_are_listed() -> None:
    """`vars` lists those of the embedded data sets that have a section and are made here: no other can be generated."""
    assert [name for name in CONFIG.dataset if is_generated(name)] == GENERATED


def _modules(name: str, key: RunKey) -> list[str]:
    """What a stage may import: its step, and the entries that params.yaml can name."""
    modules = [f"tasks.steps.{name}"]
    if name == "generate":
        modules.append(f"tasks.datasets.{key.dataset}")
    if name == "ingest":  # whichever data set is named in params.yaml
        modules += [f"tasks.datasets.{reader}" for reader in discovery.available(tasks.datasets)]
    if name == "extract":
        modules += [f"tasks.extractors.{extractor}" for extractor in discovery.available(tasks.extractors)]
    if name in ("train", "substitute", "audit"):
        modules.append(f"pass_core.methods.{key.method}")
    if name == "audit":
        modules += [f"pass_core.attacks.{attack}" for attack in CONFIG.audit.attacks]
    return modules


# Other people's libraries take seconds to import: once, and then every case begins in a copy of that process.
LIBRARIES = (
    "torch",
    "sklearn.ensemble",
    "sklearn.linear_model",
    "scipy.stats",
    "pandas",
    "polars",
    "pyarrow.dataset",
    "pydantic",
)
FIRST_PARTY = ("tasks", "pass_core", "flows")
LISTING = f"""
import importlib, json, os, sys, traceback

def ours():
    return [m.__file__ for n, m in sys.modules.items() if n.split(".")[0] in {FIRST_PARTY} and m.__file__]

for library in {LIBRARIES}:
    importlib.import_module(library)
assert not ours()
for modules in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        try:
            for name in modules:
                importlib.import_module(name)
            print(json.dumps(ours()), flush=True)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        sys.exit(1)
"""


@pytest.fixture(scope="module")
def imported() -> dict[tuple[str, RunKey], set[str]]:
    """The first-party files that the modules of every case import, each case in a process that has imported none."""
    asked = json.dumps([_modules(name, key) for name, key in CASES])
    command = [sys.executable, "-c", LISTING]
    found = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, cwd=PROJECT).stdout.splitlines()
    files = [{str(Path(file).relative_to(PROJECT)) for file in json.loads(line)} for line in found]
    return dict(zip(CASES, files, strict=True))


@pytest.mark.parametrize(("name", "key"), CASES, ids=str)
def test_stage_lists_all_code_it_imports(name: str, key: RunKey, imported: dict[tuple[str, RunKey], set[str]]) -> None:
    """Code that changed but is not listed would leave a stage silently stale: DVC's worst trap."""
    files = {file for file in imported[name, key] if not file.endswith("__init__.py")} - WITHOUT_BEHAVIOUR
    assert f"tasks/steps/{name}.py" in files
    listed = [path for path in _paths(STAGES[name]["deps"], key) if not path.startswith("data/")]
    missing = {file for file in files if not any(file == path or file.startswith(f"{path}/") for path in listed)}
    assert not missing
    assert all((PROJECT / path).exists() for path in listed)


def test_packages_hold_no_code_in_init() -> None:
    """`__init__.py` files are not listed as dependencies, so they may hold a docstring only; pass_core's exports its API."""
    exports = PROJECT / "pass_core" / "__init__.py"  # imports names when they are first used, which no step does
    for path in [p for package in ("pass_core", "tasks") for p in (PROJECT / package).rglob("__init__.py") if p != exports]:
        text = path.read_text().strip()
        assert text.startswith('"""'), path
        assert text.endswith('"""'), path
        assert text.count('"""') == 2, path


def test_no_parameter_has_a_name_that_dvc_overlooks() -> None:
    """DVC leaves keys named `size` and `nfiles` out of its run cache's key: a change in them restores the old results."""

    def keys(value: Any) -> set[str]:
        return set(value) | {key for item in value.values() for key in keys(item)} if isinstance(value, dict) else set()

    packages = (
        (pass_core.methods, "METHOD"),
        (pass_core.attacks, "ATTACK"),
        (tasks.datasets, "DATASET"),
        (tasks.extractors, "EXTRACTOR"),
    )
    types = [
        getattr(discovery.load(package, name), entry).config_type
        for package, entry in packages
        for name in discovery.available(package)
    ]
    types += [PoolConfig, TrainConfig, ComputeConfig, Depth, Thresholds]
    names = {field.name for config_type in types for field in dataclasses.fields(config_type)}
    assert "donors" in names
    assert not (names | keys(yaml.safe_load((PROJECT / "params.yaml").read_text()))) & {"size", "nfiles"}


@pytest.mark.parametrize("name", STEPS)
def test_step_reads_only_the_sections_it_declares(name: str) -> None:
    """Runs the table's own function on a config that notes what is asked of it."""
    read: set[str] = set()

    class Noting:
        def __init__(self, path: str, value: Any) -> None:
            self._path, self._value = path, value

        def __getattr__(self, attribute: str) -> Any:
            read.add(attribute)
            return getattr(self._value, attribute)

    class Stop(Exception):
        pass

    class Refusing:
        key = RunKey("synthetic_motion", "pass_substitution")

        def __getattr__(self, attribute: str) -> Any:
            raise Stop

    with pytest.raises(Stop):
        STEPS[name].run(Noting("", CONFIG), Refusing())  # type: ignore[arg-type]
    declared = {section.split(".")[0] for section in STEPS[name].sections}
    assert read <= declared
    # `seed` reaches a step through its random streams, `compute.threads` through the executor.
    assert declared - read <= {"seed", "compute"}
