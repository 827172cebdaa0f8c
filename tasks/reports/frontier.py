"""The frontier of a search: what every setting keeps against how near it comes to a limit, as page, SVG and PNG."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from tasks.reports.page import environment
from tasks.reports.scatter import TRIALS, Plane
from tasks.reports.svg import line, marker, palette, percent, rect, text
from tasks.reports.wording import of_a_limit

FARTHEST = 2.0  # times its limit: points beyond stand at the edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A setting that was tried."""

    number: int
    words: str
    whole: bool  # all records and all analyses
    pressure: float  # the largest privacy figure, end of its interval included, as a share of its limit
    mnag: float
    nag: Mapping[str, float]  # attribute -> NAG
    verdict: str | None
    chosen: bool
    problem: str | None
    broken: tuple[str, ...]
    undecided: tuple[str, ...]


def frontier(tried: Sequence[Tried]) -> str:
    """mNAG (up, large is good) against the largest privacy figure as a share of its limit (across, small is good)."""
    plane = Plane("largest privacy figure as a share of its limit", "mNAG", (0.0, FARTHEST))
    left, top = plane.x(0), plane.y(1)
    plane.parts.append(rect(left, top, plane.x(1) - left, plane.y(0) - top, "zone"))
    plane.parts.append(text(plane.x(1) - 5, plane.y(0) - 6, "allowed", "small dim", "end"))
    plane.parts.append(line(plane.x(1), top, plane.x(1), plane.y(0), "limit"))
    points = []
    for one in sorted(tried, key=lambda one: (one.chosen, one.whole)):
        x, y = plane.x(min(one.pressure, FARTHEST)), plane.y(max(one.mnag, 0.0))
        shape, style = TRIALS[one.verdict]
        tip = f"{one.number}. {one.words}: mNAG {percent(one.mnag)}, {of_a_limit(one.pressure)} of a limit, {one.verdict}"
        tip += "" if one.whole else ", judged quickly"
        if one.chosen:
            plane.parts.append(marker("circle", x, y, "ring s-ink", reach=10))
        faint = style if one.whole else f"{style} band"
        plane.parts.append(marker(shape, x, y, faint, tip, reach=5 if one.whole else 3.5))
        if one.whole:
            points.append((x, y, f"{one.number}"))
    spoken = ", ".join(f"{one.number} mNAG {percent(one.mnag)} at {of_a_limit(one.pressure)}" for one in tried if one.whole)
    return plane.drawn(f"What settings keep against how near they come to a limit: {spoken}.", points)


def draw_png(tried: Sequence[Tried], path: Path) -> None:
    """The same as a picture for slides and chats, in the colours of the light page."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    found: dict[str, str] = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", palette().split("@media")[0]))
    markers, colours = {"square": "s", "circle": "o", "diamond": "D"}, {"f-useful": "useful", "f-private": "private"}
    figure, axes = plt.subplots(figsize=(7, 5.6), dpi=150, facecolor=found["paper"])
    axes.axvspan(0, 1, color=found["pass"], alpha=0.13, linewidth=0)
    axes.axvline(1, color=found["ink"], linestyle="--", linewidth=1)
    for one in tried:
        shape, style = TRIALS[one.verdict]
        x, y = min(one.pressure, FARTHEST), max(one.mnag, 0.0)
        colour = found[colours.get(style, "general")]
        axes.scatter(
            x, y, s=46 if one.whole else 20, marker=markers[shape], color=colour, alpha=1 if one.whole else 0.35, linewidths=0
        )
        if one.whole:
            axes.annotate(str(one.number), (x, y), (7, 4), textcoords="offset points", fontsize=9, color=found["ink"])
        if one.chosen:
            axes.scatter(x, y, s=240, facecolors="none", edgecolors=found["ink"])
    axes.set(xlim=(-0.05, FARTHEST * 1.04), ylim=(-0.03, 1.03))
    axes.set_xlabel("largest privacy figure as a share of its limit →", color=found["dim"])
    axes.set_ylabel("mNAG →", color=found["dim"])
    axes.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, 0))
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, 0))
    axes.grid(color=found["rule"], linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def write_page(
    page: Path, *, dataset: str, tried: Sequence[Tried], reasons: Sequence[str], causes: Sequence[str], settings: str | None
) -> None:
    """The page of a search."""
    drawing = Markup(frontier(tried))  # noqa: S704 (our own SVG, its text escaped)
    template = environment().get_template("tuned.html")
    page.write_text(
        template.render(dataset=dataset, tried=tried, reasons=reasons, causes=causes, settings=settings, drawing=drawing)
    )
