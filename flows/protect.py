"""Lake protection as a Prefect flow: one task for the partitions, one to publish; files between them, no Prefect caching."""

from collections.abc import Callable
from functools import partial
from typing import Any

from prefect import flow, runtime
from prefect.artifacts import create_table_artifact
from prefect.blocks.system import Secret

from flows.prefect_setup import Policy, run_task, shown_progress
from pass_core.errors import ConfigError
from tasks.production.manifest import Manifest
from tasks.production.options import ProtectOptions
from tasks.production.plan import Plan
from tasks.production.run import Hooks, execute

# Partitions are tried again; publishing is not: a new run reuses the staged partitions. A lake may take weeks; each partition
# has its own time (`partition_minutes`).
POLICIES = {"protect": Policy(1, 5, 30 * 24 * 60), "publish": Policy(0, 0, 24 * 60)}


def _run_name() -> str:
    options = runtime.flow_run.parameters["options"]
    return str(options["dataset"] if isinstance(options, dict) else options.dataset)


@flow(name="pass-protect", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def protect(options: ProtectOptions) -> dict[str, int]:
    """Protects what has changed in a lake and publishes it as a new version; counts of partitions and rows.

    Args:
        options: the lake, the target, the data set's section of params.yaml, and how to run.
    """
    secret = partial(secret_of, options.key_block) if options.key_block else None
    hooks = Hooks(progress=shown_progress.get(), call=_as_task, published=_show, secret=secret)
    return execute(options, hooks).counts()


def _as_task(name: str, title: str, body: Callable[[], Any]) -> Any:
    return run_task(name, title, body, POLICIES[name])


def secret_of(block: str) -> str:
    """The draw key in a Secret block of Prefect's server."""
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
