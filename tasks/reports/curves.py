"""Figures of what grows: leakage with the number of records or draws, losses with epochs."""

from collections.abc import Mapping, Sequence

from pass_core.auditing.section import Series
from tasks.reports.svg import SHAPES, WIDTH, LogScale, Scale, figure, line, marker, path, percent, text

HEIGHT = 190.0


def growth(series: Sequence[Series], unit: str, label: str) -> str:
    """Accuracy against a number of things, with bands of 95 %; dashed: guessing."""
    numbers = sorted({number for one in series for number in one.numbers})
    right = WIDTH - 62 - 6 * max(len(one.name) for one in series)
    x = LogScale(numbers[0], max(numbers[-1], numbers[0] + 1), 44.0, right)
    y = Scale(0.0, 1.0, HEIGHT, 12.0)
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts += [line(44, y(tick), right, y(tick), "grid"), text(38, y(tick) + 4, percent(tick, 0), "small dim", "end")]
    parts += [text(x(number), HEIGHT + 16, str(number), "small dim", "middle") for number in _apart(numbers, x)]
    parts.append(text((44 + right) / 2, HEIGHT + 34, unit, "small dim", "middle"))
    places = _spread([y(one.accuracies[-1].value) for one in series])
    for one, place in zip(series, places, strict=True):
        parts += _series(one, x, y, place, banded=len(series) <= 2)
    spoken = "; ".join(
        f"{one.name}: " + ", ".join(f"{percent(a.value)} from {n}" for n, a in zip(one.numbers, one.accuracies, strict=True))
        for one in series
    )
    return figure(HEIGHT + 42, f"{label}. {spoken}.", parts)


def _series(one: Series, x: Scale, y: Scale, name_y: float, *, banded: bool) -> list[str]:
    points = list(zip(one.numbers, one.accuracies, strict=True))
    upper = [(x(number), y(accuracy.high)) for number, accuracy in points]
    lower = [(x(number), y(accuracy.low)) for number, accuracy in reversed(points)]
    middle = [(x(number), y(accuracy.value)) for number, accuracy in points]
    parts = [path([*upper, *lower], f"f-{one.style} band", closed=True)] if banded else []
    parts += [line(x.start, y(one.guess), x.end, y(one.guess), f"s-{one.style} dashed"), path(middle, f"s-{one.style} curve")]
    for (number, accuracy), (px, py) in zip(points, middle, strict=True):
        tip = f"{one.name}, {number}: {percent(accuracy.value)} ({percent(accuracy.low)} to {percent(accuracy.high)})"
        parts.append(marker(SHAPES[one.style], px, py, f"f-{one.style}", tip, reach=4))
    return [*parts, text(x.end + 8, name_y, percent(points[-1][1].value), f"strong f-{one.style}", note=one.name)]


def _apart(numbers: Sequence[int], x: Scale) -> list[int]:
    """Those whose labels do not run into each other."""
    kept: list[int] = []
    for number in numbers:
        if not kept or x(number) - x(kept[-1]) > 22:
            kept.append(number)
    return kept


def _spread(places: Sequence[float], gap: float = 15.0) -> list[float]:
    """Places of labels, pushed apart where they would overlap, and up where they would leave the figure."""
    order = sorted(range(len(places)), key=lambda k: places[k])
    moved = list(places)
    for before, k in zip([None, *order], order, strict=False):
        moved[k] = places[k] + 4 if before is None else max(places[k] + 4, moved[before] + gap)
    lowest = HEIGHT + 4
    for k in reversed(order):
        moved[k] = min(moved[k], lowest)
        lowest = moved[k] - gap
    return moved


def training_curves(curves: Mapping[str, Sequence[float]]) -> str:
    """Loss terms over epochs, each on its own scale: their courses can be compared, their levels cannot."""
    epochs, names = curves["epoch"], [name for name in curves if name != "epoch"]
    columns, height, gap = 2, 64.0, 40.0
    panel = (WIDTH - 100) / columns
    parts: list[str] = []
    for k, name in enumerate(names):
        left, top = 46 + (k % columns) * (panel + 50), 22 + (k // columns) * (height + gap)
        values = curves[name]
        x = Scale(epochs[0], max(epochs[-1], epochs[0] + 1), left, left + panel)
        y = Scale(min(values), max(values), top + height, top)
        parts += [
            text(left, top - 7, name.replace("_", " "), "small"),
            line(left, top + height, left + panel, top + height),
            line(left, top, left, top + height),
            path([(x(e), y(v)) for e, v in zip(epochs, values, strict=True)], "s-useful curve"),
            text(left - 4, top + 8, f"{max(values):.2g}", "small dim", "end"),
            text(left - 4, top + height, f"{min(values):.2g}", "small dim", "end"),
        ]
    rows = -(-len(names) // columns)
    label = f"Loss terms during {epochs[-1]:g} epochs of training, each on its own scale: {', '.join(names)}"
    return figure(rows * (height + gap) + 12, label.replace("_", " "), parts)
