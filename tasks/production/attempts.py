"""Gives partitions to an executor until each is staged or has failed; one on which workers die never stops the others.

When a worker dies, the partitions that were in work are those with a half-written folder. They are assigned again, those that
were in work twice one at a time: a worker that dies then has found the partition to blame.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

from tasks.production.interfaces import Executor, Failure, Job, SourcePartition
from tasks.production.manifest import Receipt
from tasks.production.staging import Staging
from tasks.running.processes import WorkerDied

logger = logging.getLogger(__name__)

ALONE, GIVEN_UP = 2, 3  # deaths of workers with a partition in work until it runs alone, and until it has failed
UNEXPLAINED = 3  # deaths in a row with nothing in work until the run stops: then it is no partition's fault


def attempt_all(
    executor: Executor, job: Job, work: Sequence[SourcePartition], staging: Staging, retries: Counter[str]
) -> Iterator[Receipt | Failure]:
    """The outcome of every partition, in any order, after one retry of transient failures; counts what is tried again."""
    waiting, deaths, retried, unexplained = {one.name: one for one in work}, Counter[str](), set[str](), 0
    while waiting:
        together = [one for one in waiting.values() if deaths[one.name] < ALONE]
        try:
            for outcome in executor.protect(job, together or list(waiting.values())[:1]):
                if isinstance(outcome, Failure) and outcome.transient and not outcome.full and outcome.partition not in retried:
                    retried.add(outcome.partition)
                    retries[outcome.partition] += 1
                    continue
                del waiting[outcome.partition]
                unexplained = 0
                yield outcome
        except WorkerDied as error:
            suspects = staging.in_work(waiting)
            logger.warning("a worker died with %d partition(s) in work, %d are left", len(suspects), len(waiting))
            unexplained += not suspects
            if unexplained == UNEXPLAINED:
                raise
            deaths.update(suspects)
            retries.update(suspects)
            for name in suspects:
                if deaths[name] == GIVEN_UP:
                    del waiting[name]
                    retries[name] -= 1  # it is not tried again
                    reasons = f"out of memory, killed, or longer than {job.minutes:g} minutes"
                    found = f"workers died on it {GIVEN_UP} times, at last alone ({reasons}): {error}"
                    yield Failure(
                        name, f"{found}; make it smaller, or give it more memory or time", transient=False, kind="WorkerDied"
                    )
