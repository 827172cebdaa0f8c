"""Figures of values with intervals, one row each: NAG per attribute, per attack, per subgroup, per audit."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.reports.svg import WIDTH, Scale, figure, line, marker, path, percent, percent_axis, rect, shortened, text, whisker

SHAPES = {"private": "circle", "useful": "square", "general": "diamond"}
ROW = 40.0
MANY = 12  # attributes; of more, those that nobody judges stand apart


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a figure: a value with its interval, and where it should lie."""

    name: str
    note: str
    estimate: Mapping[str, float] | None
    role: str
    zone: tuple[float, float] | None = None  # where the verdict wants the value
    marks: tuple[tuple[float, str], ...] = ()  # further values, each with what it is
    rings: tuple[tuple[float, str], ...] = ()  # the same value of parts, such as subgroups
    quiet: bool = False  # told, but not what the figure is about


def allowed(role: str, thresholds: Mapping[str, Mapping[str, Any]]) -> tuple[float, float] | None:
    """The part of the NAG axis that the verdict lets pass; None where nothing is judged."""
    if role == "private" and "private_nag_at_most" in thresholds:
        return (0.0, thresholds["private_nag_at_most"]["value"])
    if role == "useful" and "useful_nag_at_least" in thresholds:
        return (thresholds["useful_nag_at_least"]["value"], 1.0)
    return None


def rows_figure(rows: Sequence[Row], label: str) -> str:
    """Rows below each other on one NAG axis from 0 to 100 %."""
    reach = max([1.0, *(value for row in rows for value in _values(row))])
    scale = Scale(0.0, 1.0 if reach <= 1.0 else min(reach, 1.25), 6.0, WIDTH - 8)
    bottom = ROW * len(rows) + 4
    parts = percent_axis(scale, bottom, 0)
    for k, row in enumerate(rows):
        parts += _row(row, scale, k * ROW)
    return figure(bottom + 22, label, parts)


def _values(row: Row) -> Iterable[float]:
    if row.estimate:
        yield row.estimate["high"]
    yield from (value for value, _ in (*row.marks, *row.rings))


def _row(row: Row, scale: Scale, top: float) -> list[str]:
    middle, colour = top + 26, "dim" if row.quiet else row.role
    parts = [
        text(
            6,
            top + 13,
            shortened(row.name, int((WIDTH - 170 - 6 * len(row.note)) / 7.8)),
            "" if row.quiet else "strong",
            note=row.note,
        )
    ]
    if row.zone:
        parts.append(rect(scale(row.zone[0]), middle - 8, scale(row.zone[1]) - scale(row.zone[0]), 16, "zone"))
        limit = row.zone[1] if row.zone[0] == 0 else row.zone[0]
        parts.append(line(scale(limit), middle - 9, scale(limit), middle + 9, "limit"))
    parts.append(line(scale(0), middle, scale(1), middle, "grid"))
    parts += [marker(SHAPES[row.role], scale(value), middle, f"ring s-{row.role}", tip, 3.5) for value, tip in row.rings]
    parts += [
        path([(scale(value), middle - 7), (scale(value), middle + 7)], f"s-{colour} whisker", tip) for value, tip in row.marks
    ]
    if row.estimate is None:
        return [*parts, text(WIDTH - 8, top + 13, "not measured", "small dim", "end")]
    value, low, high = (row.estimate[name] for name in ("value", "low", "high"))
    told = f"{percent(value)}  ({percent(low)} to {percent(high)})"
    parts += whisker(scale, low, high, middle, f"s-{colour}")
    parts.append(marker(SHAPES[row.role], scale(value), middle, f"f-{colour}", f"{row.name}: {told}"))
    parts.append(text(WIDTH - 8, top + 13, told, "small", "end"))
    return parts


