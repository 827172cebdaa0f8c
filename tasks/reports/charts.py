"""Figures of what grows with records, draws or epochs, and of counts and shares: which class replaces which, and bars."""

import itertools
from collections.abc import Mapping, Sequence

from pass_core.auditing.section import Bars, Series
from tasks.reports.svg import SHAPES, WIDTH, LogScale, Scale, figure, line, marker, path, percent, rect, shortened, text

HEIGHT = 190.0
MOST_CLASSES = 100  # of a drawn matrix; cells of more would be too small to see
NUMBERED = 8  # classes up to which every cell has its number
LEVELS = 10

Matrix = Sequence[Sequence[float]]


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


def confusion(name: str, classes: Sequence[str], matrix: Matrix) -> str:
    """Rows: class of the original; columns: class of the donor; darker is likelier."""
    numbered = len(classes) <= NUMBERED
    left = min(7.0 * max(map(len, classes)) + 10, 120.0) if len(classes) <= 30 else 10.0
    cell = min((WIDTH - left - 2) / len(classes), 56.0 if numbered else 22.0)
    height, top = min(cell, 34.0), 40.0 if numbered else 24.0
    largest = max(max(row) for row in matrix) or 1.0
    parts = [text(left, 13, "donor’s class →", "small dim")]
    if not numbered:
        parts.append(text(WIDTH, 13, f"strongest {percent(largest, 0)}", "small dim", "end"))
    shown = max(3, int(cell / 6.6))
    for i, row_class in enumerate(classes):
        y = top + i * height
        if left > 10:
            parts.append(text(left - 6, y + height / 2 + 4, shortened(row_class, 17), "small", "end"))
        if numbered:
            parts.append(text(left + (i + 0.5) * cell, top - 8, shortened(row_class, shown), "small", "middle"))
    parts += (_numbered if numbered else _shaded)(classes, matrix, largest, (left, top, cell, height))
    label = (
        f"Substitution of {name}: probability of each donor class (column) per original class (row). "
        f"A record keeps its class with probability {percent(kept(matrix))} on average over classes; "
        f"two rows differ by {percent(row_distance(matrix))} at most."
    )
    return figure(top + height * len(classes) + 4, label, parts)


def kept(matrix: Matrix) -> float:
    """Mean over classes of the probability that a record gets a donor of its own class."""
    return sum(row[i] for i, row in enumerate(matrix)) / len(matrix)


def row_distance(matrix: Matrix) -> float:
    """Largest total variation between two rows: 0 when the donor's class reveals nothing about the original's."""
    filled = [row for row in matrix if sum(row) > 0]
    pairs = itertools.combinations(filled, 2)
    return max((sum(abs(a - b) for a, b in zip(*pair, strict=True)) / 2 for pair in pairs), default=0.0)


def _numbered(classes: Sequence[str], matrix: Matrix, largest: float, place: tuple[float, float, float, float]) -> list[str]:
    left, top, cell, height = place
    parts = []
    for i, row in enumerate(matrix):
        for j, share in enumerate(row):
            x, y = left + j * cell, top + i * height
            tip = f"{classes[i]} → {classes[j]}: {percent(share)}"
            parts.append(rect(x, y, cell - 1.5, height - 1.5, "heat", tip=tip, opacity=0.05 + 0.95 * share / largest))
            style = "small on-heat" if share / largest > 0.6 else "small"
            parts.append(text(x + cell / 2, y + height / 2 + 4, f"{100 * share:.0f}", style, "middle"))
    return parts


def _shaded(_: Sequence[str], matrix: Matrix, largest: float, place: tuple[float, float, float, float]) -> list[str]:
    """Cells of one shade drawn together: a matrix of a hundred classes stays small."""
    left, top, cell, height = place
    shades: dict[int, list[str]] = {}
    for i, row in enumerate(matrix):
        for j, share in enumerate(row):
            drawn = f"M{left + j * cell:.1f} {top + i * height:.1f}h{cell:.1f}v{height:.1f}h-{cell:.1f}z"
            shades.setdefault(round(LEVELS * share / largest), []).append(drawn)
    return [
        f'<path d="{"".join(cells)}" class="heat" fill-opacity="{0.05 + 0.95 * shade / LEVELS:.2f}"/>'
        for shade, cells in sorted(shades.items())
    ]


def bars_figure(bars: Bars) -> str:
    """Counts by name, the first in grey."""
    top, height, step = 18.0, 150.0, (WIDTH - 12) / len(bars.bars)
    tallest = max(count for _, count in bars.bars) or 1
    stride = 1 + int(6.3 * max(len(name) for name, _ in bars.bars) / step)  # names must not overlap
    parts = []
    for k, (name, count) in enumerate(bars.bars):
        x, reach = 6 + k * step, height * count / tallest
        parts.append(rect(x + 2, top + height - reach, step - 4, reach, "f-before" if k == 0 else "f-useful"))
        parts.append(text(x + step / 2, top + height - reach - 5, f"{count}", "small", "middle"))
        if k % stride == 0:
            parts.append(text(x + step / 2, top + height + 15, name, "small dim", "middle"))
    parts.append(line(6, top + height, WIDTH - 6, top + height))
    parts.append(text(WIDTH / 2, top + height + 33, bars.unit, "small dim", "middle"))
    spoken = ", ".join(f"{name}: {count}" for name, count in bars.bars)
    return figure(top + height + 40, f"{bars.label}: {spoken}.", parts)
