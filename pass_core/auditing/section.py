"""A section of the report as plain words, tables and descriptions of figures; tasks/reports renders them as HTML and SVG."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from pass_core.statistics.intervals import Estimate

Cell = str | Estimate | None  # None: not measured; an estimate is shown with its interval


@dataclass(frozen=True, slots=True)
class Card:
    """A figure with its title and what it means for a person."""

    title: str
    number: str
    meaning: str

    @classmethod
    def of(cls, title: str, found: Estimate, meaning: str) -> "Card":
        """A share with its interval."""
        return cls(title, f"{found.value:.1%}", f"95 % interval {found.low:.1%} to {found.high:.1%}; {meaning}")


@dataclass(frozen=True, slots=True)
class Facts:
    """Terms with their descriptions."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells; the first cell of a row is its heading."""

    label: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class Series:
    """Accuracies over growing numbers, beside what guessing gives."""

    name: str
    numbers: Sequence[int]
    accuracies: Sequence[Estimate]
    guess: float
    _: KW_ONLY
    style: str = "private"  # the role whose colour it has


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What every figure has."""

    name: str  # of its file
    title: str
    unit: str  # of the numbers across
    label: str  # accessible label, before the values
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve(Figure):
    """Accuracy against a number of things; the report adds the same as a table."""

    series: Sequence[Series]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars(Figure):
    """Counts by name."""

    bars: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Part:
    """Blocks below a heading of their own."""

    title: str
    blocks: "Sequence[Block]"


# Words are a paragraph; cards, and figures with facts, are set side by side.
Block = str | Table | Part | Sequence[Card] | Sequence[Figure | Facts]


@dataclass(frozen=True, slots=True)
class Demand:
    """A threshold as the report shows it."""

    title: str
    limit: str  # with a place for the number, such as "AUC at most {:.1%}"
    shown_only_from: float = math.inf  # a limit that no figure can exceed: the figure is shown, not judged
