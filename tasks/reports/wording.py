"""Figures and names in plain words."""

import datetime
import re
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from pass_core.auditing.analyses.base import every_analysis
from pass_core.auditing.findings import AttributeFindings, Subgroup
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
    "private_nag_at_most": Demand("Private attributes stay hidden", "NAG at most {:.1%}"),
    "useful_nag_at_least": Demand("Useful attributes survive", "NAG at least {:.1%}"),
    "information_excess_at_most": Demand("No leak too small for accuracy to show", "at most {} nats above chance"),
    "significance": Demand("How sure a small leak must be", "chance of a false alarm {:.1%}"),
    "labelled_audit": Demand("The protector passed where labels are known", "{} failed audits"),
    "valid_days": Demand("That audit is not too old", "at most {} days"),
    "feature_drift_at_most": Demand("New records look like audited ones", "AUC at most {:.1%} above chance"),
    "entropy_drift_at_most": Demand("New records are spread over donors like audited ones", "at most {} nats above chance"),
    "exposure_drift_at_most": Demand("New records get the same donors", "at most {:.1%} above chance"),
    "usage_drift_at_most": Demand("Donors are drawn as often as they should be", "at most {:.1%} above chance"),
}

FORBIDDEN = {
    "none": "no restriction: a record may be replaced by itself or by another record of the same person",
    "self": "itself: a record is never replaced by itself",
    "same_person": "its own person: a record is never replaced by one of the same person",
}


def readable(sentence: str) -> str:
    """A sentence of the audit with its numbers set as everywhere on the page."""
    without_powers = re.sub(r"\d+(\.\d+)?e-\d+", lambda found: _decimal(float(found[0])), sentence)
    words = spaced(without_powers).replace("(p 0,", "(p < 0.0001,")
    return words[:1].upper() + words[1:]


def _decimal(value: float) -> str:
    return f"{value:.10f}".rstrip("0").rstrip(".")


def estimate(found: Estimate | None) -> str:
    """A figure with its interval; a dash where there is none."""
    return "–" if found is None else f"{percent(found.value)} ({percent(found.low)} to {percent(found.high)})"


def spaced(words: str) -> str:
    """Words with percentages set as everywhere on the page."""
    return re.sub(r"(\d) ?%", rf"\1{NARROW_SPACE}%", words)


def nats(value: float | None) -> str:
    """Information with digits enough for small leaks."""
    return "–" if value is None else f"{value:.5f}"


def demand(name: str) -> Demand:
    """A threshold in words; one that has none keeps its own name."""
    named = DEMANDS | {key: words for analysis in every_analysis() for key, words in analysis.demands.items()}
    return named.get(name, Demand(name.replace("_", " "), "limit {}"))


def demands(audit: Audit) -> list[dict[str, Any]]:
    """The checks by threshold, in the order in which they were made."""
    groups: dict[str, dict[str, Any]] = {}
    for check in audit.checks:
        words = demand(check.name)
        limit = spaced(words.limit.format(check.limit if "%" in words.limit else _decimal(check.limit)))
        shown = check.limit >= words.shown_only_from
        entry = {"title": words.title, "limit": limit, "reason": check.reason, "failed": [], "met": [], "shown": shown}
        groups.setdefault(check.name, entry)["met" if check.passed else "failed"].append(check.sentence)
    return list(groups.values())


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
