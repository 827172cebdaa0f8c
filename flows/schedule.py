"""Protection every night, an audit every week and, on request, a check for drift, as Prefect deployments of this process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import Flow, serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType

from flows.audit import audit
from flows.prefect_setup import prefect_server
from flows.protect import protect
from flows.retrain import retrain
from pass_core.errors import ConfigError
from tasks.production.model_versions import CHAMPION
from tasks.production.options import ProtectOptions, RetrainOptions
from tasks.sections.running import ScheduleConfig

# A run that would start while the last one is running is cancelled, not queued: the running one sees the same lake.
ONE_AT_A_TIME = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)


@dataclass(frozen=True, slots=True)
class Retraining:
    """When new records are checked for drift, and where the labelled sample is that candidates learn from."""

    cron: str
    labelled: str | None = None


def deployments(
    options: ProtectOptions, schedule: ScheduleConfig, retraining: Retraining | None = None
) -> tuple[RunnerDeployment, ...]:
    """The deployments, with absolute paths, named so that lakes on one server do not replace each other's."""
    whole = options.absolute()
    nightly = whole.model_dump(mode="json", exclude_none=True)
    weekly = {"dataset": whole.dataset, "method": whole.method, "root": whole.models, "params": whole.params}
    lake = whole.lake_name
    made = [
        _deployment(protect, f"nightly-{lake}", schedule.protect, schedule.timezone, {"options": nightly}),
        _deployment(audit, f"weekly-{lake}", schedule.audit, schedule.timezone, weekly | {"settings": list(whole.settings)}),
    ]
    if retraining:
        given = {"options": _retrain_options(whole, retraining).model_dump(mode="json", exclude_none=True)}
        made.append(_deployment(retrain, f"retrain-{lake}", retraining.cron, schedule.timezone, given))
    return tuple(made)


def _retrain_options(options: ProtectOptions, retraining: Retraining) -> RetrainOptions:
    """What the check for drift is given: the folder in which `options.models` is the link to the champion."""
    link = Path(options.models)
    if link.name != CHAMPION or not link.is_symlink():
        expected = f"expected --models DIR/{CHAMPION}, the link of a folder of model versions, found {link}"
        raise ConfigError(f"--retrain: {expected}; make one with `pass-pipeline lake models add`")
    shared = {name: value for name, value in options.model_dump().items() if name in RetrainOptions.model_fields}
    return RetrainOptions(**shared | {"models": str(link.parent), "labelled": retraining.labelled}).absolute()


def run_schedule(
    options: ProtectOptions,
    schedule: ScheduleConfig,
    port: int,
    show: Callable[[str], None],
    retraining: Retraining | None = None,
) -> None:
    """Runs all on their schedules until Ctrl-C; starts a server of its own where PREFECT_API_URL names none."""
    made = deployments(options, schedule, retraining)
    with prefect_server(port) as address:
        show(f"Runs, logs and schedules of {' and '.join(str(one.name) for one in made)}: {address.removesuffix('/api')}")
        # No limit: runs that an outage left waiting all start at once, and CANCEL_NEW leaves one. With a limit the others
        # would wait for that one, and then run in turn.
        serve(*made, print_starting_message=False, limit=None)


def _deployment(flow: Flow[..., Any], name: str, cron: str, timezone: str, parameters: dict[str, Any]) -> RunnerDeployment:
    make: Any = flow.to_deployment  # its type knows neither `_sync` nor what it then returns
    try:
        made: RunnerDeployment = make(
            name,
            schedule=Cron(cron, timezone=timezone),
            concurrency_limit=ONE_AT_A_TIME,
            parameters=parameters,
            description=(flow.description or "").splitlines()[0],
            entrypoint_type=EntrypointType.MODULE_PATH,
            _sync=True,  # Prefect would return a coroutine wherever an event loop runs, such as in a notebook
        )
    except ValueError:
        raise ConfigError(f"schedule: expected a cron expression, such as '0 2 * * *', found {cron!r}") from None
    return made
