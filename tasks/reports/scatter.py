"""Figures of two things at once: information beside its null, before against after, privacy against utility."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pass_core.auditing.findings import AttributeFindings, Comparison
from tasks.reports.svg import SHAPES, WIDTH, Scale, figure, line, marker, path, percent, rect, shortened, text, whisker

LARGEST_DEVIATION = 10.0
# Places for a name beside its point: across, down, and which end is there.
LABEL_PLACES = (
    (10, 4, "start"), (-10, 4, "end"), (-10, 13, "end"), (-10, -8, "end"), (10, 13, "start"), (10, -8, "start"),
    (0, -12, "middle"), (0, 20, "middle"), (-10, 24, "end"), (-10, -20, "end"), (10, -20, "start"),
)  # fmt: skip
TRIALS = {
    "pass": ("square", "f-useful"), "fail": ("circle", "f-private"), "undecided": ("diamond", "f-general"),
    None: ("diamond", "ring s-ink"),
}  # fmt: skip


def information_hills(comparisons: Sequence[Comparison], of_what: str, unit: str) -> str:
    """Every comparison in standard deviations of its own null: a hill for chance, a point for the figure found."""
    scale, row = Scale(-4.0, LARGEST_DEVIATION, 6.0, WIDTH - 8), 58.0
    bottom = row * len(comparisons) + 4
    parts = [line(scale(0), 0, scale(0), bottom, "grid")]
    parts += [text(scale(z), bottom + 14, f"{z:+d}" if z else "chance", "small dim", "middle") for z in (-3, 0, 3, 6, 9)]
    hill = [(z / 4, math.exp(-((z / 4) ** 2) / 2)) for z in range(-14, 15)]
    spoken = []
    for k, comparison in enumerate(comparisons):
        top, floor, found = k * row, k * row + 48, comparison.information
        excess = f"{found.excess:+.5f}{unit}, {p_value(found.p_value)}"
        spoken.append(f"{comparison.about} {excess}")
        parts.append(text(6, top + 13, shortened(comparison.about, 56), "strong"))
        parts.append(text(WIDTH - 8, top + 30, excess, "small", "end"))
        parts.append(line(6, floor, WIDTH - 8, floor))
        parts.append(path([(scale(z), floor - 26 * h) for z, h in hill], "hill", closed=True))
        tip = f"found {found.found:.5f}, chance gives {found.null_mean:.5f} ± {found.null_deviation:.5f}{unit}"
        # Every permutation may give the same: then there is nothing to measure the distance with.
        z = found.excess / found.null_deviation if found.null_deviation > 0 else 0.0
        parts.append(marker("circle", scale(z), floor - 6, "f-private", f"{comparison.about}: {tip}"))
        if z > LARGEST_DEVIATION:
            parts.append(text(scale(z) - 10, floor - 2, f"{z:.0f} deviations ▸", "small", "end"))
    parts.append(text(WIDTH / 2, bottom + 30, "standard deviations above chance", "small dim", "middle"))
    return figure(bottom + 34, f"{of_what} beside what chance gives: {', '.join(spoken[:12])}.", parts)


def p_value(p: float) -> str:
    """A p-value as people read it."""
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.2g}"


def before_against_after(attributes: Sequence[AttributeFindings]) -> str:
    """How far above guessing an attack gets on originals (across) and on the release (up)."""

    def above(accuracy: float, guess: float) -> float:
        return max(0.0, (accuracy - guess) / (1 - guess)) if guess < 1 else 0.0

    plane = Plane("on originals: share of the way from guessing to certainty", "on the release")
    plane.parts.append(line(plane.x(0), plane.y(0), plane.x(1), plane.y(1), "axis dashed"))
    plane.parts.append(text(plane.x(0.03), plane.y(0.94), "dashed: nothing was lost", "small dim"))
    points = []
    for a in attributes:
        x, y = (plane.x(above(a.unprotected.value, a.guess)), plane.y(above(a.protected.value, a.guess)))
        low, high = (plane.y(above(end, a.guess)) for end in (a.protected.low, a.protected.high))
        plane.parts.append(line(x, low, x, high, f"s-{a.role} whisker"))
        plane.parts.append(marker(SHAPES[a.role], x, y, f"f-{a.role}", f"{a.name} ({a.role})"))
        points.append((x, y, a.name))
    few = points if len(points) <= 14 else [p for p, a in zip(points, attributes, strict=True) if a.role != "general"]
    spoken = ", ".join(f"{a.name} ({a.role}) NAG {percent(a.nag.value)}" for a in attributes[:12])
    return plane.drawn(f"What attacks learn from originals against what they learn from releases: {spoken}.", few)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An audit, or the mean of several, as a point between privacy and utility."""

    name: str
    private: float
    useful: float
    spread: tuple[float, float] | None = None  # their sample standard deviations, where several audits are joined
    verdict: str | None = None


