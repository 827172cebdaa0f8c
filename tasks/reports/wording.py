"""Figures and names in plain words."""

import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Any

from markupsafe import Markup, escape

from pass_core.auditing.analyses.base import every_analysis
from pass_core.auditing.findings import AttributeFindings, Check, Subgroup
from pass_core.auditing.section import Card, Demand
from pass_core.statistics.intervals import Estimate
from pass_core.storage.audits import Audit
from tasks.reports.svg import NARROW_SPACE, percent

ATTACKS = {
    "majority": "Guesses by the shares of the classes, without looking at the release.",
    "logistic_regression": "A linear model, on the record and, for signals, on its spectrum.",
    "nearest_neighbours": "Looks up the most similar released training records and takes their commonest class.",
    "gradient_boosting": "Many small decision trees, each correcting those before it.",
    "network": "The published method's own probing attack: a medium-sized neural network, retrained on releases.",
    "large_network": "A neural network several times larger.",
    "pool_lookup": "Remembers for every donor which class the replaced records had.",
    "exact_bayes": "Computes the odds from the replacement probabilities themselves; no training can do better on average.",
    "exact": "The best possible rule from donor to class, computed from the replacement probabilities.",
}

DEMANDS = {
    "private_nag_at_most": Demand("What an attacker still reads of private attributes", "NAG at most {:.1%}"),
    "private_auc_at_most": Demand("How well an attacker sorts the classes of private attributes", "AUC at most {:.1%}"),
    "private_gain_at_most": Demand("How much a release reveals of private attributes", "at most {:.1%} of what there is to know"),
    "useful_nag_at_least": Demand("What a reader still reads of useful attributes", "NAG at least {:.1%}"),
    "information_excess_at_most": Demand("Information on private attributes above chance", "at most {} nats"),
    "significance": Demand("How sure a small leak must be", "chance of a false alarm {:.1%}"),
    "labelled_audit": Demand("The protector passed where labels are known", "{} failed audits"),
    "valid_days": Demand("That audit is not too old", "at most {} days"),
    "feature_drift_at_most": Demand("New records look like audited ones", "AUC at most {:.1%} above chance"),
    "entropy_drift_at_most": Demand("New records are spread over donors like audited ones", "at most {} nats above chance"),
    "exposure_drift_at_most": Demand("New records get the same donors", "at most {:.1%} above chance"),
    "usage_drift_at_most": Demand("Donors are drawn as often as they should be", "at most {:.1%} above chance"),
}

BADGES = {  # outcome -> class of the badge, sign, words
    "pass": ("pass", "✓", "Pass"),
    "undecided": ("open", "?", "Undecided"),
    "fail": ("fail", "✕", "Fail"),
    "below the limit": ("pass", "✓", "Below the limit"),
    "kept": ("pass", "✓", "Kept"),
    "cannot be decided": ("open", "?", "Cannot be decided"),
    "leak shown": ("fail", "✕", "Leak shown"),
    "lost": ("fail", "✕", "Lost"),
    None: ("shown", "○", "Not tested"),
}

# A figure of a check for a person, with places for its value and, as a number of 100, its value again.
MEANINGS = {
    "private_nag_at_most": "Of the lead over guessing that originals give an attacker, {share} is left.",
    "private_auc_at_most": "Of 100 pairs of records of two classes, the attacker sorts {hundred} correctly; a coin gives 50.",
    "private_gain_at_most": "Of all that there is to know about the attribute, an attacker learns {share} from one release.",
    "useful_nag_at_least": "Of the lead over guessing that originals give a reader, {share} is left.",
    "information_excess_at_most": "A thousand releases of a person reveal at most a thousand times as much.",
    "membership_auc_at_most": "Of 100 pairs of a training record and another, {hundred} are told apart; a coin gives 50.",
    "reidentified_at_most": "Of 100 releases that chance leaves open, {hundred} are traced to their original.",
}


def readable(sentence: str) -> str:
    """A sentence of the audit with its numbers set as everywhere on the page."""
    bounded = re.sub(r"\(p (0|\d+(\.\d+)?e-\d+),", "(p < 0.0001,", sentence)
    words = spaced(re.sub(r"\d+(\.\d+)?e-\d+", lambda found: _decimal(float(found[0])), bounded))
    return words[:1].upper() + words[1:]


def _decimal(value: float) -> str:
    return f"{value:.10f}".rstrip("0").rstrip(".")


def estimate(found: Estimate | None) -> str:
    """A figure with its interval; a dash where there is none."""
    return "–" if found is None else f"{percent(found.value)} ({percent(found.low)} to {percent(found.high)})"


def spaced(words: str) -> str:
    """Words with percentages set as everywhere on the page."""
    return re.sub(r"(\d) ?%", rf"\1{NARROW_SPACE}%", words)


def of_a_limit(share: float) -> str:
    """A figure as a share of its limit. Limits near zero give shares of which nobody needs the digits."""
    return percent(share, 0) if share < 10 else "over 10 times"


def nats(value: float | None) -> str:
    """Information with digits enough for small leaks."""
    return "–" if value is None else f"{value:.5f}"


def demand(name: str) -> Demand:
    """A threshold in words; one that has none keeps its own name."""
    named = DEMANDS | {key: words for analysis in every_analysis() for key, words in analysis.demands.items()}
    return named.get(name, Demand(name.replace("_", " "), "limit {}"))


def figure(check: Check, value: float) -> str:
    """A figure of a check in its own unit."""
    return percent(value) if "%" in demand(check.name).limit else _decimal(round(value, 6))


