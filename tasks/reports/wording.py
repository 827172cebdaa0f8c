"""Figures and names in the words of people."""

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from tasks.reports.svg import NARROW_SPACE, percent

ATTACKS = {
    "majority": "Always guesses by the shares of the classes: what anybody can do without looking.",
    "logistic_regression": "A linear model, on the record and, for signals, on its spectrum.",
    "nearest_neighbours": "Looks up the most similar released training records and takes their commonest class.",
    "gradient_boosting": "Many small decision trees, each correcting those before it.",
    "network": "The published method's own probing attack: a medium-sized neural network, retrained on releases.",
    "large_network": "A neural network several times larger.",
    "pool_lookup": "Remembers, donor by donor, which class the replaced records were of.",
    "exact_bayes": "Computes the odds from the replacement probabilities themselves; no training can do better on average.",
    "exact": "The best possible rule from donor to class, computed from the replacement probabilities.",
}

DEMANDS = {
    "private_nag_at_most": ("Private attributes stay hidden", "NAG at most {}"),
    "useful_nag_at_least": ("Useful attributes survive", "NAG at least {}"),
    "information_excess_at_most": ("Nothing leaks below the sight of accuracy", "at most {} nats above chance"),
    "significance": ("How sure a small leak must be", "chance of a false alarm {}"),
    "membership_auc_at_most": ("Training records cannot be told from others", "AUC at most {}"),
    "reidentified_at_most": ("Releases are not traced to their originals", "at most {} of cases"),
    "replayed_seeds_at_most": ("The draws cannot be made again", "at most {} guessable seeds"),
    "labelled_audit": ("The protector passed where labels are known", "{} failed audits"),
    "valid_days": ("That audit is not too old", "at most {} days"),
    "feature_drift_at_most": ("New records look like audited ones", "AUC at most {} above chance"),
    "entropy_drift_at_most": ("New records are spread over donors as audited ones", "at most {} nats above chance"),
    "exposure_drift_at_most": ("New records meet the same donors", "at most {} above chance"),
    "usage_drift_at_most": ("Donors are drawn as often as they should be", "at most {} above chance"),
}
NUMBERS = frozenset({
    "information_excess_at_most", "replayed_seeds_at_most", "labelled_audit", "valid_days", "entropy_drift_at_most",
})  # limits that are no shares  # fmt: skip

SHARES = frozenset({"membership_auc_at_most", "reidentified_at_most"})  # limits of figures that never exceed 1

FORBIDDEN = {
    "none": "nobody: a record may be replaced by itself or by another record of the same person",
    "self": "itself: a record is never replaced by itself",
    "same_person": "its own person: a record is never replaced by one of the same person",
}


def readable(sentence: str) -> str:
    """A sentence of the audit with its numbers set as everywhere on the page."""
    without_powers = re.sub(r"\d+(\.\d+)?e-\d+", lambda found: _decimal(float(found[0])), sentence)
    told = re.sub(r"(\d) ?%", rf"\1{NARROW_SPACE}%", without_powers).replace("(p 0,", "(p < 0.0001,")
    return told[:1].upper() + told[1:]


def _decimal(value: float) -> str:
    return f"{value:.10f}".rstrip("0").rstrip(".")


def estimate(found: Mapping[str, float] | None) -> str:
    """A figure with its interval; a dash where there is none."""
    return "–" if found is None else f"{percent(found['value'])} ({percent(found['low'])} to {percent(found['high'])})"


def nats(value: float | None) -> str:
    """Information with digits enough for small leaks."""
    return "–" if value is None else f"{value:.5f}"


def demand(name: str, limit: float) -> tuple[str, str]:
    """A threshold's title and its limit in words; a threshold unknown here keeps its own name."""
    title, told = DEMANDS.get(name, (name.replace("_", " "), "limit {}"))
    is_share = name in DEMANDS and name not in NUMBERS
    return title, told.format(percent(limit) if is_share else _decimal(limit))


