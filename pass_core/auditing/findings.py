"""What an audit finds: the typed form of audit.json. Fractions between 0 and 1; information in nats."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pass_core.data import Role
from pass_core.statistics.intervals import Estimate

Outcome = Literal["pass", "fail"]


@dataclass(frozen=True, slots=True)
class AttackFindings:
    """One attack on one attribute, learnt from released training records, scored on released test records."""

    name: str
    accuracy: Estimate
    nag: Estimate
    balanced_accuracy: Estimate
    auc: Estimate  # mean over classes against the rest
    log_loss_gain: Estimate  # nats per record above the class shares; negative when overconfident
    unprotected_accuracy: float | None  # the same attack on originals; None for attacks that need a pool
    gain_p_value: float = 1.0  # of a log-loss gain as large when nothing leaks


@dataclass(frozen=True, slots=True)
class Information:
    """I(X';A) on test records beside what it would be if nothing leaked."""

    found: float
    null_mean: float
    null_deviation: float
    p_value: float
    excess: float
    unit: str  # person, recording or record: what classes were dealt out over
    units: int


@dataclass(frozen=True, slots=True)
class DonorLeakage:
    """What a single donor can tell, the worst and by the share of releases that show it."""

    largest_ratio: float  # max over donors and classes of P(a|x')/P(a)
    largest_divergence: float  # max over donors of KL(P(A|x')‖P(A)), nats
    divergence_quantiles: Mapping[str, float]  # "0.5", "0.95", "0.99" of the releases are at or below


@dataclass(frozen=True, slots=True)
class Certificate:
    """How far apart any two records' inferred classes can be, averaged over their draws.

    The attacker's inference of record x is E over x' of P(A|x'). It is (0, δ)-close for any two records.
    """

    gamma: float  # max over donors of KL(P(A|x')‖P(A)): the paper's condition
    pinsker: float  # √(2γ), the paper's bound
    twice_distance: float  # 2·max over donors of the total variation between P(A|x') and P(A)
    delta: float  # δ*, the largest distance found between two test records
    robust_gamma: float  # γ when donors shown in at most 1 % of the releases are set apart
    robust_bound: float  # √(2γ) + the two largest probabilities of meeting those donors
    records: int  # that δ* was taken over


@dataclass(frozen=True, slots=True)
class ExactFindings:
    """The attacker nobody beats, computed from P(x'|x): NAG between a rule learnt on train and the plug-in on test."""

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


@dataclass(frozen=True, slots=True)
class Subgroup:
    """An attribute within one class of another: what the worst attack and the exact attacker who knows that class find there."""

    attribute: str
    label: int  # its class
    records: int
    nag: Estimate | None  # private: of the worst attack in here; else of the attribute's best; None where originals tell nothing
    exact_nag: Estimate | None  # of the rule learnt within this subgroup; None without a pool
    information: Information | None
    trained_on_released: Estimate | None = None  # NAG here of what is so called for the attribute; None for private ones


@dataclass(frozen=True, slots=True)
class SideInformation:
    """An attacker who knows another attribute of the record, or a column that left with it, beside its release."""

    known: str
    released: bool  # a column that left as it was: what it tells alone counts as told by the release
    guess: float  # accuracy from the known one alone
    accuracy: Estimate  # with the release
    nag: Estimate | None  # of what the release adds, None where originals add nothing; of a released column of both together
    information: Information | None  # I(X';A|known); of a released column I(X',known;A)


@dataclass(frozen=True, slots=True)
class AttributeFindings:
    """One attribute: before, after, under every attack."""

    name: str
    role: Role
    combines: tuple[str, ...]  # private attributes whose combination this is; empty for a single one
    n_classes: int
    guess: float  # accuracy of the training set's commonest class
    unprotected: Estimate  # accuracy of the best attack on originals: the control
    unprotected_attack: str
    protected: Estimate  # accuracy of the worst attack on what was released
    attack: str  # the worst one; `exact` when the exact rule is worst
    nag: Estimate  # of the worst attack
    attacks: tuple[AttackFindings, ...]
    exact: ExactFindings | None
    unfinetuned: Estimate | None  # NAG of the control itself on what was released: a model nobody retrains
    own_adversary: Estimate | None  # NAG-Protector: the adversary that the protector was trained against
    trained_on_released: Estimate | None  # NAG on *originals* of the model that does best among those learnt from releases
    subgroups: tuple[Subgroup, ...]
    side_information: tuple[SideInformation, ...]
    verdict: Outcome | None  # None for general attributes, which are shown but not judged


@dataclass(frozen=True, slots=True)
class Bundle:
    """Some released records known to be one person's, together."""

    records: int
    accuracy: Estimate


@dataclass(frozen=True, slots=True)
class Bundles:
    """An attribute of a person, guessed from several of the person's released records."""

    attribute: str
    guess: float  # accuracy of guessing, over persons
    persons: int
    sizes: tuple[Bundle, ...]


@dataclass(frozen=True, slots=True)
class RepeatedDraws:
    """One record released several times: how often it is found again in a gallery of originals."""

    draws: int
    record: Estimate
    person: Estimate


@dataclass(frozen=True, slots=True)
class Linkage:
    """Whether releases can be linked to originals, to each other through a person, or to themselves."""

    gallery: int  # originals among which a record is sought
    reidentified: Estimate  # by one release, in that gallery
    chance: float
    attack: str  # "likelihood" where P(x'|x) is known, "nearest" neighbour in feature space otherwise
    person: Estimate  # the person of the best candidate is right
    person_chance: float
    bundles: tuple[Bundles, ...]
    repeated_draws: tuple[RepeatedDraws, ...]  # empty where records were released once and nobody knows P(x'|x)


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether the model tells which records it was trained on, donors left out (their membership is published anyway)."""

    members: int
    non_members: int
    against: str  # which records are the non-members
    auc: Estimate
    true_positive_rate: float  # at 1 % false positives


@dataclass(frozen=True, slots=True)
class StrangerFindings:
    """A private attribute of people whom training never saw."""

    attribute: str
    by_others: Estimate  # NAG of the worst attack, or of the exact rule if that is worse, learnt on other people
    by_own_half: Estimate | None  # NAG of the rule learnt on half of these very people's records; None without a pool
    information: Information | None


@dataclass(frozen=True, slots=True)
class Strangers:
    """Test persons who are not in the training records; `attributes` is empty when there are none."""

    persons: int
    attributes: tuple[StrangerFindings, ...]


@dataclass(frozen=True, slots=True)
class Donors:
    """Whose records are shown instead, and how often."""

    releases: int
    used: int
    pool_size: int
    uses: tuple[int, ...]  # releases per donor, largest first
    largest_share: float  # of the releases that show one donor
    largest_exposure: float  # max over donors of P(X'=d)
    self_rate: float  # records replaced by themselves, in the release
    same_person_rate: float
    expected_self_rate: float  # mean probability of it
    expected_same_person_rate: float


@dataclass(frozen=True, slots=True)
class ChannelFindings:
    """What the channel tells of the record itself."""

    pool_size: int
    record_information_train: float
    record_information_test: float
    row_entropy: float
    maximal_leakage: float  # ln Σ_d max_x P(d|x) over the test records, nats


@dataclass(frozen=True, slots=True)
class Replay:
    """Whether the draws of a release can be made again by somebody who has no key."""

    records: int  # whose draws were tried
    seeds: int  # that were tried
    replayed: bool
    claimed_secret: bool  # the release says that its key is secret


@dataclass(frozen=True, slots=True)
class Drift:
    """How far new records are from those of the labelled audit, beside what chance gives."""

    name: str  # the threshold's name in params.yaml
    found: float
    null_mean: float
    null_deviation: float
    p_value: float
    excess: float
    unit: str  # person, recording or record: what was dealt out between the two sides
    units: int


@dataclass(frozen=True, slots=True)
class Unlabelled:
    """What stands for attacks on records whose classes nobody knows; the other figures are the labelled audit's."""

    records: int
    labelled_audit: str  # SHA-256 of the audit.json that is relied on
    labelled_time: str  # when that audit was made
    drift: tuple[Drift, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """One demand of the verdict."""

    name: str  # the threshold's name in params.yaml
    about: str  # the attribute, or what is judged
    found: float
    limit: float
    passed: bool
    sentence: str  # what was found and what is demanded, for people
    reason: str  # why this limit
    attribute: str | None = None  # whose verdict it is part of


@dataclass(frozen=True, slots=True)
class AuditFindings:
    """The whole audit."""

    verdict: Outcome
    reasons: tuple[str, ...]  # sentences of the checks that failed
    checks: tuple[Check, ...]
    mnag: Estimate
    attributes: tuple[AttributeFindings, ...]
    channel: ChannelFindings | None
    linkage: Linkage | None
    membership: Membership | None
    strangers: Strangers | None
    donors: Donors | None
    replay: Replay | None
    not_promised: tuple[str, ...]
    unlabelled: Unlabelled | None = None  # where the audited records carry no labels
