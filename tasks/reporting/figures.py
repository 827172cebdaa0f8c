"""Figures of the report as SVG text: no plotting library, no network, the same bytes for the same numbers."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

BLUE, ORANGE, GREY = "#3b7dd8", "#d9822b", "#8a8f98"  # told apart on light and on dark, and by colour-blind readers
LINES = (BLUE, ORANGE, "#3a9e6e", "#a05cc4", "#c0504d", GREY)


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">'
        f"<title>{escape(label)}</title>{''.join(parts)}</svg>\n"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str, title: str = "", opacity: float = 1.0) -> str:
    tip = f"<title>{escape(title)}</title>" if title else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {place} fill="{fill}" fill-opacity="{opacity:.3f}">{tip}</rect>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = "currentColor", width: float = 1.0, dash: str = "") -> str:
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def nag_bars(attributes: Sequence[Mapping[str, Any]], thresholds: Mapping[str, float]) -> str:
    """What an attacker gains, before and after protection, with intervals and the limit that applies."""
    left, right, top, row = 150.0, 60.0, 28.0, 46.0
    scale = 420.0
    parts: list[str] = []
    for k, attribute in enumerate(attributes):
        y = top + k * row
        low, high = attribute["nag_interval"]["low"], attribute["nag_interval"]["high"]
        middle = y + 27
        parts += [
            _text(left - 10, y + 14, attribute["name"], "end", 13),
            _text(left - 10, y + 29, attribute["role"], "end", 11),
            _rect(left, y + 4, scale, 13, GREY, "unprotected: NAG 100 %", 0.55),
            _rect(left, y + 20, scale * attribute["nag"], 13, BLUE, f"protected: NAG {attribute['nag']:.1%}"),
            _line(left + scale * low, middle, left + scale * min(high, 1.1), middle, "currentColor", 1.5),
            _text(left + scale * max(attribute["nag"], min(high, 1.1)) + 6, y + 31, f"{attribute['nag']:.1%}"),
        ]
        limit = {"private": thresholds["private_nag_at_most"], "useful": thresholds["useful_nag_at_least"]}.get(attribute["role"])
        if limit is not None:
            parts.append(_line(left + scale * limit, y + 1, left + scale * limit, y + 37, ORANGE, 2, "4 2"))
    bottom = top + row * len(attributes)
    parts += [_line(left, bottom, left + scale, bottom), _line(left, top, left, bottom)]
    parts += [_text(left + scale * tick, bottom + 16, f"{tick:.0%}", "middle") for tick in (0, 0.25, 0.5, 0.75, 1)]
    parts.append(_text(left, 14, "NAG: 0 % = no better than guessing, 100 % = as on unprotected data (grey)", size=11))
    return _svg(left + scale + right, bottom + 26, "NAG of every attribute before and after protection", parts)


def training_curves(curves: Mapping[str, Sequence[float]]) -> str:
    """Loss terms over epochs, each on its own scale: their levels cannot be compared, their course can."""
    epochs = curves["epoch"]
    names = [name for name in curves if name != "epoch"]
    panel, height, gap = 190.0, 110.0, 34.0
    columns = 3
    parts: list[str] = []
    for k, name in enumerate(names):
        x0, y0 = 44 + (k % columns) * (panel + gap), 24 + (k // columns) * (height + gap + 12)
        values = curves[name]
        low, high = min(values), max(values)
        span = (high - low) or 1.0
        reach = max(epochs[-1] - epochs[0], 1)
        points = " ".join(
            f"{x0 + panel * (e - epochs[0]) / reach:.1f},{y0 + height * (1 - (v - low) / span):.1f}"
            for e, v in zip(epochs, values, strict=True)
        )
        parts += [
            _text(x0, y0 - 8, name.replace("_", " ")),
            _line(x0, y0 + height, x0 + panel, y0 + height),
            _line(x0, y0, x0, y0 + height),
            f'<polyline points="{points}" fill="none" stroke="{LINES[k % len(LINES)]}" stroke-width="2"/>',
            _text(x0 - 4, y0 + 9, f"{high:.3g}", "end", 10),
            _text(x0 - 4, y0 + height, f"{low:.3g}", "end", 10),
            _text(x0 + panel, y0 + height + 14, f"epoch {epochs[-1]:g}", "end", 10),
        ]
    rows = -(-len(names) // columns)
    return _svg(columns * (panel + gap) + 30, rows * (height + gap + 12) + 30, "Loss terms during training, in nats", parts)


def donor_reuse(donors: Mapping[str, Any], n_bars: int = 40) -> str:
    """How many donors were released how often."""
    uses = donors["uses"]
    width = max(1, -(-(max(uses) + 1) // n_bars))  # releases per bar
    counts = [0] * (max(uses) // width + 1)
    for used in uses:
        counts[used // width] += 1
    left, top, height, step = 50.0, 20.0, 150.0, 600.0 / len(counts)
    tallest = max(counts)
    parts = [
        _rect(
            left + k * step, top + height * (1 - count / tallest), max(step - 1, 0.5), height * count / tallest, BLUE,
            f"{count} donors released {k * width} to {(k + 1) * width - 1} times",
        )
        for k, count in enumerate(counts)
    ]  # fmt: skip
    parts += [
        _line(left, top + height, left + 600, top + height),
        _text(left - 6, top + 10, str(tallest), "end"),
        _text(left - 6, top + height, "0", "end"),
        _text(left, top + height + 16, "0 releases"),
        _text(left + 600, top + height + 16, f"{max(uses)} releases", "end"),
        _text(left, 12, "donors", size=11),
    ]
    return _svg(670, top + height + 26, "Number of donors by how often they were released", parts)


def confusion(name: str, classes: Sequence[str], matrix: Sequence[Sequence[float]]) -> str:
    """Rows: class of the original; columns: class of the donor; darker is likelier."""
    cell = 44.0 if len(classes) <= 10 else 16.0
    numbers = len(classes) <= 10
    longest = max(map(len, classes))
    left, top = max(90.0, 6.0 * longest), 54.0
    named_columns = numbers or longest <= 3  # longer names of narrow columns would run into each other; the tips tell them
    largest = max(max(row) for row in matrix) or 1.0
    parts = [_text(left, 14, f"{name}: original class (rows) → donor's class (columns); darkest {largest:.0%}", size=12)]
    for i, row_class in enumerate(classes):
        parts.append(_text(left - 6, top + i * cell + cell / 2 + 4, row_class, "end", 11 if numbers else 9))
        if named_columns:
            parts.append(_text(left + i * cell + cell / 2, top - 6, row_class, "middle", 11 if numbers else 9))
        for j, share in enumerate(matrix[i]):
            x, y = left + j * cell, top + i * cell
            parts.append(
                _rect(x, y, cell - 1, cell - 1, BLUE, f"{row_class} → {classes[j]}: {share:.1%}", 0.04 + 0.8 * share / largest)
            )
            if numbers:
                parts.append(_text(x + cell / 2, y + cell / 2 + 4, f"{share:.0%}", "middle", 11))
    size = cell * len(classes)
    return _svg(
        max(left + size + 10, 560),
        top + size + 10,
        f"Substitution of {name}: share of donor classes per original class",
        parts,
    )
