"""How thorough an audit is, and the limits of its verdict."""

from dataclasses import dataclass, fields
from typing import Literal

from pass_core.errors import ConfigError

Effort = Literal["full", "quick"]
QUICK_ATTACKS = ("exact_bayes", "logistic_regression", "network")

# Limits for records without labels; the others are for records whose classes are known.
DRIFTS = ("feature_drift_at_most", "entropy_drift_at_most", "exposure_drift_at_most", "usage_drift_at_most")


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit for a figure, and why it has this value."""

    value: float
    reason: str

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ConfigError(f"value: expected 0 or more, found {self.value}")
        if not self.reason.strip():
            raise ConfigError("reason: expected a sentence for the report's readers, found none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The limits of the verdict. A whole interval above its limit shows a leak; a whole interval below it is needed to pass."""

    private_nag_at_most: Limit = Limit(
        0.15,
        "An attacker keeps at most about a seventh of the advantage over guessing that originals give, whatever the attack. A "
        "hundred test recordings cannot decide a smaller limit; lower it with more.",
    )
    private_auc_at_most: Limit = Limit(
        0.60,
        "Of 100 pairs of records of two classes, an attacker sorts at most 60 correctly; a coin toss gives 50. Finds leaks that "
        "accuracy hides where one class is rare.",
    )
    private_gain_at_most: Limit = Limit(
        0.02,
        "A release reveals at most a fiftieth of what there is to know about the attribute (its entropy). Finds leaks that make "
        "an attacker sure of a few records only.",
    )
    useful_nag_at_least: Limit = Limit(
        0.90, "Whoever reads the attribute from releases keeps nine tenths of the advantage over guessing that originals give."
    )
    information_excess_at_most: Limit = Limit(
        0.00002,
        "Nats above what chance gives on as many records, where replacement probabilities are known. Ten thousand records of one "
        "person then reveal at most 0.2 nats together.",
    )
    significance: Limit = Limit(
        0.01, "A release that leaks nothing is called leaking in at most one of a hundred audits, over all comparisons together."
    )
    membership_auc_at_most: Limit = Limit(0.60, "Recognising training records is close to a coin toss (0.5).")
    membership_rate_at_most: Limit = Limit(
        0.05,
        "At most one training record in twenty is recognised by an attacker who is wrong about one other record in a hundred. "
        "Finds a protector that remembers a few records only.",
    )
    reidentified_at_most: Limit = Limit(
        0.10,
        "At most one release in ten is traced to its original by somebody who holds originals and the protector, beyond what the "
        "useful and general attributes tell, which a release keeps on purpose. Substitution hides attributes, not that a record "
        "was part of the data; lower the limit where it must.",
    )
    copied_at_most: Limit = Limit(
        0.005,
        "Above chance, at most one release in two hundred is its own original or a near copy of it. A copy protects nothing, so "
        "that the limit is only as large as a few thousand records need to show that it holds.",
    )
    singled_out_at_most: Limit = Limit(
        0.05,
        "Descriptions read from the release single out at most one in twenty people more than they do among people whose release "
        "was not seen.",
    )
    linked_auc_at_most: Limit = Limit(
        0.60,
        "Of 100 choices between two releases, one of the same person and one of somebody else, at most 60 are correct; a coin "
        "toss gives 50.",
    )
    replayed_seeds_at_most: Limit = Limit(
        0.0, "An attacker who repeats the draws undoes the protection. Experiments that declare their seed pass."
    )
    feature_drift_at_most: Limit = Limit(
        0.10,
        "Features separate records without labels from the audited ones by at most 0.1 of AUC above chance: then the findings "
        "of the labelled audit still apply to them.",
    )
    entropy_drift_at_most: Limit = Limit(
        0.25,
        "Nats above chance: records without labels are spread over at most a quarter more or fewer donors than audited ones.",
    )
    exposure_drift_at_most: Limit = Limit(
        0.10, "Above chance, at most one release in ten shows another donor than it would have among the audited records."
    )
    usage_drift_at_most: Limit = Limit(
        0.02, "The donors are drawn as P(x'|x) requires, up to chance; a fiftieth more is a fault in the draws."
    )

    def __post_init__(self) -> None:
        not_shares = ("information_excess_at_most", "replayed_seeds_at_most", "entropy_drift_at_most")
        for field in fields(self):
            value = getattr(self, field.name).value
            if value > 1 and field.name not in not_shares:
                raise ConfigError(f"{field.name}: expected between 0 and 1, found {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How much is tried."""

    fresh_draws: int = 8  # releases of the training records that attackers learn from, another one in each epoch
    permutations: int = 200  # of the private classes, for the null of I(X';S)
    bundles: tuple[int, ...] = (1, 5, 10, 50, 100, 300)  # records known to be one person's
    draws: tuple[int, ...] = (1, 2, 5, 10, 20)  # releases of one record
    gallery: int = 2000  # originals among which a released record is sought
    subgroup_records: int = 100  # smaller subgroups are not analysed
    null_records: int = 20_000  # at most, where classes are permuted over single records
    validity_records: int = 2000  # training and test records, at most, on which attacks must find a planted leak

    def __post_init__(self) -> None:
        for name in ("fresh_draws", "permutations", "gallery", "subgroup_records", "null_records", "validity_records"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        for name in ("bundles", "draws"):
            if any(number < 1 for number in getattr(self, name)):
                raise ConfigError(f"{name}: expected numbers of at least 1")


def tried(attack: str, effort: Effort) -> bool:
    """Whether an audit of this effort tries the attack of that name."""
    return effort == "full" or attack in QUICK_ATTACKS
