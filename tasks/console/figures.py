"""Figures over versions and runs, with the shapes and colours of the reports."""

from collections.abc import Sequence

from tasks.console.collect import Publication
from tasks.production.run_log import RunRecord
from tasks.reports.svg import NARROW_SPACE, SHAPES, WIDTH, Scale, figure, line, marker, path, percent, rect, text

HEIGHT, LEFT, TOP, RIGHT = 150.0, 40.0, 12.0, 12.0
MOST = 30  # versions or runs that are drawn, the last ones
ROLES = ("private", "useful", "general")


def nag_trend(attribute: str, publications: Sequence[Publication]) -> str:
    """NAG of one attribute over versions, with 95 % intervals."""
    shown = [one for one in publications if attribute in one.nag][-MOST:]
    role = shown[-1].nag[attribute][0]
    style = role if role in ROLES else "general"
    x, y = _places(len(shown)), Scale(0.0, 1.0, HEIGHT, TOP)
    parts = []
    for tick in (0.0, 0.5, 1.0):
        parts += [
            line(LEFT, y(tick), WIDTH - RIGHT, y(tick), "grid"),
            text(LEFT - 6, y(tick) + 4, percent(tick, 0), "small dim", "end"),
        ]
    found = [one.nag[attribute][1] for one in shown]
    centres = [(x[k], y(one.value)) for k, one in enumerate(found)]
    if len(shown) > 1:
        parts.append(path(centres, f"s-{style} curve open"))
    for k, (one, estimate) in enumerate(zip(shown, found, strict=True)):
        parts.append(line(x[k], y(estimate.low), x[k], y(estimate.high), f"s-{style} whisker"))
        tip = f"version {one.version}: {percent(estimate.value)} ({percent(estimate.low)} to {percent(estimate.high)})"
        parts.append(marker(SHAPES[style], *centres[k], f"f-{style}", tip))
    parts += _version_axis(shown, x)
    spoken = "; ".join(f"version {one.version}: {percent(e.value)}" for one, e in zip(shown, found, strict=True))
    return figure(HEIGHT + 40, f"NAG of {attribute} ({role}) over versions. {spoken}.", parts)


def rows_trend(publications: Sequence[Publication]) -> str:
    """Rows of each version."""
    shown = list(publications)[-MOST:]
    x, largest = _places(len(shown)), max((one.rows for one in shown), default=0) or 1
    y = Scale(0.0, float(largest), HEIGHT, TOP)
    width = min(26.0, (WIDTH - LEFT - RIGHT) / max(1, len(shown)) * 0.7)
    parts = [line(LEFT, y(0), WIDTH - RIGHT, y(0)), line(LEFT, y(largest), WIDTH - RIGHT, y(largest), "grid")]
    parts += [
        text(LEFT - 6, y(largest) + 4, short(largest), "small dim", "end"),
        text(LEFT - 6, y(0) + 4, "0", "small dim", "end"),
    ]
    for k, one in enumerate(shown):
        tip = f"version {one.version}: {one.rows:,} rows".replace(",", NARROW_SPACE)
        parts.append(rect(x[k] - width / 2, y(one.rows), width, y(0) - y(one.rows), "f-useful", tip=tip))
    parts += _version_axis(shown, x)
    spoken = "; ".join(f"version {one.version}: {one.rows}" for one in shown)
    return figure(HEIGHT + 40, f"Rows of each version. {spoken}.", parts)


def run_strip(runs: Sequence[RunRecord]) -> str:
    """The last runs, one mark each, the newest at the right: they differ in form as well as in colour."""
    shown = list(runs)[-MOST:]
    step, parts = (WIDTH - 12) / MOST, []
    for k, one in enumerate(shown):
        x, word = 6 + step * (k + 0.5), outcome_of(one)
        style, shape, reach = {
            "published": ("f-useful", "square", 4.5),
            "unchanged": ("f-before", "square", 3.0),
        }.get(word, ("f-private", "diamond", 4.5))
        parts.append(marker(shape, x, 20, style, f"{one.started}: {word}", reach=reach))
    parts.append(line(6, 36, WIDTH - 6, 36, "grid"))
    days = " to ".join(dict.fromkeys(one.started[:10] for one in (shown[0], shown[-1])))
    parts.append(text(6, 52, f"the newest at the right, {days}", "small dim"))
    counts = {word: sum(outcome_of(one) == word for one in shown) for word in dict.fromkeys(map(outcome_of, shown))}
    spoken = ", ".join(f"{number} {word}" for word, number in counts.items())
    return figure(60, f"The last {len(shown)} runs: {spoken}.", parts)


def outcome_of(run: RunRecord) -> str:
    """A run's end in a word: published, unchanged, a kind of trouble, or no result."""
    return run.trouble.kind if run.trouble else run.outcome or "no result"


def short(number: int) -> str:
    """A count in a few characters."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**4)):
        if number >= size:
            return f"{number / (1000 if unit == 'k' else size):.3g}{NARROW_SPACE}{unit}"
    return str(number)


def _places(count: int) -> list[float]:
    """Centres of columns; few of them stay close to the axis and do not fill the width."""
    step = min(60.0, (WIDTH - LEFT - RIGHT) / max(1, count))
    return [LEFT + step * (k + 0.5) for k in range(count)]


def _version_axis(shown: Sequence[Publication], x: Sequence[float]) -> list[str]:
    """Numbers of versions, as many as fit, and the days of the first and the last one."""
    stride = 1 + int(len(shown) * 26 / (WIDTH - LEFT - RIGHT))
    parts = [text(x[k], HEIGHT + 16, str(one.version), "small dim", "middle") for k, one in enumerate(shown) if k % stride == 0]
    days = " to ".join(dict.fromkeys(one.time[:10] for one in (shown[0], shown[-1])))
    return [*parts, text(LEFT, HEIGHT + 34, f"version, published {days}", "small dim")]
