"""The direction of imports, as a process sees it: what a layer needs when it runs alone."""

import subprocess
import sys

TOOLS = {"prefect", "mlflow", "dvc", "great_expectations", "yaml", "pydantic", "typer", "rich", "pandas", "polars"}


def _loaded(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sorted(m.split('.')[0] for m in sys.modules)))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_core_loads_no_tool_and_no_layer_above() -> None:
    folders = (
        "auditing.verdict",
        "channel.pool",
        "statistics.nag",
        "training.loop",
        "methods.pass_substitution",
        "attacks.network",
    )
    loaded = _loaded("import " + ", ".join(f"pass_core.{module}" for module in folders))
    assert "torch" in loaded  # the control: the question can be answered yes
    assert not loaded & (TOOLS | {"tasks", "flows"})


def test_steps_load_no_orchestrator_and_no_slow_tool() -> None:
    """What three of them do not load together, none of them loads alone: one process is enough."""
    loaded = _loaded("import tasks.registry, tasks.__main__, tasks.reports.publish")
    assert "pydantic" in loaded
    # mlflow and great_expectations take seconds to import: only when they are used.
    assert not loaded & {"prefect", "dvc", "typer", "flows", "mlflow", "great_expectations"}


def test_command_line_answers_without_loading_prefect() -> None:
    assert "prefect" not in _loaded("import flows.cli.main")