def nag_of_attributes(attributes: Sequence[Mapping[str, Any]], thresholds: Mapping[str, Any]) -> str:
    """NAG of every attribute under its worst attack; where they are many, of those that are judged."""
    judged = [a for a in attributes if a["role"] != "general"]
    attributes = judged if judged and len(attributes) > MANY else attributes
    rows = [Row(a["name"], a["role"], a["nag"], a["role"], allowed(a["role"], thresholds)) for a in attributes]
    return rows_figure(rows, "NAG of every attribute under the worst attack, with 95 % intervals. " + spoken(rows))


def nag_of_attacks(attribute: Mapping[str, Any], thresholds: Mapping[str, Any]) -> str:
    """NAG of one attribute under every attack, and under the exact attacker."""
    role, zone = attribute["role"], allowed(attribute["role"], thresholds)
    rows = [
        Row(found["name"], "worst" if found["name"] == attribute["attack"] else "", found["nag"], role, zone,
            quiet=found["name"] != attribute["attack"])
        for found in attribute["attacks"]
    ]  # fmt: skip
    exact = attribute["exact"]
    if exact:
        worst = attribute["attack"] == "exact"
        marks = ((exact["plug_in"], f"plug-in on test records: {percent(exact['plug_in'])}"),)
        note = "worst; tick: plug-in" if worst else "tick: plug-in"
        rows.append(Row("exact rule", note, exact["rule"], role, zone, marks, quiet=not worst))
    return rows_figure(rows, f"NAG of {attribute['name']} under every attack. " + spoken(rows))


def nag_of_subgroups(attributes: Sequence[Mapping[str, Any]], thresholds: Mapping[str, Any], names: Any) -> str:
    """NAG of every attribute as a whole, and a ring for every subgroup in which it was measured."""
    rows = []
    for attribute in attributes:
        rings = tuple(
            (group["nag"]["value"], f"{names(group['attribute'], group['label'])}: {percent(group['nag']['value'])}")
            for group in attribute["subgroups"]
            if group["nag"]
        )
        role = attribute["role"]
        note = f"{len(rings)} subgroups"
        rows.append(Row(attribute["name"], note, attribute["nag"], role, allowed(role, thresholds), rings=rings))
    return rows_figure(rows, "NAG of every attribute, as a whole and in subgroups. The table beside it holds the worst of them.")


def spoken(rows: Sequence[Row]) -> str:
    """The figure in words, for those who cannot see it; long ones are left to the table beside them."""
    told = [f"{row.name} {percent(row.estimate['value'])}" for row in rows if row.estimate]
    return ", ".join(told[:12]) + (f", and {len(told) - 12} more in the table." if len(told) > 12 else ".")


def before_and_after(attributes: Sequence[Mapping[str, Any]]) -> str:
    """Accuracy of the best attack on originals and of the worst one on what was released, and of guessing."""
    scale, row = Scale(0.0, 1.0, 6.0, WIDTH - 8), 54.0
    bottom = row * len(attributes) + 2
    parts = percent_axis(scale, bottom, 0)
    for k, attribute in enumerate(attributes):
        top, role, guess = k * row, attribute["role"], attribute["guess"]
        told = f"{percent(attribute['unprotected']['value'])} → {percent(attribute['protected']['value'])}"
        parts.append(text(6, top + 14, shortened(attribute["name"], 22), "strong", note=role))
        parts.append(text(WIDTH - 8, top + 14, f"{told}, guessing {percent(guess)}", "small", "end"))
        for y, style, accuracy in ((21, "before", attribute["unprotected"]), (34, role, attribute["protected"])):
            parts.append(rect(scale(0), top + y, scale(accuracy["value"]) - scale(0), 10, f"f-{style}"))
            parts += whisker(scale, accuracy["low"], accuracy["high"], top + y + 5, "s-ink")
        parts.append(line(scale(guess), top + 18, scale(guess), top + 48, "limit"))
    spoken = ", ".join(
        f"{a['name']} from {percent(a['unprotected']['value'])} to {percent(a['protected']['value'])}" for a in attributes[:12]
    )
    return figure(bottom + 22, f"Accuracy of attacks before and after protection: {spoken}.", parts)
