"""What an audit finds: the typed form of audit.json. Fractions between 0 and 1; information in nats."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from pass_core.auditing.thresholds import Effort, Limit
from pass_core.data import Role
from pass_core.statistics.intervals import Estimate
from pass_core.statistics.null_distribution import NullComparison, Units
from pass_core.statistics.score_test import ScoreTest

Outcome = Literal["below the limit", "cannot be decided", "leak shown"]  # of a privacy check
Kept = Literal["kept", "cannot be decided", "lost"]  # of a utility check
Verdict = Literal["pass", "undecided", "fail"]
Population = Literal["enrolled people", "new people", "donors"]
Finding = TypeVar("Finding")


def with_interval(found: Estimate) -> str:
    """A share in the words of a check."""
    return f"{found.value:.1%} ({found.low:.1%} to {found.high:.1%})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackFindings:
    """One attack on one attribute, trained on released training records, scored on released test records."""

    name: str
    accuracy: Estimate
    nag: Estimate
    balanced_accuracy: Estimate
    auc: Estimate  # mean over classes against the rest
    gain: ScoreTest  # nats per record above chance, beyond what the useful classes reveal
    unprotected_accuracy: float | None  # the same attack on originals; None for attacks that need a pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A test of whether an attacker's scores predict a private attribute; all tests of an audit are judged together."""

    attribute: str
    about: str  # who attacks what, such as "gender by attack network"
    population: Population
    test: ScoreTest
    entropy: float  # of the attribute among these records, nats: what there is to reveal
    required: bool = False  # whether a pass needs it below the limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Information(NullComparison):
    """A figure, such as I(X';A) on test records, beside its null: what it would be if nothing leaked."""

    unit: str  # person, recording or record: what is permuted for the null
    units: int

    @classmethod
    def of(cls, comparison: NullComparison, units: Units) -> "Information":
        """A comparison over these units."""
        return cls(**asdict(comparison), unit=units.name, units=units.number)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Information on a private attribute beside its null, wherever an analysis measures it."""

    attribute: str
    about: str  # the attribute, or in which situation
    information: Information


@dataclass(frozen=True, slots=True)
class DonorLeakage:
    """How much a single donor reveals: the worst one, and by the share of releases that show it."""

    largest_ratio: float  # max over donors and classes of P(a|x')/P(a)
    largest_divergence: float  # max over donors of KL(P(A|x')‖P(A)), nats
    divergence_quantiles: Mapping[str, float]  # "0.5", "0.95", "0.99" of the releases are at or below


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """How far apart the inferred classes of any two records can be, averaged over their draws.

    The attacker's inference of record x is E over x' of P(A|x'). It is (0, δ)-close for any two records.
    """

    gamma: float  # max over donors of KL(P(A|x')‖P(A)): the paper's condition
    pinsker: float  # √(2γ), the paper's bound
    twice_distance: float  # 2·max over donors of the total variation between P(A|x') and P(A)
    delta: float  # δ*, the largest distance found between two test records
    robust_gamma: float  # γ without the donors shown in at most 1 % of the releases
    robust_bound: float  # √(2γ) + the two largest probabilities of drawing those donors
    records: int  # that δ* was taken over


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFindings:
    """The best possible attacker, computed from P(x'|x): NAG between a rule learnt on train and the plug-in on test."""

    rule: Estimate  # NAG of the best rule donor -> class learnt on training records; unbiased, from below
    plug_in: float  # NAG of the best rule for the test records themselves; biased upwards
    bound: float  # NAG that the population's best attacker exceeds with probability at most 5 % (McDiarmid, over units)
    rule_accuracy: Estimate
    plug_in_accuracy: float
    bound_accuracy: float
    balanced_plug_in_accuracy: float
    information: Information
    leakage: DonorLeakage
    certificate: Certificate | None  # of private attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgroup:
    """An attribute within one class of another: NAG of the worst attack and of the exact attacker who knows that class."""

    attribute: str
    label: int  # its class
    records: int
    persons: int
    nag: Estimate | None  # private: of the worst attack in here; else of the attribute's best; None if originals reveal nothing
    exact_nag: Estimate | None  # of the rule learnt within this subgroup; None without a pool
    information: Information | None
    trained_on_released: Estimate | None = None  # the attribute's NAG of that name, in here; None for private ones


@dataclass(frozen=True, slots=True, kw_only=True)
class SideInformation:
    """An attacker who knows another attribute of the record, or a column published with it, beside its release."""

    known: str
    released: bool  # a column published unchanged: what it reveals alone counts as revealed by the release
    guess: float  # accuracy from the known one alone
    accuracy: Estimate  # with the release
    nag: Estimate | None  # of what the release adds, None where originals add nothing; of a published column of both together
    information: Information | None  # I(X';A|known); of a published column I(X',known;A)
    judged: bool  # whether the recipient is assumed to know it


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeFindings:
    """One attribute: before, after, under every attack."""

    name: str
    role: Role
    combines: tuple[str, ...]  # private attributes whose combination this is; empty for a single one
    n_classes: int
    guess: float  # accuracy of the best constant guess, or of the best guess from the useful classes
    unprotected: Estimate  # accuracy of the best attack on originals: the control
    unprotected_attack: str
    protected: Estimate  # accuracy of the worst attack on the release
    attack: str  # the worst one; `exact` when the exact rule is worst
    nag: Estimate  # of the worst attack
    attacks: tuple[AttackFindings, ...]
    exact: ExactFindings | None
    unfinetuned: Estimate | None  # NAG on the release of the control itself, a model that is not retrained
    own_adversary: Estimate | None  # NAG-Protector: the adversary that the protector was trained against
    trained_on_released: Estimate | None  # NAG on *originals* of the best model trained on releases
    subgroups: tuple[Subgroup, ...]
    side_information: tuple[SideInformation, ...]
    through_useful: float  # I(useful classes; attribute) of the training records, nats: revealed on purpose, and not judged
    evidence: tuple[Evidence, ...]  # of private attributes
    verdict: Outcome | Kept | None  # None for general attributes, which are shown but not judged


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFindings:
    """How much the channel reveals about the record itself."""

    pool_size: int
    record_information_train: float
    record_information_test: float
    row_entropy: float
    maximal_leakage: float  # ln Σ_d max_x P(d|x) over the test records, nats


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift(Information):
    """How far new records are from those of the labelled audit, beside what chance gives."""

    name: str  # the threshold's name in params.yaml


@dataclass(frozen=True, slots=True)
class Unlabelled:
    """What replaces attacks on records without labels; the other figures are the labelled audit's."""

    records: int
    labelled_audit: str  # SHA-256 of the audit.json that is relied on
    labelled_time: str  # when that audit was made
    drift: tuple[Drift, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One demand of the verdict. The whole interval on one side of the limit decides it."""

    name: str  # the threshold's name in params.yaml
    about: str  # the attribute, or what is judged
    population: Population | None
    found: Estimate  # the ends are those that are judged: near ends allow for all comparisons made
    limit: float
    outcome: Outcome | Kept
    required: bool  # whether a pass needs it decided
    units: int | None  # persons, recordings or records that the interval rests on,
    needed: int | None  # and about so many that would decide; None: decided, or no number would
    detectable: float | None  # the smallest figure that these records would have shown to be above the limit
    sentence: str  # the figure and its limit, for people
    reason: str  # why this limit
    attribute: str | None = None  # whose verdict it is part of

    @property
    def passed(self) -> bool:
        """Whether the demand is met for certain."""
        return self.outcome in ("below the limit", "kept")

    @property
    def failed(self) -> bool:
        """Whether the demand is broken for certain."""
        return self.outcome in ("leak shown", "lost")

    @classmethod
    def at_most(cls, name: str, limit: Limit, about: str, found: Estimate, words: str, **more: Any) -> "Check":
        """A privacy check: a figure that must be small. `words` describe it; `more` are further fields."""
        outcome: Outcome = "leak shown" if found.low > limit.value else "below the limit"
        if found.low <= limit.value < found.high:
            outcome = "cannot be decided"
        return cls._judged(name, limit, about, found, sentence=words, outcome=outcome, **more)

    @classmethod
    def at_least(cls, name: str, limit: Limit, about: str, found: Estimate, words: str, **more: Any) -> "Check":
        """A utility check: a figure that must be large."""
        outcome: Kept = "lost" if found.high < limit.value else "kept"
        if found.low < limit.value <= found.high:
            outcome = "cannot be decided"
        return cls._judged(name, limit, about, found, sentence=words, outcome=outcome, **more)

    @classmethod
    def _judged(cls, name: str, limit: Limit, about: str, found: Estimate, *, outcome: Outcome | Kept, **more: Any) -> "Check":
        units, fields = more.pop("units", None), {"population": None, "required": True} | more
        needed = None
        if outcome == "cannot be decided" and units and abs(found.value - limit.value) > 1e-9:
            reach = (found.low if found.value > limit.value else found.high) - found.value
            needed = max(units + 1, round(min(units * (reach / (found.value - limit.value)) ** 2, 1e12)))
        return cls(
            name=name, about=about, found=found, limit=limit.value, outcome=outcome, units=units, needed=needed,
            detectable=limit.value + found.high - found.value, reason=limit.reason, **fields,
        )  # fmt: skip

    @classmethod
    def fact(cls, name: str, limit: Limit, about: str, *, value: float, passed: bool, sentence: str) -> "Check":
        """A check that has no interval: it is met or broken."""
        return cls(
            name=name, about=about, population=None, found=Estimate(value, value, value), limit=limit.value,
            outcome="below the limit" if passed else "leak shown", required=True, units=None, needed=None,
            detectable=None, sentence=sentence, reason=limit.reason,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AuditFindings:
    """The whole audit."""

    verdict: Verdict  # pass: privacy below its limits where a pass needs it, no leak shown anywhere, and utility kept
    privacy: Outcome
    utility: Kept | None  # None without a useful attribute
    reasons: tuple[str, ...]  # sentences of the checks that are broken; else of those that are needed and undecided
    checks: tuple[Check, ...]
    unreadable: tuple[str, ...]  # attributes that no attack reads from originals: NAG is undefined for them
    mnag: Estimate
    attributes: tuple[AttributeFindings, ...]
    channel: ChannelFindings | None
    analyses: Mapping[str, Any]  # key of an analysis -> its finding, or None; in audit.json each key is at the top level
    not_promised: tuple[str, ...]
    effort: Effort = "full"  # quick: some attacks and analyses only, which is too few to publish anything
    unlabelled: Unlabelled | None = None  # for records without labels

    def finding(self, kind: type[Finding]) -> Finding | None:
        """The finding of the analysis whose findings are of this type; None where it could not be made."""
        return next((found for found in self.analyses.values() if isinstance(found, kind)), None)
