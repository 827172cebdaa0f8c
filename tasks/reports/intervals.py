"""Figures of values with intervals, one row each: NAG per attribute, per attack, per subgroup, per audit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pass_core.auditing.findings import AttributeFindings
from pass_core.auditing.thresholds import Limit
from pass_core.statistics.intervals import Estimate
from tasks.reports.svg import SHAPES, WIDTH, Scale, axis, figure, line, marker, path, percent, rect, shortened, text, whisker

ROW = 40.0
MANY = 12  # attributes; of more, only those that are judged are drawn

Limits = Mapping[str, Limit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a figure: a value with its interval, and where it should lie."""

    name: str
    estimate: Estimate | None
    role: str
    note: str = ""
    zone: tuple[float, float] | None = None  # where the verdict wants the value
    marks: tuple[tuple[float, str], ...] = ()  # further values, each with what it is
    rings: tuple[tuple[float, str], ...] = ()  # the same value of parts, such as subgroups
    quiet: bool = False  # shown, but not what the figure is about


def allowed(role: str, limits: Limits) -> tuple[float, float] | None:
    """The part of the NAG axis that passes the verdict; None where nothing is judged."""
    if role == "private" and "private_nag_at_most" in limits:
        return (0.0, limits["private_nag_at_most"].value)
    if role == "useful" and "useful_nag_at_least" in limits:
        return (limits["useful_nag_at_least"].value, 1.0)
    return None


def rows_figure(rows: Sequence[Row], label: str) -> str:
    """Rows below each other on one NAG axis from 0 to 100 %."""
    shown = [value for row in rows for value, _ in (*row.marks, *row.rings)]
    reach = max([1.0, *shown, *(row.estimate.high for row in rows if row.estimate)])
    scale = Scale(0.0, 1.0 if reach <= 1.0 else min(reach, 1.25), 6.0, WIDTH - 8)
    bottom = ROW * len(rows) + 4
    parts = axis(scale, bottom, 0)
    for k, row in enumerate(rows):
        parts += _row(row, scale, k * ROW)
    return figure(bottom + 22, label, parts)


def _row(row: Row, scale: Scale, top: float) -> list[str]:
    middle, colour = top + 26, "dim" if row.quiet else row.role
    name = shortened(row.name, int((WIDTH - 170 - 6 * len(row.note)) / 7.8))
    parts = [text(6, top + 13, name, "" if row.quiet else "strong", note=row.note)]
    if row.zone:
        parts.append(rect(scale(row.zone[0]), middle - 8, scale(row.zone[1]) - scale(row.zone[0]), 16, "zone"))
        limit = row.zone[1] if row.zone[0] == 0 else row.zone[0]
        parts.append(line(scale(limit), middle - 9, scale(limit), middle + 9, "limit"))
    parts.append(line(scale(0), middle, scale(1), middle, "grid"))
    parts += [marker(SHAPES[row.role], scale(value), middle, f"ring s-{row.role}", tip, reach=3.5) for value, tip in row.rings]
    ticks = [(scale(value), tip) for value, tip in row.marks]
    parts += [path([(x, middle - 7), (x, middle + 7)], f"s-{colour} whisker", tip) for x, tip in ticks]
    if row.estimate is None:
        return [*parts, text(WIDTH - 8, top + 13, "not measured", "small dim", "end")]
    found = row.estimate
    words = f"{percent(found.value)}  ({percent(found.low)} to {percent(found.high)})"
    parts += whisker(scale, found.low, found.high, middle, f"s-{colour}")
    parts.append(marker(SHAPES[row.role], scale(found.value), middle, f"f-{colour}", f"{row.name}: {words}"))
    parts.append(text(WIDTH - 8, top + 13, words, "small", "end"))
    return parts


def _attribute_row(a: AttributeFindings, limits: Limits, note: str, rings: tuple[tuple[float, str], ...] = ()) -> Row:
    return Row(name=a.name, note=note, estimate=a.nag, role=a.role, zone=allowed(a.role, limits), rings=rings)


