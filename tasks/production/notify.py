"""Reports troubles to a webhook. A receiver that is slow or down costs a run `notify.seconds` and a warning, never its result."""

import contextlib
import datetime
import json
import logging
import os
import threading
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pass_core.errors import DataError
from tasks.production.run_log import now
from tasks.production.troubles import Trouble
from tasks.sections.running import NotifyConfig
from tasks.storage.files import read_json, write_json

REPORTED = "reported.json"  # in the private state folder: kind of trouble -> when it was reported
ADDRESS = "PASS_WEBHOOK_URL"  # environment: anyone who knows the address of a chat's webhook can post there

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """A trouble of one data set; it names no partition, no record and no value."""

    dataset: str | None  # None where nothing was ever published
    target: str
    trouble: Trouble


def notify(notice: Notice, config: NotifyConfig) -> bool:
    """Posts a notice where PASS_WEBHOOK_URL says; True once the receiver has accepted it."""
    address = os.environ.get(ADDRESS)
    if not address:
        return False
    if not address.startswith(("http://", "https://")):
        logger.warning("%s: expected an address that starts with https:// or http://, found another one; correct it", ADDRESS)
        return False
    accepted: list[bool] = []
    problem = f"no answer within {config.seconds:g} s"

    def post() -> None:
        nonlocal problem
        try:
            body, headers = json.dumps(body_of(notice, config)).encode(), {"Content-Type": "application/json"}
            request = urllib.request.Request(address, body, headers)  # noqa: S310 (checked above)
            with urllib.request.urlopen(request, timeout=config.seconds):  # noqa: S310
                accepted.append(True)
        except Exception as error:  # noqa: BLE001 (nothing that happens there may stop a run; its text may hold the address)
            problem = problem if isinstance(error, TimeoutError) else type(error).__name__  # the same limit, noticed first here

    # A thread, since the timeout above is one of each step: a receiver that sends a byte a second would hold us for ever.
    thread = threading.Thread(target=post, daemon=True)
    thread.start()
    thread.join(config.seconds)
    if not accepted:
        logger.warning("notification: the receiver did not accept it (%s)", problem)
    return bool(accepted)


def notify_once(notices: Sequence[Notice], state: Path, config: NotifyConfig) -> None:
    """Posts each kind of trouble of a target at most once a day, so that a check may run every few minutes."""
    path = state / REPORTED
    today: dict[str, str] = {}
    with contextlib.suppress(DataError, TypeError, ValueError, AttributeError):
        since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        known = {kind: time for kind, time in read_json(path).items() if datetime.datetime.fromisoformat(time) > since}
        current = {notice.trouble.kind for notice in notices}
        today = {kind: time for kind, time in known.items() if kind in current}  # a trouble that comes back is news
    for notice in notices:
        if notice.trouble.kind not in today and notify(notice, config):
            today[notice.trouble.kind] = now()
    if state.is_dir():
        with contextlib.suppress(OSError):
            write_json(path, today)


def body_of(notice: Notice, config: NotifyConfig) -> Mapping[str, Any]:
    """What is posted."""
    trouble, dataset = notice.trouble, notice.dataset or "unknown data set"
    if config.format == "json":
        found = {"event": trouble.kind, "dataset": notice.dataset, "target": notice.target, "reason": trouble.reason}
        return found | {"next": trouble.next, "time": now()}
    title, target = f"pass-pipeline: {dataset}: {trouble.kind}", f"Target: {notice.target}"
    if config.format == "slack":
        return {"text": f"*{_slack(title)}*\n{_slack(trouble.reason)}\n{_slack(target)}\nNext: `{_slack(trouble.next)}`"}
    lines: list[dict[str, Any]] = [{"type": "TextBlock", "text": title, "weight": "Bolder", "wrap": True}]
    lines += [{"type": "TextBlock", "text": text, "wrap": True} for text in (trouble.reason, target, f"Next: {trouble.next}")]
    card = {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "body": lines,
    }
    return {"type": "message", "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "content": card}]}


def _slack(text: str) -> str:
    """Slack's three escapes."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
