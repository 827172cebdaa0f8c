"""Named points at which a test can kill a run: with PASS_CRASH_AT=step it dies there as by kill -9, step:3 the third time.

With step@partition it dies whenever it does this step for that partition; with PASS_HANG_AT=step@partition it waits there for
ever.
"""

import os
import signal
import time
from collections import Counter

CRASH_AT, HANG_AT = "PASS_CRASH_AT", "PASS_HANG_AT"
# Every step of a run that leaves something on disk, in order.
STEPS = (
    "locked", "pinned", "partition started", "partition half written", "partition written", "partition staged", "all staged",
    "checked", "audited", "ledger half written", "ledger written", "version started", "version half linked", "version linked",
    "version synced", "version named", "pointer made", "pointer moved", "retired one", "staging cleared",
)  # fmt: skip
_passed: Counter[tuple[int, str]] = Counter()  # by process, since a forked one counts anew, and by what is wanted


def crash_point(step: str, partition: str = "") -> None:
    """Dies here when PASS_CRASH_AT names this step, or this step of this partition."""
    while partition and os.environ.get(HANG_AT) == f"{step}@{partition}":
        time.sleep(1)
    wanted = os.environ.get(CRASH_AT, "")
    name, _, count = wanted.partition(":")
    _passed[os.getpid(), wanted] += name == step
    if wanted == f"{step}@{partition}" or (name == step and _passed[os.getpid(), wanted] == int(count or 1)):
        os.kill(os.getpid(), signal.SIGKILL)
