"""Several audits side by side in one page: verdicts, NAG, privacy against utility, linkage, donors, digests."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pass_core.auditing.analyses.donor_exposure import Donors
from pass_core.auditing.analyses.linkage import Linkage
from pass_core.auditing.findings import AttributeFindings
from pass_core.auditing.section import Series
from pass_core.errors import ConfigError
from pass_core.storage.audits import Audit, read_audit
from tasks.reports import charts, intervals, scatter, svg
from tasks.reports.page import environment

STYLES = ("useful", "private", "general", "before", "dim")


@dataclass(frozen=True, slots=True)
class Compared:
    """An audit with the letter it has on the page."""

    letter: str
    source: Path
    audit: Audit

    @property
    def name(self) -> str:
        return f"{self.letter} {self.audit.method}"

    def of_role(self, role: str) -> list[float]:
        """NAG of every attribute of a role."""
        return [row.nag.value for row in self.audit.attributes if row.role == role]

    @property
    def linkage(self) -> Linkage | None:
        return self.audit.finding(Linkage)

    @property
    def donors(self) -> Donors | None:
        return self.audit.finding(Donors)

    def attribute(self, name: str) -> AttributeFindings | None:
        """The findings of an attribute; None where it was not attacked."""
        return next((row for row in self.audit.attributes if row.name == name), None)


def write_comparison(audits: Sequence[Path], page: Path) -> None:
    """Reads the audits and writes the page that sets them side by side."""
    if not audits:
        raise ConfigError("expected at least one audit.json to compare, found none: name some")
    compared = [Compared(letter(k), path, read_audit(path)) for k, path in enumerate(audits)]
    datasets = {one.audit.dataset: [o for o in compared if o.audit.dataset == one.audit.dataset] for one in compared}
    shown = [_dataset(name, members) for name, members in datasets.items()]
    text = environment().get_template("compare.html").render(compared=compared, datasets=shown)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text)


def letter(k: int) -> str:
    """A, B, …, Z, AA, AB, …"""
    return (letter(k // 26 - 1) if k >= 26 else "") + chr(ord("A") + k % 26)


def _dataset(name: str, members: Sequence[Compared]) -> dict[str, Any]:
    """What the page says of one data set."""
    attributes = list(dict.fromkeys(row.name for one in members for row in one.audit.attributes))
    methods = {one.audit.method: [o for o in members if o.audit.method == one.audit.method] for one in members}
    repeated = {method: group for method, group in methods.items() if len(group) > 1}
    return {
        "name": name,
        "members": members,
        "nag": [(attribute, _drawn(_nag_rows(attribute, members))) for attribute in attributes],
        "scatter": _scatter(members, repeated),
        "repeated": [(method, group, _spreads(group, attributes)) for method, group in repeated.items()],
        "bundles": [(attribute, _drawn(figure)) for attribute, figure in _bundles(members)],
        "linkage": _linkage(members),
    }


def _nag_rows(attribute: str, members: Sequence[Compared]) -> str:
    rows = []
    for one in members:
        found = one.attribute(attribute)
        if found is None:
            rows.append(intervals.Row(name=one.name, estimate=None, role="general"))
        else:
            zone = intervals.allowed(found.role, one.audit.thresholds)
            rows.append(intervals.Row(name=one.name, note=found.role, estimate=found.nag, role=found.role, zone=zone))
    return intervals.rows_figure(rows, f"NAG of {attribute} in every audit, with 95 % intervals. {intervals.spoken(rows)}")


def _scatter(members: Sequence[Compared], repeated: Mapping[str, Sequence[Compared]]) -> list[tuple[str, Markup]]:
    """Title and figure: everything, and what the limits allow, enlarged."""
    trials = _trials(members, repeated)
    if not trials:
        return []
    limits = members[0].audit.thresholds
    same = all(one.audit.thresholds == limits for one in members)
    zone = (limits["private_nag_at_most"].value, limits["useful_nag_at_least"].value) if same else None
    figures = [("All audits", _drawn(scatter.privacy_against_utility(trials, zone)))]
    if zone and len(trials) > 1 and any(trial.private <= zone[0] and trial.useful >= zone[1] for trial in trials):
        figures.append(("The allowed corner, enlarged", _drawn(scatter.privacy_against_utility(trials, zone, enlarged=True))))
    return figures


def _trials(members: Sequence[Compared], repeated: Mapping[str, Sequence[Compared]]) -> list[scatter.Trial]:
    trials = []
    for one in members:
        private, useful = one.of_role("private"), one.of_role("useful")
        if private and useful:
            mean, verdict = statistics.fmean(useful), one.audit.verdict
            trials.append(scatter.Trial(name=one.letter, private=max(private), useful=mean, verdict=verdict))
    for method, group in repeated.items():
        both = [one for one in group if one.of_role("private") and one.of_role("useful")]
        if len(both) > 1:
            x, beside = _spread([max(one.of_role("private")) for one in both])
            y, above = _spread([statistics.fmean(one.of_role("useful")) for one in both])
            trials.append(scatter.Trial(name=f"mean of {method}", private=x, useful=y, spread=(beside, above)))
    return trials


def _spreads(group: Sequence[Compared], attributes: Sequence[str]) -> list[tuple[str, tuple[float, float]]]:
    """mNAG and NAG per attribute over audits of one method."""
    found = {"mNAG": [one.audit.mnag.value for one in group]}
    for attribute in attributes:
        found[f"NAG of {attribute}"] = [row.nag.value for one in group if (row := one.attribute(attribute))]
    found["traced to its original"] = [linkage.reidentified.value for one in group if (linkage := one.linkage)]
    return [(name, _spread(values)) for name, values in found.items() if len(values) > 1]


def _spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation."""
    return statistics.fmean(values), statistics.stdev(values)


def _linkage(members: Sequence[Compared]) -> Markup | None:
    rows = []
    for one in members:
        if linkage := one.linkage:
            note = f"chance {svg.percent(linkage.chance, 2)}"
            rows.append(intervals.Row(name=one.name, note=note, estimate=linkage.reidentified, role="private"))
    label = f"Releases traced to their originals. {intervals.spoken(rows)}"
    return _drawn(intervals.rows_figure(rows, label)) if rows else None


def _bundles(members: Sequence[Compared]) -> Iterable[tuple[str, str]]:
    """Per attribute of persons a line for every audit, as long as their styles differ."""
    lined: dict[str, list[Series]] = {}
    for one in members:
        for bundle in one.linkage.bundles if one.linkage else ():
            series = lined.setdefault(bundle.attribute, [])
            if bundle.sizes and len(series) < len(STYLES):
                series.append(bundle.series(one.letter, STYLES[len(series)]))
    for attribute, series in lined.items():
        if series:
            label = f"Accuracy of guessing a person's {attribute}"
            yield attribute, charts.growth(series, "records known to be one person’s", label)


def _drawn(drawing: str) -> Markup:
    return Markup(drawing)  # noqa: S704 (our own SVG, its text escaped)