def demands(audit: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The checks by threshold, in the order in which they were made."""
    groups: dict[str, dict[str, Any]] = {}
    for check in audit["checks"]:
        title, told = demand(check["name"], check["limit"])
        shown = check["name"] in SHARES and check["limit"] >= 1  # no figure can exceed it
        entry = {"title": title, "limit": told, "reason": check["reason"], "failed": [], "met": [], "shown": shown}
        group = groups.setdefault(check["name"], entry)
        group["met" if check["passed"] else "failed"].append(check["sentence"])
    return list(groups.values())


def not_judged(audit: Mapping[str, Any]) -> list[str]:
    """Titles of thresholds that nothing was held against."""
    judged = {check["name"] for check in audit["checks"]} | {"significance"}
    return [demand(name, limit["value"])[0] for name, limit in audit["thresholds"].items() if name not in judged]


def class_name(audit: Mapping[str, Any], attribute: str, label: int) -> str:
    """A class of an attribute, as it may be shown."""
    classes = audit["classes"].get(attribute, ())
    return f"{attribute} = {classes[label] if label < len(classes) else label + 1}"


def worst_subgroup(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Where an attribute fares worst: most told of a private one, least of any other."""
    measured = [group for group in row["subgroups"] if group["nag"]]
    if row["role"] == "private":
        return max(measured, key=lambda group: _largest(group)["low"], default=None)
    return min(measured, key=lambda group: group["nag"]["value"], default=None)


def worst_downstream(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The subgroup in which a model trained on releases keeps least."""
    measured = [group for group in row["subgroups"] if group.get("trained_on_released")]
    return min(measured, key=lambda group: group["trained_on_released"]["value"], default=None)


def wrappable(name: str) -> Markup:
    """A name that may be broken after its underscores."""
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def _largest(group: Mapping[str, Any]) -> Mapping[str, float]:
    """The figure of a subgroup that the verdict looks at: the one whose interval begins higher."""
    figures: Sequence[Mapping[str, float]] = [nag for nag in (group["nag"], group["exact_nag"]) if nag]
    return max(figures, key=lambda nag: nag["low"])


def half_of_releases(uses: Sequence[int]) -> int:
    """How few donors make up half of all releases."""
    total, sum_so_far = sum(uses), 0
    for number, used in enumerate(sorted(uses, reverse=True), start=1):
        sum_so_far += used
        if 2 * sum_so_far >= total:
            return number
    return 0


def validity(audit: Mapping[str, Any], provenance: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """The day of the audit and that after which it is too old to rely on; None where its time is not to be told."""
    if provenance is None or "audit" not in provenance:
        return None
    relied_on = audit.get("unlabelled")  # records without labels: the age of the labelled audit counts
    time = datetime.datetime.fromisoformat(relied_on["labelled_time"] if relied_on else provenance["audit"]["time"])
    return time.date().isoformat(), (time + datetime.timedelta(days=audit["valid_days"])).date().isoformat()


def drifts(audit: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """How far new records without labels are from those of the labelled audit; none where the audited records have labels."""
    return list((audit.get("unlabelled") or {}).get("drift", ()))


def key_figures(audit: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What to look at first: title, figure, and what it means."""
    told = []
    private = [row for row in audit["attributes"] if row["role"] == "private"]
    if private:
        row = max(private, key=lambda row: row["nag"]["high"])
        told.append(
            (f"Private: {row['name']}", percent(row["nag"]["value"]), f"of the advantage over guessing survives; {_range(row)}")
        )
    useful = [row for row in audit["attributes"] if row["role"] == "useful"]
    if useful:
        row = min(useful, key=lambda row: row["nag"]["low"])
        told.append((f"Useful: {row['name']}", percent(row["nag"]["value"]), f"of what it offered is kept; {_range(row)}"))
    if audit["linkage"]:
        told += _linkage_figures(audit["linkage"])
    donors = audit["donors"]
    if donors:
        meaning = f"real people’s records; the one shown most is {percent(donors['largest_share'])} of the release"
        told.append(("Donors shown", f"{donors['used']} of {donors['pool_size']}", meaning))
    return told


def _range(row: Mapping[str, Any]) -> str:
    return f"between {percent(row['nag']['low'])} and {percent(row['nag']['high'])}, the worst of {row['role']} attributes"


def _linkage_figures(linkage: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    meaning = f"of single releases, among {linkage['gallery']} originals; chance finds {percent(linkage['chance'], 2)}"
    told = [("Traced to its original", percent(linkage["reidentified"]["value"]), meaning)]
    bundles = [(bundle, bundle["sizes"][-1]) for bundle in linkage["bundles"] if bundle["sizes"]]
    if bundles:
        bundle, last = max(bundles, key=lambda pair: pair[1]["accuracy"]["value"] - pair[0]["guess"])
        meaning = f"right if {last['records']} records are known to be one person’s; guessing {percent(bundle['guess'])}"
        told.append((f"Per person: {bundle['attribute']}", percent(last["accuracy"]["value"]), meaning))
    return told
