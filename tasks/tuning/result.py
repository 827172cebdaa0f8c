"""What a search leaves: the settings file with its reasons, and the frontier as a page and two pictures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tasks.config import override
from tasks.reports.frontier import Tried, draw_png, frontier, write_page
from tasks.reports.svg import standalone
from tasks.storage.files import write_atomically
from tasks.tuning.causes import Cause, limits_of
from tasks.tuning.search import Point, Search


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """The end of a search."""

    chosen: Point | None  # None: nothing hides the private attributes
    settings: Path | None
    page: Path
    picture: Path
    reasons: tuple[str, ...]
    causes: tuple[Cause, ...]
    points: tuple[Point, ...]  # of all records, the best first


def conclude(search: Search, points: Sequence[Point], folder: Path) -> Tuned:
    """Writes settings, page and pictures below `folder`; an earlier settings file goes when nothing is chosen."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = points[0] if points and (points[0].passes or points[0].hides) else None
    causes = () if chosen and chosen.passes else tuple(limits_of(points, search.study))
    if chosen is None and search.left:
        causes += (Cause(f"{search.left} settings were not tried", "give more --minutes; finished points are kept"),)
    reasons = _reasons(search, points, chosen)
    settings = folder / f"{search.dataset}.yaml"
    if chosen is None:
        settings.unlink(missing_ok=True)
    else:
        with write_atomically(settings) as temporary:
            temporary.write_text(settings_text(chosen, search.overrides, search.dataset, reasons))
    drawn = [_tried(point, number, chosen) for number, point in enumerate([*points, *_others(search, points)], start=1)]
    page, picture = folder / f"{search.dataset}.html", folder / f"{search.dataset}.png"
    figure = frontier(drawn)
    picture.with_suffix(".svg").write_text(standalone(figure))
    draw_png(drawn, picture)
    text = None if chosen is None else settings.read_text()
    write_page(page, dataset=search.dataset, tried=drawn, reasons=reasons, causes=[c.words() for c in causes], settings=text)
    return Tuned(
        chosen=chosen,
        settings=settings if chosen else None,
        page=page,
        picture=picture,
        reasons=reasons,
        causes=causes,
        points=tuple(points),
    )


def settings_text(chosen: Point, overrides: Mapping[str, str], dataset: str, reasons: Sequence[str]) -> str:
    """A settings file: the overrides that the search was given, then those that it found."""
    sections: dict[str, Any] = {"methods": [chosen.candidate.method]}
    for dotted, text in overrides.items():
        override(sections, dotted, text)
    for setting in chosen.candidate.settings():
        dotted, _, text = setting.partition("=")
        override(sections, dotted, text)
    head = [
        f"Found by `pass-pipeline tune --dataset {dataset}`. For `run`, `step`, `audit release` and `lake`: --settings FILE",
        *reasons,
    ]
    comments = "\n".join(f"# {line}" for line in head)
    return f"{comments}\n{yaml.safe_dump(sections, sort_keys=False, allow_unicode=True)}"


def _reasons(search: Search, points: Sequence[Point], chosen: Point | None) -> tuple[str, ...]:
    study, people = search.study, len(set(search.study.part.persons[search.study.strangers].tolist()))
    found = [
        f"Tried: {len(search.tried)} points, {len(points)} of them with all analyses, learnt from {len(study.learnt)} records.",
        f"Judged on {len(study.enrolled)} held-out records of people it learnt from, {len(study.strangers)} of {people} others.",
    ]
    if search.left:
        found.append(f"There was no time for {search.left} more; --minutes gives more.")
    if chosen is None:
        return tuple(found)
    one = chosen.first
    nags = ", ".join(f"{name} {value:.1%}" for name, value in one.nag.items())
    found.append(f"Chosen: {chosen.candidate.words()}.")
    which = "pass" if chosen.passes else "hide the private attributes; none passes, since a useful one is not shown to be kept"
    found.append(f"It has the highest mNAG of those that {which}: {one.mnag:.1%}. NAG of the exact attacker: {nags}.")
    if not chosen.passes:
        found += [f"Not kept: {check['sentence']}." for check in (*one.broken, *one.undecided)]
    for point in points:
        if point.judged and not point.passes and point.first.mnag > one.mnag:
            why = next((str(check["sentence"]) for part in point.judged for check in (*part.broken, *part.undecided)), "")
            found.append(f"Not chosen: {point.candidate.words()}, mNAG {point.first.mnag:.1%}: {why}.")
    return tuple(found)


def _others(search: Search, points: Sequence[Point]) -> list[Point]:
    return [point for point in search.tried if point not in points and point.judged]


def _tried(point: Point, number: int, chosen: Point | None) -> Tried:
    judged = point.judged
    verdict = None if not judged else "pass" if point.passes else "fail" if point.broken else "undecided"
    return Tried(
        number=number,
        words=point.candidate.words(),
        whole=point.whole,
        pressure=max((one.pressure for one in judged[:1]), default=0.0),
        mnag=judged[0].mnag if judged else 0.0,
        nag=judged[0].nag if judged else {},
        verdict=verdict,
        chosen=point is chosen,
        problem=point.problem,
        broken=tuple(str(check["sentence"]) for one in judged for check in one.broken),
        undecided=tuple(str(check["sentence"]) for check in judged[0].undecided) if judged else (),
    )
