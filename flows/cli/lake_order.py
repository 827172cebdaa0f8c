"""What `protect` is asked for, and the run that follows from it; without Prefect, so that a plan is shown at once."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pass_core.errors import ConfigError
from tasks.config import Config, load_config, parse_overrides
from tasks.production.audit_gate import AuditGate
from tasks.production.backfill import between
from tasks.production.draw_key import find_key
from tasks.production.interfaces import Engine
from tasks.production.local import LocalEngine
from tasks.production.request import Request
from tasks.production.run import Protection
from tasks.production.versions import TargetFormat, default_state, open_target
from tasks.running.layout import Layout, layout_at
from tasks.running.step_io import Reporter, RunKey

EngineName = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class Order:
    """The flow's parameters, as the command line and deployments give them."""

    source: str
    target: str
    dataset: str
    method: str = "pass_substitution"
    root: str = "data"
    params: str = "params.yaml"
    settings: tuple[str, ...] = ()
    state: str | None = None
    key_file: str | None = None
    key_block: str | None = None
    workers: int | None = None
    first: str | None = None
    last: str | None = None
    backfill: bool = False
    new_columns: bool = False
    drop_missing: bool = False
    redraw: str | None = None
    engine: EngineName = "local"
    address: str | None = None
    target_format: TargetFormat | None = None


def prepare(order: Order, progress: Reporter) -> Protection:
    """A run that has not begun: everything is opened and checked, nothing is written."""
    params = Path(order.params).resolve()
    overrides = parse_overrides(list(order.settings))
    if "seed" in overrides:
        raise ConfigError("seed: expected none in production: draws go by the secret key, and a seed can be guessed")
    key, layout = RunKey(order.dataset, order.method), layout_at(Path(order.root), raw_data_from_environment=False)
    config = load_config(params, overrides).with_names((order.dataset,), (order.method,))
    request = Request(
        key=key,
        source=order.source,
        state=Path(order.state).resolve() if order.state else default_state(order.target),
        layout=layout,
        draw_key=_draw_key(order),
        only=between(order.first, order.last) if order.first or order.last else None,
        new_columns=order.new_columns,
        drop_missing=order.drop_missing,
        redraw=order.redraw,
        partial=order.backfill,
    )
    target = open_target(order.target, request.state, order.target_format)
    if target.plain_lists and getattr(config.dataset[order.dataset], "payload_is_path", False):
        raise ConfigError(f"{order.target}: a Delta table holds no files that a column of paths could point to; use parquet")
    return Protection(request, config, target, _engine(order), _gate(config, layout, key), progress)


def _engine(order: Order) -> Engine:
    if order.engine == "ray":
        from tasks.production.ray import RayEngine

        return RayEngine(order.workers, order.address)
    if order.address:
        raise ConfigError("address: expected none with the local engine; give --engine ray")
    return LocalEngine(order.workers)


def _gate(config: Config, layout: Layout, key: RunKey) -> AuditGate:
    return AuditGate(config.audit, config.seed, config.compute.threads, layout, key)


def _draw_key(order: Order) -> bytes:
    secret = None
    if order.key_block:
        from prefect.blocks.system import Secret

        try:
            secret = str(Secret.load(order.key_block).get())
        except ValueError:
            raise ConfigError(
                f"key_block: expected a Secret block of Prefect's server, found none called {order.key_block!r}; make it there"
            ) from None
    return find_key(Path(order.key_file) if order.key_file else None, os.environ, secret)