def nag_of_attributes(attributes: Sequence[AttributeFindings], limits: Limits) -> str:
    """NAG of every attribute under its worst attack; where they are many, of those that are judged."""
    judged = [a for a in attributes if a.role != "general"]
    rows = [_attribute_row(a, limits, a.role) for a in (judged if judged and len(attributes) > MANY else attributes)]
    return rows_figure(rows, "NAG of every attribute under the worst attack, with 95 % intervals. " + spoken(rows))


def nag_of_attacks(attribute: AttributeFindings, limits: Limits) -> str:
    """NAG of one attribute under every attack, and under the exact attacker."""
    role, zone, worst = attribute.role, allowed(attribute.role, limits), attribute.attack
    rows = []
    for one in attribute.attacks:
        note, quiet = ("worst", False) if one.name == worst else ("", True)
        rows.append(Row(name=one.name, note=note, estimate=one.nag, role=role, zone=zone, quiet=quiet))
    if attribute.exact:
        rule, plug_in = attribute.exact.rule, attribute.exact.plug_in
        marks = ((plug_in, f"plug-in on test records: {percent(plug_in)}"),)
        note, quiet = ("worst; tick: plug-in", False) if worst == "exact" else ("tick: plug-in", True)
        rows.append(Row(name="exact rule", note=note, estimate=rule, role=role, zone=zone, marks=marks, quiet=quiet))
    return rows_figure(rows, f"NAG of {attribute.name} under every attack. " + spoken(rows))


def nag_of_subgroups(attributes: Sequence[AttributeFindings], limits: Limits, class_name: Callable[[str, int], str]) -> str:
    """NAG of every attribute as a whole, and a ring for every subgroup in which it was measured."""
    rows = []
    for a in attributes:
        measured = [(group.nag.value, class_name(group.attribute, group.label)) for group in a.subgroups if group.nag]
        rings = tuple((value, f"{name}: {percent(value)}") for value, name in measured)
        rows.append(_attribute_row(a, limits, f"{len(rings)} subgroups", rings))
    return rows_figure(rows, "NAG of every attribute, as a whole and in subgroups. The table beside it holds the worst of them.")


def spoken(rows: Sequence[Row]) -> str:
    """The figure in words, for the accessible label; long ones are left to the table beside them."""
    values = [f"{row.name} {percent(row.estimate.value)}" for row in rows if row.estimate]
    return ", ".join(values[:12]) + (f", and {len(values) - 12} more in the table." if len(values) > 12 else ".")


def before_and_after(attributes: Sequence[AttributeFindings]) -> str:
    """Accuracy of the best attack on originals and of the worst one on the release, and of guessing."""
    scale, row = Scale(0.0, 1.0, 6.0, WIDTH - 8), 54.0
    bottom = row * len(attributes) + 2
    parts = axis(scale, bottom, 0)
    for k, attribute in enumerate(attributes):
        top, role, guess = k * row, attribute.role, attribute.guess
        change = f"{percent(attribute.unprotected.value)} → {percent(attribute.protected.value)}"
        parts.append(text(6, top + 14, shortened(attribute.name, 22), "strong", note=role))
        parts.append(text(WIDTH - 8, top + 14, f"{change}, guessing {percent(guess)}", "small", "end"))
        for y, style, accuracy in ((21, "before", attribute.unprotected), (34, role, attribute.protected)):
            parts.append(rect(scale(0), top + y, scale(accuracy.value) - scale(0), 10, f"f-{style}"))
            parts += whisker(scale, accuracy.low, accuracy.high, top + y + 5, "s-ink")
        parts.append(line(scale(guess), top + 18, scale(guess), top + 48, "limit"))
    label = ", ".join(f"{a.name} from {percent(a.unprotected.value)} to {percent(a.protected.value)}" for a in attributes[:12])
    return figure(bottom + 22, f"Accuracy of attacks before and after protection: {label}.", parts)