def grouped(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """The checks by threshold, in the order in which they were made; leaks first, then what cannot be decided."""
    groups: dict[str, dict[str, Any]] = {}
    for check in checks:
        words = demand(check.name)
        limit = spaced(words.limit.format(check.limit if "%" in words.limit else _decimal(check.limit)))
        shown = check.limit >= words.shown_only_from
        entry = {"title": words.title, "limit": limit, "reason": check.reason, "checks": [], "shown": shown}
        groups.setdefault(check.name, entry)["checks"].append(check)
    for group in groups.values():
        group["checks"].sort(key=lambda check: (check.passed, not check.failed))
    return list(groups.values())


def meaning(check: Check, audit: Audit) -> str:
    """The figure of a check for a person; empty where its sentence says it all."""
    row = next((row for row in audit.attributes if row.name == check.about == check.attribute), None)
    if row is not None and check.name in ("private_nag_at_most", "useful_nag_at_least"):
        who = "An attacker who sees" if row.role == "private" else "Somebody who reads"
        against = f"guessing blindly gives {100 * row.guess:.0f}"
        against = against if row.role == "private" else f"on originals {100 * row.unprotected.value:.0f}"
        right = f"{who} one released record gets {row.name} right in {_of_hundred(row.protected)} of 100 cases"
        return f"{right}; {against}."
    words = MEANINGS.get(check.name, "")
    return words.format(share=percent(max(0.0, check.found.value)), hundred=f"{100 * check.found.value:.0f}")


def undecided_because(check: Check) -> str:
    """What the records of an undecided check could have shown, and how many would decide."""
    words = []
    if check.detectable is not None and check.name != "useful_nag_at_least":
        if check.detectable >= 1 and check.name != "information_excess_at_most":
            words.append("These records could not have shown any figure to be above the limit.")
        else:
            smallest = "The smallest figure that these records would have shown to be above the limit is about"
            words.append(f"{smallest} {figure(check, check.detectable)}.")
    if check.needed:
        instead = f" instead of {check.units}" if check.units else ""
        words.append(f"About {_two_digits(check.needed)}{instead} independent records or persons would decide.")
    elif check.units:
        words.append(f"It rests on {check.units} independent records or persons; how many would decide cannot be said.")
    return " ".join(words)


def _two_digits(number: int) -> str:
    """A rough number as such: 21 000 instead of 20593."""
    return f"{round(number, 2 - len(str(number))):,}".replace(",", NARROW_SPACE)


def not_judged(audit: Audit) -> list[str]:
    """Titles of thresholds without a check."""
    judged = {check.name for check in audit.checks} | {"significance"}
    return [demand(name).title for name in audit.thresholds if name not in judged]


def class_name(audit: Audit, attribute: str, label: int) -> str:
    """A class of an attribute, as it may be shown."""
    classes = audit.classes.get(attribute, ())
    return f"{attribute} = {classes[label] if label < len(classes) else label + 1}"


def worst_subgroup(row: AttributeFindings) -> Subgroup | None:
    """Where an attribute fares worst: a private one revealed most, any other kept least."""

    def largest_low(group: Subgroup) -> float:
        return max(nag.low for nag in (group.nag, group.exact_nag) if nag)  # the end that the verdict judges

    measured = [(group.nag.value, group) for group in row.subgroups if group.nag]
    if row.role == "private":
        return max((group for _, group in measured), key=largest_low, default=None)
    return min(measured, key=lambda pair: pair[0], default=(0.0, None))[1]


def worst_downstream(row: AttributeFindings) -> Subgroup | None:
    """The subgroup in which a model trained on releases keeps least."""
    measured = [(group.trained_on_released.value, group) for group in row.subgroups if group.trained_on_released]
    return min(measured, key=lambda pair: pair[0], default=(0.0, None))[1]


def wrappable(name: str) -> Markup:
    """A name that may be broken after its underscores."""
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def validity(audit: Audit, provenance: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """The day of the audit and the day of its expiry; None for the versioned copy, which holds no times."""
    if provenance is None or "audit" not in provenance:
        return None
    relied_on = audit.unlabelled  # for records without labels, the age of the labelled audit counts
    time = datetime.datetime.fromisoformat(relied_on.labelled_time if relied_on else provenance["audit"]["time"])
    return time.date().isoformat(), (time + datetime.timedelta(days=audit.valid_days)).date().isoformat()


def key_figures(audit: Audit) -> list[Card]:
    """What to look at first."""
    cards = []
    private = [row for row in audit.attributes if row.role == "private"]
    if private:
        row = max(private, key=lambda row: row.nag.high)
        meaning = f"of 100 guesses from a release {_of_hundred(row.protected)} are right"
        meaning += f"; blind guessing gives {100 * row.guess:.0f}"
        cards.append(Card(f"NAG of {row.name} (private)", f"{row.nag.value:.1%}", meaning))
    useful = [row for row in audit.attributes if row.role == "useful"]
    if useful:
        row = min(useful, key=lambda row: row.nag.low)
        meaning = f"of 100 readings from a release {_of_hundred(row.protected)} are right"
        meaning += f"; on originals {_of_hundred(row.unprotected)}"
        cards.append(Card(f"NAG of {row.name} (useful)", f"{row.nag.value:.1%}", meaning))
    for analysis in every_analysis():
        found = audit.analyses[analysis.key]
        cards += [] if found is None else analysis.highlights(found)
    return cards


def _of_hundred(found: Estimate) -> str:
    return f"{100 * found.value:.0f} ({100 * found.low:.0f} to {100 * found.high:.0f})"
