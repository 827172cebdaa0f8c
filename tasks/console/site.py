"""The pages of the console: an index sorted by who needs attention, and one page per data set."""

import datetime
import re
import shutil
from collections.abc import Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pass_core.auditing.thresholds import DRIFTS
from tasks.console import figures
from tasks.console.collect import DatasetFacts, Report, TargetFacts
from tasks.production.status import hours
from tasks.reports import wording
from tasks.reports.page import environment
from tasks.storage.files import publish, staging_folder, storage_errors

INDEX = "index.html"
STAGING = ".console"
TITLES = {name: wording.demand(name).title for name in DRIFTS}


def write_site(datasets: Sequence[DatasetFacts], folder: Path, now: datetime.datetime) -> Path:
    """Writes the whole site, or leaves the old one; returns the index."""
    pages = environment()
    pages.globals |= {
        "answers": answers,
        "outcome_of": figures.outcome_of,
        "file_name": file_name,
        "age_of": age_of,
        "drift_titles": TITLES,
    }
    pages.filters |= {"short": figures.short, "when": when, "sentence": _sentence}
    shared: dict[str, Any] = {"made": now.isoformat(timespec="minutes"), "datasets": datasets}
    with storage_errors(folder), staging_folder(folder.parent / STAGING, folder.name) as staging:
        site = staging / "site"
        (site / "reports").mkdir(parents=True)
        (site / INDEX).write_text(pages.get_template("console_index.html").render(**shared))
        for one in datasets:
            links = [(report, _copied(report, one.name, site)) for report in one.reports]
            shown = [(target, _drawn(target)) for target in one.targets]
            text = pages.get_template("console_dataset.html").render(one=one, targets=shown, reports=links, **shared)
            (site / file_name(one.name)).write_text(text)
        publish(site, folder)
    return folder / INDEX


def answers(target: TargetFacts) -> list[tuple[str, str, str]]:
    """Fresh? Correct? On time? Each with an outcome of the reports' badges and a sentence."""
    status, kinds = target.status, {trouble.kind: trouble.reason for trouble in target.status.troubles}
    unreadable = next((kinds[kind] for kind in ("damaged", "unreachable", "never") if kind in kinds), None)
    timely = next(
        (kinds[kind] for kind in ("failed", "draws", "audit", "drift", "quarantined", "late", "stale") if kind in kinds), None
    )
    if unreadable or status.live is None:
        said = _sentence(unreadable or "nothing is published")
        return [
            ("Fresh?", "fail", said),
            ("Correct?", "undecided", said),
            ("On time?", _on_time(kinds), _sentence(timely) or said),
        ]
    audit, live = status.audit or {}, status.live
    old = status.age_hours is None or status.age_hours > status.stale_after_hours
    fresh = f"Version {live['version']} is {age_of(status)} old; at most {status.stale_after_hours:g} h allowed."
    correct = f"Published on an audit of {audit['records']} records with the verdict {audit['verdict']}."
    return [
        ("Fresh?", "fail" if old else "pass", fresh),
        ("Correct?", "fail" if "withdrawn" in kinds else audit["verdict"], _sentence(kinds.get("withdrawn")) or correct),
        ("On time?", _on_time(kinds), _sentence(timely) or "The last run ended well."),
    ]


def _on_time(kinds: Collection[str]) -> str:
    if {"late", "never", "failed", "audit", "drift", "draws"} & set(kinds):
        return "fail"
    return "undecided" if {"stale", "quarantined", "damaged", "unreachable"} & set(kinds) else "pass"


def _sentence(reason: str | None) -> str:
    return f"{reason[:1].upper()}{reason[1:]}." if reason else ""


def age_of(status: Any) -> str:
    """The age of the live version in words."""
    return "of unknown age" if status.age_hours is None else hours(datetime.timedelta(hours=status.age_hours))


def when(time: str | None) -> str:
    """A time to the minute, as people read it; UTC."""
    return (time or "")[:16].replace("T", " ")


def file_name(dataset: str) -> str:
    """The page of a data set; a target that never published may have any name."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", dataset).strip("_")
    return (
        f"{plain}.html" if plain == dataset and plain != "index" else f"{plain}_{sha256(dataset.encode()).hexdigest()[:6]}.html"
    )


def _drawn(target: TargetFacts) -> dict[str, Any]:
    """The figures of a target; a name without a figure is missing."""
    attributes = list(dict.fromkeys(name for one in target.publications for name in one.nag))
    roles = {name: next(one.nag[name][0] for one in reversed(target.publications) if name in one.nag) for name in attributes}
    ordered = sorted(attributes, key=lambda name: (figures.ROLES.index(roles[name]) if roles[name] in figures.ROLES else 9, name))
    drawn: dict[str, Any] = {
        "nag": [(name, roles[name], _safe(figures.nag_trend(name, target.publications))) for name in ordered],
        "rows": _safe(figures.rows_trend(target.publications)) if target.publications else None,
        "runs": _safe(figures.run_strip(target.runs)) if target.runs else None,
    }
    return drawn


def _safe(drawing: str) -> Markup:
    return Markup(drawing)  # noqa: S704 (our own SVG, its text escaped)


def _copied(report: Report, dataset: str, site: Path) -> str:
    """The report's address within the site, which holds a copy of it: a page without network."""
    name = file_name(f"{dataset}-{report.method}-{sha256(str(report.page).encode()).hexdigest()[:6]}")
    shutil.copyfile(report.page, site / "reports" / name)
    return f"reports/{name}"
