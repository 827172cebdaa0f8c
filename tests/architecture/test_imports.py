"""The direction of imports, as a process sees it: what a layer needs when it runs alone."""

import subprocess
import sys

import pytest

TOOLS = {"prefect", "mlflow", "dvc", "great_expectations", "yaml", "pydantic", "typer", "rich", "pandas", "polars"}


def _loaded(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sorted(m.split('.')[0] for m in sys.modules)))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_core_loads_no_tool_and_no_layer_above() -> None:
    modules = "audit, draws, exact, losses, metrics, pool, statistics, substitution, training"
    entries = "from pass_core.methods import identity, pass_substitution\nfrom pass_core.attacks import network"
    loaded = _loaded(f"from pass_core import {modules}\n{entries}")
    assert "torch" in loaded  # the control: the question can be answered yes
    assert not loaded & (TOOLS | {"tasks", "flows"})


@pytest.mark.parametrize("statement", ["import tasks.registry", "import tasks.__main__", "import tasks.publishing"])
def test_steps_load_no_orchestrator_and_no_slow_tool(statement: str) -> None:
    loaded = _loaded(statement)
    assert "pydantic" in loaded
    # mlflow and great_expectations take seconds to import: only when they are used.
    assert not loaded & {"prefect", "dvc", "typer", "flows", "mlflow", "great_expectations"}


def test_command_line_answers_without_loading_prefect() -> None:
    assert "prefect" not in _loaded("import flows.cli")
