"""Prefect flows, and the command line above them."""

import os
from typing import Literal

import tasks.passive_waiting  # noqa: F401 - before anything that imports torch

EngineName = Literal["dvc", "in-process"]

# Prefect reads its environment when it is imported, and whatever of ours imports it imports this package first:
# no telemetry, time for its server to start on a busy machine, our log lines in its pages.
for _name, _value in {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "tasks,flows",
}.items():
    os.environ.setdefault(_name, _value)
