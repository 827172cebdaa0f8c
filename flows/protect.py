"""Lake protection as a Prefect flow: one task per batch of partitions, one to publish; files between them, no Prefect caching."""

from collections.abc import Callable
from typing import Any

from prefect import flow, runtime
from prefect.artifacts import create_table_artifact
from prefect.blocks.system import Secret

from flows.prefect_setup import PROTECT, PUBLISH, as_task, run_shown, shown_progress
from pass_core.errors import ConfigError
from tasks.production.manifest import Manifest
from tasks.production.options import ProtectOptions
from tasks.production.plan import Plan
from tasks.production.run import Hooks, execute
from tasks.running.step_io import Reporter

POLICIES = {"protect": PROTECT, "publish": PUBLISH}


def _run_name() -> str:
    options = runtime.flow_run.parameters["options"]
    return str(options["dataset"] if isinstance(options, dict) else options.dataset)


@flow(name="pass-protect", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def protect(options: ProtectOptions) -> dict[str, int]:
    """Protects what has changed in a lake and publishes it as a new version; counts of partitions and rows.

    Args:
        options: the lake, the target, the data set's section of params.yaml, and how to run.
    """
    secret = _secret(options.key_block) if options.key_block else None
    hooks = Hooks(progress=shown_progress.get(), call=_as_task, published=_show, secret=secret)
    return execute(options, hooks).counts()


def _as_task(name: str, title: str, body: Callable[[], Any]) -> Any:
    return as_task(body, name, title, POLICIES[name])()


def _secret(block: str) -> str:
    try:
        found: Any = Secret.load(block)
        return str(found.get())
    except ValueError:
        raise ConfigError(
            f"key_block: expected a Secret block of Prefect's server, found none called {block!r}; make it there"
        ) from None


def _show(manifest: Manifest, plan: Plan) -> None:
    """The run in Prefect's UI: counts and digests, never a value of a record."""
    rows = [{"reason": reason, "partitions": number} for reason, number in plan.reasons().items()]
    create_table_artifact(table=rows, key="protected-lake", description=f"Version {manifest.version}")


def run_protect(progress: Reporter, options: ProtectOptions) -> dict[str, int]:
    """Runs the flow with a progress display."""
    counts: dict[str, int] = run_shown(protect, progress, options=options)
    return counts
