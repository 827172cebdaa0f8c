"""Named instants at which a test can kill a run: PASS_CRASH_AT=step dies there as kill -9 does, step:3 the third time."""

import os
import signal
from collections import Counter

CRASH_AT = "PASS_CRASH_AT"
# Every step of a run that leaves something on disk, in order.
STEPS = (
    "locked",
    "pinned",
    "partition started",
    "partition half written",
    "partition written",
    "partition staged",
    "all staged",
    "checked",
    "audited",
    "ledger half written",
    "ledger written",
    "version started",
    "version half linked",
    "version linked",
    "version synced",
    "version named",
    "pointer made",
    "pointer moved",
    "retired one",
    "staging cleared",
)
_passed: Counter[str] = Counter()


def crash_point(step: str) -> None:
    """Dies here when the environment says so."""
    wanted = os.environ.get(CRASH_AT)
    if wanted is None:
        return
    name, _, count = wanted.partition(":")
    _passed[step] += 1
    if name == step and _passed[step] == int(count or 1):
        os.kill(os.getpid(), signal.SIGKILL)
