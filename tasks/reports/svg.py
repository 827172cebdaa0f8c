"""Shapes of figures as SVG text: no plotting library, no network, the same bytes for the same numbers.

Colours are classes of palette.css, so that a figure follows the light or dark mode of the page. Figures are drawn for the width
of a phone and set side by side where there is room.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH = 400.0
NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"
# A role, or a series of a figure: they differ in shape as well as in colour.
SHAPES = {"private": "circle", "useful": "square", "general": "diamond", "before": "circle", "dim": "square"}


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to places along an axis; a value outside is set at its end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


class LogScale(Scale):
    """The same for the logarithms of values."""

    def __call__(self, value: float) -> float:
        return Scale(math.log(self.low), math.log(self.high), self.start, self.end)(math.log(value))


def palette() -> str:
    """The colours, for the page and for figures in files of their own."""
    return (Path(__file__).parent / "palette.css").read_text()


def figure(height: float, label: str, parts: Iterable[str], width: float = WIDTH) -> str:
    """A whole figure; `label` is its accessible label."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="figure" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}">{"".join(parts)}</svg>\n'
    )


def standalone(svg: str) -> str:
    """The figure as a file of its own, with its colours."""
    opening, rest = svg.split(">", 1)
    return f"{opening}><style>{palette()}</style>{rest}"


def text(x: float, y: float, content: str, style: str = "", anchor: str = "start", *, note: str = "") -> str:
    """Words, and a note after them in a weaker colour; `style` names classes of palette.css."""
    after = f'<tspan dx="6" class="plain small dim">{escape(note)}</tspan>' if note else ""
    end = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{_class(style)}{end}>{escape(content)}{after}</text>'


def rect(x: float, y: float, width: float, height: float, style: str, *, tip: str = "", opacity: float | None = None) -> str:
    """A bar or cell."""
    faded = "" if opacity is None else f' fill-opacity="{opacity:.2f}"'
    place = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{max(height, 0):.1f}"'
    return f"<rect {place}{_class(style)}{faded}>{_tip(tip)}</rect>"


def line(x1: float, y1: float, x2: float, y2: float, style: str = "axis") -> str:
    """A straight stroke."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{_class(style)}/>'


def path(points: Sequence[tuple[float, float]], style: str, tip: str = "", *, closed: bool = False) -> str:
    """A stroke through points, or the area inside them."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{steps}{"Z" if closed else ""}"{_class(style)}>{_tip(tip)}</path>'


def marker(shape: str, x: float, y: float, style: str, tip: str = "", *, reach: float = 5.0) -> str:
    """A point; roles differ in shape as well as in colour."""
    if shape == "square":
        points = [(x - reach, y - reach), (x + reach, y - reach), (x + reach, y + reach), (x - reach, y + reach)]
    elif shape == "diamond":
        points = [(x, y - 1.3 * reach), (x + 1.3 * reach, y), (x, y + 1.3 * reach), (x - 1.3 * reach, y)]
    else:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{reach:g}"{_class(style)}>{_tip(tip)}</circle>'
    return path(points, style, tip, closed=True)


def whisker(scale: Scale, low: float, high: float, y: float, style: str) -> list[str]:
    """A horizontal interval; an arrow where it continues beyond the axis."""
    start, end = scale(low), scale(high)
    parts = [line(start, y, end, y, f"{style} whisker"), line(start, y - 4, start, y + 4, f"{style} whisker")]
    if high > scale.high:
        return [*parts, path([(end - 5, y - 4), (end, y), (end - 5, y + 4)], f"{style} whisker open")]
    return [*parts, line(end, y - 4, end, y + 4, f"{style} whisker")]


def shortened(name: str, longest: int) -> str:
    """A name that fits; tips and tables hold the whole name."""
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def percent(value: float, digits: int = 1) -> str:
    """A fraction as people read it."""
    return f"{100 * value + 0.0:.{digits}f}{NARROW_SPACE}%"


def axis(scale: Scale, y: float, top: float, ticks: Sequence[float] = (0, 0.25, 0.5, 0.75, 1)) -> list[str]:
    """Grid and numbers below."""
    parts = [line(scale(tick), top, scale(tick), y, "grid") for tick in ticks]
    for tick in ticks:
        anchor = "start" if tick == ticks[0] else "end" if tick == ticks[-1] and scale(tick) > WIDTH - 20 else "middle"
        parts.append(text(scale(tick), y + 15, percent(tick, 0), "small dim", anchor))
    return parts


def _class(style: str) -> str:
    return f' class="{style}"' if style else ""


def _tip(tip: str) -> str:
    return f"<title>{escape(tip)}</title>" if tip else ""
