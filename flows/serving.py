"""Protection every night and an audit every week, as Prefect deployments that this process runs."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flows.audit import audit  # sets Prefect's environment before Prefect is imported
from flows.protect import protect

from prefect import Flow, serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.flows import EntrypointType
from prefect.schedules import Cron
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.cli.lake_order import Order
from flows.servers import HOST, prefect_server, servers
from pass_core.errors import ConfigError
from tasks.sections.production import ScheduleConfig

NIGHTLY, WEEKLY = "nightly", "weekly"
# A run that would begin while the last one is under way is cancelled, not queued: the one under way sees the same lake.
ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)


def deployments(order: Order, schedule: ScheduleConfig) -> tuple[RunnerDeployment, RunnerDeployment]:
    """The two deployments; paths are made absolute, since runs may begin in another folder."""
    whole = dataclasses.replace(
        order,
        source=_place(order.source),
        target=_place(order.target),
        root=_place(order.root),
        params=_place(order.params),
        state=_place(order.state) if order.state else None,
        key_file=_place(order.key_file) if order.key_file else None,
    )
    nightly = {name: value for name in whole.__slots__ if (value := getattr(whole, name)) not in (None, ())}
    nightly |= {"settings": list(whole.settings)} if whole.settings else {}
    weekly = {name: value for name, value in nightly.items() if name in ("dataset", "method", "root", "params", "settings")}
    return (
        _deployment(protect, NIGHTLY, schedule.protect, schedule.timezone, nightly),
        _deployment(audit, WEEKLY, schedule.audit, schedule.timezone, weekly),
    )


def run_schedule(order: Order, schedule: ScheduleConfig, port: int, tell: Callable[[str], None]) -> None:
    """Runs both on their schedules until Ctrl-C; with a server of its own where PREFECT_API_URL names none."""
    both = deployments(order, schedule)
    with _server(port) as address:
        tell(f"Runs, logs and schedules: {address.removesuffix('/api')}")
        serve(*both, print_starting_message=False)


@contextlib.contextmanager
def _server(port: int) -> Iterator[str]:
    """Prefect's temporary server runs no scheduler, so a whole one is started; its database stays in PREFECT_HOME."""
    elsewhere = PREFECT_API_URL.value()
    if elsewhere:
        yield elsewhere
        return
    address = f"http://{HOST}:{port}/api"
    with servers() as started:
        started.start(prefect_server(port))
        started.wait_for(f"{address}/health")
        with temporary_settings({PREFECT_API_URL: address}):
            yield address


def _deployment(flow: Flow[..., Any], name: str, cron: str, timezone: str, parameters: dict[str, Any]) -> RunnerDeployment:
    try:
        schedule = Cron(cron, timezone=timezone)
        return flow.to_deployment(
            name,
            schedule=schedule,
            concurrency_limit=ONE_AT_A_TIME,
            parameters=parameters,
            description=(flow.description or "").splitlines()[0],
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
    except ValueError:
        raise ConfigError(f"schedule: expected a time as cron writes it, such as '0 2 * * *', found {cron!r}") from None


def _place(place: str) -> str:
    return place if "://" in place else str(Path(place).resolve())
