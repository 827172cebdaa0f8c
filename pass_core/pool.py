"""Choosing the pool of donors from the training records (pure: indices out)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pass_core.data import Attribute, IntArray
from pass_core.errors import ConfigError, DataError

Forbidden = Literal["none", "self", "same_person"]


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """How many training records become donors, drawn uniformly without replacement, and who may not meet whom."""

    donors: int = 4096
    forbid: Forbidden = "none"  # whom a record may not meet: itself, or anybody of its own person

    def __post_init__(self) -> None:
        if self.donors < 1:
            raise ConfigError(f"donors: expected at least 1, found {self.donors}")


def sample_pool(
    labels: Mapping[str, IntArray],
    useful: tuple[Attribute, ...],
    n_records: int,
    config: PoolConfig,
    rng: np.random.Generator,
) -> IntArray:
    """Sorted indices of the donors; every useful class that occurs in training has at least one donor.

    Raises:
        DataError: the pool is larger than the training set, or misses a useful class (L_U would be infinite).
    """
    if config.donors > n_records:
        raise DataError(f"pool.donors: expected at most the {n_records} training records, found {config.donors}")
    donors: IntArray = np.sort(rng.choice(n_records, size=config.donors, replace=False)).astype(np.int64)
    for attribute in useful:
        missing = np.setdiff1d(np.unique(labels[attribute.name]), np.unique(labels[attribute.name][donors]))
        if len(missing):
            raise DataError(
                f"the pool of {config.donors} donors has none for {len(missing)} class(es) of useful attribute "
                f"{attribute.name!r}: raise pool.donors or change the seed"
            )
    return donors
