"""Why nothing passes, in words that lead to a change: of an audit, and of the points of a search."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pass_core.auditing.findings import AttributeFindings, Check
from pass_core.channel.entanglement import what_the_data_allow
from tasks.tuning.search import Point
from tasks.tuning.study import Study

ENTANGLED = 0.02  # nats that the useful classes reveal about a private attribute: less hardly costs anything
READABLE = 0.75  # of the way from guessing to certainty: below it, features hardly show an attribute
# Check -> what it means when it fails, and what changes it.
SHOWN = ("the release shows a private attribute", "try a larger epsilon, more donors, or more training records")
KNOWING = (
    "somebody who knows other attributes reads a private one",
    "declare in attacker.knows who receives the release, or give no role to an attribute that settles the private one",
)
REMEMBERED = (
    "the protector remembers its training records",
    "set method.pass_substitution.folds: 4, or use transport, or more training records",
)
FEATURES = "choose another extractor or layer (`pass-pipeline extractors`), or drop the attribute"
TRACED = "try pool.forbid: same_person, or a larger epsilon"
BROKEN: Mapping[str, tuple[str, str]] = {
    "private_nag_at_most": SHOWN,
    "private_auc_at_most": SHOWN,
    "private_gain_at_most": KNOWING,
    "information_excess_at_most": KNOWING,
    "useful_nag_at_least": ("a useful attribute is lost", "try features that show it better, more donors, or a smaller epsilon"),
    "membership_auc_at_most": REMEMBERED,
    "membership_rate_at_most": REMEMBERED,
    "reidentified_at_most": ("releases are traced to their originals", TRACED),
    "copied_at_most": ("releases are copies of their originals", "try pool.forbid: self"),
    "singled_out_at_most": ("releases single people out", TRACED),
    "linked_auc_at_most": ("releases of one person are linked", TRACED),
}


class Audited(Protocol):
    """What an audit and its stored form have in common."""

    @property
    def checks(self) -> Sequence[Check]: ...

    @property
    def attributes(self) -> Sequence[AttributeFindings]: ...


@dataclass(frozen=True, slots=True)
class Cause:
    """What limits a release, and the change that would help."""

    what: str
    change: str

    def words(self) -> str:
        """In a sentence."""
        return f"{self.what}: {self.change}"


def likely_causes(audit: Audited) -> list[Cause]:
    """Why an audit failed, the causes in the data first: no setting changes those."""
    useful = [row for row in audit.attributes if row.role == "useful"]
    lost = {check.attribute for check in audit.checks if check.name == "useful_nag_at_least" and not check.passed}
    private = [row for row in audit.attributes if row.role == "private" and lost]
    names = ", ".join(sorted(row.name for row in useful))
    return [
        *(_entangled(row.name, row.through_useful, names) for row in private if row.through_useful > ENTANGLED),
        *_hardly_shown_among({row.name: (row.unprotected.value, row.guess) for row in useful if row.name in lost}),
        *_of_checks([check.name for check in audit.checks if check.failed]),
    ]


def limits_of(points: Sequence[Point], study: Study) -> list[Cause]:
    """What limits a search of which no point passes: the data, then what fails at the nearest point."""
    found = list(_of_data(study))
    nearest = points[0] if points and points[0].judged else None
    if nearest is not None:
        found += _hardly_shown_among({name: (one[0], one[1]) for name, one in nearest.first.originals.items()})
        found += [Cause(f"nothing reads {name} from originals", FEATURES) for name in nearest.first.unreadable]
    if nearest is None:
        return found or [Cause("no setting could be tried on all records", "give more --minutes, or name one --method")]
    broken = [str(check["name"]) for one in nearest.judged for check in one.broken]
    found += _of_checks(broken)
    if not broken:
        found += _too_few(nearest.first.undecided)
    return found


def _of_data(study: Study) -> Iterator[Cause]:
    labels = study.part.records.labels
    useful = ", ".join(a.name for a in study.attributes if a.role == "useful")
    for name, shared in what_the_data_allow(labels, study.attributes).shared.items():
        if shared > ENTANGLED:
            yield _entangled(name, shared, useful)


def _entangled(private: str, nats: float, useful: str) -> Cause:
    return Cause(
        f"private attribute {private} shares {nats:.3f} nats with the useful ones ({useful}), and hiding it removes that much",
        "give one of them another role",
    )


def _hardly_shown_among(useful: Mapping[str, tuple[float, float]]) -> Iterator[Cause]:
    """Useful attributes (accuracy on originals, by guessing) that the features do not know."""
    for name, (accuracy, guess) in useful.items():
        if accuracy - guess < READABLE * (1 - guess):
            yield Cause(
                f"the features hardly show {name}: {accuracy:.1%} on originals, {guess:.1%} by guessing",
                FEATURES,
            )


def _of_checks(broken: Iterable[str]) -> list[Cause]:
    """One cause for all checks that mean the same."""
    return [Cause(*pair) for pair in dict.fromkeys(BROKEN[name] for name in broken if name in BROKEN)]


def _too_few(undecided: Sequence[Mapping[str, Any]]) -> list[Cause]:
    """Checks that more people or recordings would decide; those of utility are about settings."""
    found = []
    for check in undecided:
        if check["units"] and check["needed"]:
            words = f"too few people or recordings to decide {check['name'].replace('_', ' ')} for {check['about']}"
            found.append(Cause(words, f"about {check['needed']} held-out ones instead of {check['units']} would do: add records"))
    return found or [Cause("these records cannot decide every check", "add people or recordings")]
