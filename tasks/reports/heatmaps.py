"""Figures of counts and shares: which class replaces which, and bars."""

import itertools
from collections.abc import Sequence

from pass_core.auditing.section import Bars
from tasks.reports.svg import WIDTH, figure, line, percent, rect, shortened, text

MOST_CLASSES = 100  # of a drawn matrix; cells of more would be too small to see
NUMBERED = 8  # classes up to which every cell has its number
LEVELS = 10

Matrix = Sequence[Sequence[float]]


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
