"""Protection every night and an audit every week, as Prefect deployments that this process runs."""

from collections.abc import Callable
from typing import Any, cast

from prefect import Flow, serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType

from flows.audit import audit
from flows.prefect_setup import prefect_server
from flows.protect import protect
from pass_core.errors import ConfigError
from tasks.production.options import ProtectOptions
from tasks.sections.running import ScheduleConfig

# A run that would start while the last one is running is cancelled, not queued: the running one sees the same lake.
ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)


def deployments(options: ProtectOptions, schedule: ScheduleConfig) -> tuple[RunnerDeployment, RunnerDeployment]:
    """The two deployments, with absolute paths, named so that lakes on one server do not replace each other's."""
    whole = options.absolute()
    nightly = whole.model_dump(mode="json", exclude_none=True)
    weekly = {"dataset": whole.dataset, "method": whole.method, "root": whole.models, "params": whole.params}
    return (
        _deployment(protect, f"nightly-{whole.lake_name}", schedule.protect, schedule.timezone, {"options": nightly}),
        _deployment(
            audit, f"weekly-{whole.lake_name}", schedule.audit, schedule.timezone, weekly | {"settings": list(whole.settings)}
        ),
    )


def run_schedule(options: ProtectOptions, schedule: ScheduleConfig, port: int, show: Callable[[str], None]) -> None:
    """Runs both on their schedules until Ctrl-C; starts a server of its own where PREFECT_API_URL names none."""
    both = deployments(options, schedule)
    with prefect_server(port) as address:
        show(f"Runs, logs and schedules of {' and '.join(str(one.name) for one in both)}: {address.removesuffix('/api')}")
        # No limit: runs that an outage left waiting all start at once, and CANCEL_NEW leaves one. With a limit the others
        # would wait for that one, and then run in turn.
        serve(*both, print_starting_message=False, limit=None)


def _deployment(flow: Flow[..., Any], name: str, cron: str, timezone: str, parameters: dict[str, Any]) -> RunnerDeployment:
    try:
        made = flow.to_deployment(
            name,
            schedule=Cron(cron, timezone=timezone),
            concurrency_limit=ONE_AT_A_TIME,
            parameters=parameters,
            description=(flow.description or "").splitlines()[0],
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
    except ValueError:
        raise ConfigError(f"schedule: expected a cron expression, such as '0 2 * * *', found {cron!r}") from None
    return cast("RunnerDeployment", made)  # Prefect's type includes the coroutine that asynchronous callers get
