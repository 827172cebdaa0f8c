"""When Prefect will protect a target next; asked without importing Prefect, so that a check stays quick."""

import contextlib
import json
import os
import ssl
import urllib.request
from base64 import b64encode
from typing import Any

SECONDS = 2.0
FLOW = "pass-protect"


def next_run(target: str, api: str | None = None) -> str | None:
    """The next scheduled run (UTC) of the target at an absolute path or URL; None where no server knows one.

    `api` is the server's address; default: PREFECT_API_URL. Prefect's own variables of login and certificate hold here, too.
    """
    address = api or os.environ.get("PREFECT_API_URL")
    if not address:
        return None
    wanted = {
        "flows": {"name": {"any_": [FLOW]}},
        "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}},
        "sort": "EXPECTED_START_TIME_ASC",
        "limit": 200,
    }
    headers = {"Content-Type": "application/json"}
    if login := os.environ.get("PREFECT_API_AUTH_STRING"):
        headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
    request = urllib.request.Request(  # noqa: S310 (the user's own server)
        f"{address.rstrip('/')}/flow_runs/filter", json.dumps(wanted).encode(), headers
    )
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        context = ssl.create_default_context(cafile=os.environ.get("PREFECT_API_SSL_CERT_FILE"))
        with urllib.request.urlopen(request, timeout=SECONDS, context=context) as answer:  # noqa: S310
            runs: list[dict[str, Any]] = json.load(answer)
        for run in runs:
            if run["parameters"]["options"]["target"] == target:
                return str(run["expected_start_time"])
    return None
