"""How Prefect treats each step: retries and timeouts. Errors that a retry cannot mend are not retried."""

from dataclasses import dataclass

from pass_core.errors import TransientError


@dataclass(frozen=True, slots=True)
class Policy:
    """Retries with a delay, and the longest a step may take."""

    retries: int
    retry_delay_seconds: int
    timeout_minutes: int


POLICY = {
    "generate": Policy(1, 2, 30),
    "ingest": Policy(2, 5, 240),  # reads disks and networks
    "validate": Policy(1, 2, 60),
    "extract": Policy(1, 5, 24 * 60),
    "sample_pool": Policy(1, 2, 60),
    "train": Policy(1, 5, 48 * 60),
    "substitute": Policy(2, 5, 24 * 60),
    "audit": Policy(1, 5, 24 * 60),
    "report": Policy(1, 2, 30),
}

PROTECT = Policy(1, 5, 24 * 60)  # a batch of a lake's partitions
PUBLISH = Policy(0, 0, 24 * 60)  # run again as a whole: what is staged stays


def is_transient(error: BaseException) -> bool:
    """Whether trying again can help: a disk or a server may come back, wrong data and parameters stay wrong."""
    # A step that ran out of time or a path that does not exist are OSErrors too, and would be so again.
    lasting = TimeoutError | FileNotFoundError | NotADirectoryError | IsADirectoryError
    return isinstance(error, TransientError | OSError) and not isinstance(error, lasting)