def privacy_against_utility(trials: Sequence[Trial], limits: tuple[float, float] | None, *, enlarged: bool = False) -> str:
    """Worst private NAG (across, small is good) against mean useful NAG (up); `enlarged`: only the corner that is allowed."""
    across, up = (0.0, 1.0), (0.0, 1.0)
    if enlarged and limits:
        across, up = (0.0, min(1.0, 2 * limits[0])), (max(0.0, 2 * limits[1] - 1), 1.0)
        trials = [trial for trial in trials if trial.private <= across[1] and trial.useful >= up[0]]
    plane = Plane("NAG of the worst private attribute", "mean NAG of useful attributes", across, up)
    if limits:
        left, top = plane.x(across[0]), plane.y(up[1])
        plane.parts.append(rect(left, top, plane.x(limits[0]) - left, plane.y(limits[1]) - top, "zone"))
        plane.parts.append(text(plane.x(limits[0]) - 5, plane.y(limits[1]) - 6, "allowed", "small dim", "end"))
    points = []
    for trial in trials:
        x, y = plane.x(trial.private), plane.y(trial.useful)
        if trial.spread is not None:
            beside, above = trial.spread
            plane.parts += whisker(plane.x, trial.private - beside, trial.private + beside, y, "s-ink")
            plane.parts.append(line(x, plane.y(trial.useful - above), x, plane.y(trial.useful + above), "s-ink whisker"))
        tip = f"{trial.name}: private {percent(trial.private)}, useful {percent(trial.useful)}"
        shape, style = TRIALS[trial.verdict]
        plane.parts.append(marker(shape, x, y, style, tip))
        points.append((x, y, trial.name))
    spoken = ", ".join(f"{t.name} private {percent(t.private)} useful {percent(t.useful)}" for t in trials[:12])
    return plane.drawn(f"Privacy against utility: {spoken}.", points)


class Plane:
    """A square with NAG or the like on both axes, by default from 0 to 100 %."""

    def __init__(
        self, across: str, up: str, x_range: tuple[float, float] = (0.0, 1.0), y_range: tuple[float, float] = (0.0, 1.0)
    ) -> None:
        left, right, top, self.bottom = 44.0, WIDTH - 4, 22.0, 330.0
        # A little more than the range, so that points at the edges have room.
        self.x, self.y = _roomy(x_range, left, right), _roomy(y_range, self.bottom, top)
        self.parts = [text(6, 13, f"↑ {up}", "small dim"), text(left, self.bottom + 34, f"{across} →", "small dim")]
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            x_tick, y_tick = ticks = [low + share * (high - low) for low, high in (x_range, y_range)]
            x_name, y_name = (percent(tick, 0 if round(100 * tick, 6).is_integer() else 1) for tick in ticks)
            self.parts += [
                line(self.x(x_tick), top, self.x(x_tick), self.bottom, "grid"),
                line(left, self.y(y_tick), right, self.y(y_tick), "grid"),
                text(self.x(x_tick), self.bottom + 16, x_name, "small dim", "middle"),
                text(left - 6, self.y(y_tick) + 4, y_name, "small dim", "end"),
            ]

    def drawn(self, label: str, points: Sequence[tuple[float, float, str]]) -> str:
        return figure(self.bottom + 42, label, [*self.parts, *_labels(points)])


def _roomy(reach: tuple[float, float], start: float, end: float) -> Scale:
    room = 0.05 * (reach[1] - reach[0])
    return Scale(reach[0] - room, reach[1] + room, start, end)


def _labels(points: Sequence[tuple[float, float, str]]) -> Iterable[str]:
    """Names beside their points, each at the first place where it covers no other; tips hold those left out."""
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y, _ in points]
    for x, y, name in points:
        width = 6.6 * len(name)
        for dx, dy, anchor in LABEL_PLACES:
            left = x + dx - {"start": 0, "end": width, "middle": width / 2}[anchor]
            box = (left, y + dy - 10, left + width, y + dy + 2)
            free = all(box[2] < t[0] or box[0] > t[2] or box[3] < t[1] or box[1] > t[3] for t in taken)
            if free and left > 44 and left + width < WIDTH:
                taken.append(box)
                yield text(x + dx, y + dy, name, "small", anchor)
                break


@dataclass(frozen=True, slots=True)
class Rival:
    """A method as a point between privacy and utility: where we find it, and where the paper does."""

    name: str
    ours: tuple[float, float] | None  # mean NAG of private attributes, and of the others
    paper: tuple[float, float] | None


def ours_beside_paper(rivals: Sequence[Rival]) -> str:
    """Mean private NAG (across, small is good) against mean NAG of all others (up, large is good); a line joins the two finds."""
    plane = Plane("mean NAG of private attributes", "mean NAG of useful and general attributes")
    points: list[tuple[float, float, str]] = []
    for rival in rivals:
        ours, paper = (None if found is None else (plane.x(found[0]), plane.y(found[1])) for found in (rival.ours, rival.paper))
        if ours and paper:
            plane.parts.append(line(*ours, *paper, "s-dim dashed"))
        for place, found, shape, style, whose in (
            (paper, rival.paper, "diamond", "ring s-dim", "paper"),
            (ours, rival.ours, "circle", "f-useful", "ours"),
        ):
            if place and found:
                tip = f"{rival.name}, {whose}: private {percent(found[0])}, others {percent(found[1])}"
                plane.parts.append(marker(shape, *place, style, tip))
        if shown := ours or paper:
            points.append((*shown, rival.name))
    spoken = ", ".join(f"{r.name} private {percent(r.ours[0])} others {percent(r.ours[1])}" for r in rivals[:12] if r.ours)
    return plane.drawn(f"Privacy against utility, ours and the paper's: {spoken}.", points)
