"""How thorough an audit is, and what its verdict demands."""

from dataclasses import dataclass

from pass_core.errors import ConfigError

# Limits of records without labels; the others are of records whose classes are known.
DRIFTS = ("feature_drift_at_most", "entropy_drift_at_most", "exposure_drift_at_most", "usage_drift_at_most")


@dataclass(frozen=True, slots=True)
class Limit:
    """A number that a figure must keep to, and why it is this number."""

    value: float
    reason: str

    def __post_init__(self) -> None:
        if self.value < 0:
            raise ConfigError(f"value: expected 0 or more, found {self.value}")
        if not self.reason.strip():
            raise ConfigError("reason: expected a sentence for the report's readers, found none")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """What the verdict demands. Intervals must lie on the right side of a limit with their far end."""

    private_nag_at_most: Limit = Limit(
        0.15,
        "An attacker keeps at most about a seventh of the advantage, whatever the attack: the far end of the 95 % interval "
        "counts. Smaller leaks are found by information. A hundred test recordings cannot show a smaller limit; lower it with "
        "more.",
    )
    useful_nag_at_least: Limit = Limit(
        0.90, "A downstream model keeps nine tenths of what the attribute offered; the near end of the interval counts."
    )
    information_excess_at_most: Limit = Limit(
        0.00002,
        "Nats above what chance gives on as many records: ten thousand records of one person then tell at most 0.2 nats "
        "together. Accuracy cannot see leaks this small; information can.",
    )
    significance: Limit = Limit(
        0.01, "A private release is called leaking by chance once in a hundred audits, over all comparisons together."
    )
    membership_auc_at_most: Limit = Limit(
        0.60, "Telling training records from others is close to a coin toss (0.5); failed when the whole interval lies above."
    )
    reidentified_at_most: Limit = Limit(
        1.0,
        "Shown, not judged: substitution hides attributes, not that a record went in. Lower it where a release must not be "
        "traced to its original; failed when the whole interval lies above.",
    )
    replayed_seeds_at_most: Limit = Limit(
        0.0, "Whoever can make the draws again undoes the protection. Experiments that say so themselves are let pass."
    )
    feature_drift_at_most: Limit = Limit(
        0.10,
        "Records without labels are told from the audited ones by their features at most 0.1 of AUC better than chance: what the "
        "labelled audit found then still speaks of them.",
    )
    entropy_drift_at_most: Limit = Limit(
        0.25,
        "Nats above chance: records without labels are spread over at most a quarter more or fewer donors than audited ones.",
    )
    exposure_drift_at_most: Limit = Limit(
        0.10, "Above chance, at most one release in ten shows another donor than it would have among the audited records."
    )
    usage_drift_at_most: Limit = Limit(
        0.02, "The donors drawn are those that P(x'|x) asks for, up to chance; a fiftieth more is a fault in the draws."
    )

    def __post_init__(self) -> None:
        for name in (
            "private_nag_at_most",
            "useful_nag_at_least",
            "membership_auc_at_most",
            "reidentified_at_most",
            "significance",
            "feature_drift_at_most",
            "exposure_drift_at_most",
            "usage_drift_at_most",
        ):
            if getattr(self, name).value > 1:
                raise ConfigError(f"{name}: expected between 0 and 1, found {getattr(self, name).value}")


@dataclass(frozen=True, slots=True)
class Depth:
    """How much is tried."""

    fresh_draws: int = 8  # releases of the training records that attackers learn from, another one each epoch
    permutations: int = 200  # of the private classes, for the null of I(X';S)
    bundles: tuple[int, ...] = (1, 5, 10, 50, 100, 300)  # records known to be one person's
    draws: tuple[int, ...] = (1, 2, 5, 10, 20)  # releases of one record
    gallery: int = 2000  # originals among which a released record is sought
    subgroup_records: int = 100  # smaller subgroups are not looked at
    null_records: int = 20_000  # at most, where classes are dealt out over records one by one

    def __post_init__(self) -> None:
        for name in ("fresh_draws", "permutations", "gallery", "subgroup_records", "null_records"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: expected at least 1, found {getattr(self, name)}")
        for name in ("bundles", "draws"):
            if any(number < 1 for number in getattr(self, name)):
                raise ConfigError(f"{name}: expected numbers of at least 1")
