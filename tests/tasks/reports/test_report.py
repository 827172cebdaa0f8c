"""The report: self-contained, complete, the same bytes for the same audit; provenance only in the published copy."""

import datetime
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pass_core.auditing.analyses.donor_exposure import half_of_releases, reuse_counts
from pass_core.errors import DataError
from pass_core.statistics.intervals import Estimate
from tasks.reports.charts import kept, row_distance
from tasks.reports.page import figure_name, write_report
from tasks.reports.publish import publish_report
from tasks.reports.svg import palette
from tasks.reports.wording import estimate, readable
from tasks.running.layout import Layout
from tasks.running.provenance import describe
from tasks.running.step_io import RunKey
from tasks.storage.files import digest, read_json, write_json
from tests.documents import SHAPES, of_many_attributes, of_many_classes, of_new_records

KEY = RunKey("synthetic_motion", "pass_substitution")
SECTIONS = [
    "verdict", "protected", "singled_out", "copies", "singling_out", "membership", "linkability", "linkage",
    "release_linkability", "inference", "attack_validity", "strangers", "side_channels", "worst_off", "whole_release",
    "person_pairs", "donors_shown", "donors", "replay", "not_seen", "survived", "provenance",
]  # fmt: skip


class _Page(HTMLParser):
    """Notes tags, ids, headings, words and whatever could load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in {"src", "href", "srcset", "data", "action"} and not str(value).startswith("#"):
                self.loads.append(str(value))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return _squeezed(" ".join(self.words))


def _squeezed(text: str) -> str:
    """With one kind of space only."""
    return " ".join(text.split())


def _written(document: dict[str, object], folder: Path) -> tuple[str, _Page]:
    write_json(folder / "audit.json", document)
    write_report(folder / "report", {"audit": folder / "audit.json"}, provenance=None)
    text = (folder / "report" / "report.html").read_text()
    return text, _Page(text)


def test_report_is_self_contained_and_complete(tiny_root: Path) -> None:
    folder = Layout(tiny_root).artefact("report", KEY)
    text = (folder / "report.html").read_text()
    page = _Page(text)
    assert page.loads == []
    assert "script" not in page.tags
    assert not re.search(r"url\(|@import", text)
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS
    assert len(page.ids) == len(set(page.ids))
    assert len(text.encode()) < 3_000_000
    assert page.tags.count("svg") == len(list((folder / "figures").glob("*.svg")))
    audit = read_json(Layout(tiny_root).artefact("audit", KEY))
    for row in audit["attributes"]:
        assert _squeezed(estimate(Estimate(**row["nag"]))) in page.text
    for sentence in [check["sentence"] for check in audit["checks"]] + audit["not_promised"]:
        assert _squeezed(readable(sentence)) in page.text or sentence in page.text
    for threshold in {check["name"] for check in audit["checks"]}:
        assert audit["thresholds"][threshold]["reason"] in page.text
    for fact in (audit["model_digest"], audit["pool_digest"], audit["protected_digest"], audit["stamp"]):
        assert fact in text
    assert "attribute suppression; not differential privacy, not by itself anonymous data" in text


def test_every_figure_stands_alone_as_well(tiny_root: Path) -> None:
    figures = sorted((Layout(tiny_root).artefact("report", KEY) / "figures").glob("*.svg"))
    names = {path.stem for path in figures}
    assert {"nag", "before_and_after", "before_against_after", "information", "donor_reuse", "repeated_draws"} <= names
    assert {"attacks_gender", "confusion_activity", "bundles_id", "subgroups", "training_curves"} <= names
    for path in figures:
        root = ElementTree.fromstring(path.read_text())  # noqa: S314 (our own file)
        assert len(list(root.iter())) > 10
        assert root.attrib["role"] == "img"
        assert len(root.attrib["aria-label"]) > 20


def test_report_of_a_method_without_channel_says_what_it_could_not_look_at(tiny_root: Path) -> None:
    page = _Page((Layout(tiny_root).artefact("report", RunKey(KEY.dataset, "identity")) / "report.html").read_text())
    assert "✕ Fail" in page.text
    assert "Private attribute id: NAG" in page.text
    assert "could not be analysed" in page.text
    assert "No donors are known" in page.text
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS


def test_provenance_and_expiry_are_joined_into_the_published_copy_only(tiny_root: Path) -> None:
    layout = Layout(tiny_root)
    before = digest(layout.artefact("report", KEY))
    path = publish_report(layout, KEY)
    again = publish_report(layout, KEY)
    assert digest(layout.artefact("report", KEY)) == before
    versioned = (layout.artefact("report", KEY) / "report.html").read_text()
    assert path == again
    time = read_json(layout.provenance("audit", KEY))["time"]
    expiry = datetime.datetime.fromisoformat(time).date() + datetime.timedelta(days=365)
    for changing in (time, f'Valid until <time datetime="{expiry}">'):
        assert changing in path.read_text()
        assert changing not in versioned
    assert sorted(p.name for p in path.parent.iterdir()) == ["audit.json", "figures", "provenance.json", "report.html"]
    assert digest(path.parent / "audit.json") == digest(layout.artefact("audit", KEY))
    provenance = read_json(path.parent / "provenance.json")
    assert next(iter(provenance)) == "generate"
    assert {"time", "host", "git_commit", "versions", "engine"} <= set(provenance["train"])


@pytest.mark.parametrize("shape", SHAPES)
def test_report_bears_audits_of_every_shape(shape: str, tiny_root: Path, tmp_path: Path) -> None:
    document = SHAPES[shape](read_json(Layout(tiny_root).artefact("audit", KEY)))
    text, page = _written(document, tmp_path)
    assert [name for name in page.ids if name in SECTIONS] == SECTIONS
    assert "script" not in page.tags
    assert len(text.encode()) < 3_000_000
    assert page.tags.count("svg") == len(list((tmp_path / "report" / "figures").glob("*.svg")))


def test_unlabelled_data_are_never_said_to_have_been_attacked(tiny_root: Path, tmp_path: Path) -> None:
    document = read_json(Layout(tiny_root).artefact("audit", KEY))
    said = "Private attributes were not attacked on these data."
    assert said in _written(SHAPES["without_labels"](document), tmp_path)[1].text
    assert said in _written(document | {"basis": "unlabelled"}, tmp_path)[1].text  # figures of held-out records beside it
    assert said not in _written(document, tmp_path)[1].text


def test_new_records_without_labels_are_shown_beside_the_audited_ones(tiny_root: Path, tmp_path: Path) -> None:
    _, page = _written(of_new_records(read_json(Layout(tiny_root).artefact("audit", KEY))), tmp_path)
    assert "321 new records without labels" in page.text
    assert "The following figures come from the labelled records" in page.text
    assert "New records look like audited ones" in (tmp_path / "report" / "figures" / "drift.svg").read_text()
    inputs = {"audit": tmp_path / "audit.json"}
    write_report(tmp_path / "published", inputs, {"audit": describe("test")})
    assert "Valid until 2027-01-02" in _Page((tmp_path / "published" / "report.html").read_text()).text


def test_attributes_whose_names_differ_little_keep_their_own_figures(tiny_root: Path, tmp_path: Path) -> None:
    document = of_many_attributes(read_json(Layout(tiny_root).artefact("audit", KEY)))
    document["confusion"]["a b"] = [[1.0, 0.0], [0.0, 1.0]]
    document["classes"]["a b"] = ["x", "y"]
    text, _ = _written(document, tmp_path)
    slash, space = (tmp_path / "report" / "figures" / f"{figure_name(f'confusion_{name}')}.svg" for name in ("a/b", "a b"))
    assert slash.read_text() != space.read_text()
    assert slash.read_text() == (slash.parent / "confusion_activity.svg").read_text().replace("activity", "a/b")
    assert "<script>alert" not in text


def test_many_classes_stay_small_and_too_many_are_told(tiny_root: Path, tmp_path: Path) -> None:
    document = read_json(Layout(tiny_root).artefact("audit", KEY))
    _written(of_many_classes(document, 100), tmp_path)
    assert (tmp_path / "report" / "figures" / "confusion_id.svg").stat().st_size < 400_000
    _, page = _written(of_many_classes(document, 101), tmp_path / "more")
    assert "101 classes: too many to draw." in page.text


def test_what_is_no_audit_is_refused(tiny_root: Path, tmp_path: Path) -> None:
    document = read_json(Layout(tiny_root).artefact("audit", KEY))
    with pytest.raises(DataError, match="expected an audit of version 2 or 3, found version 1; run audit again"):
        _written(document | {"schema_version": 1}, tmp_path)
    with pytest.raises(DataError, match=r"is no audit: mnag\.high"):
        _written(document | {"mnag": {"value": 0.0, "low": 0.0}}, tmp_path)


def test_words_for_figures() -> None:
    told = readable("private x: NAG 3.0%, at most 2e-05 nats (p 0, 4)")
    assert told == "Private x: NAG 3.0\N{NARROW NO-BREAK SPACE}%, at most 0.00002 nats (p < 0.0001, 4)"
    assert reuse_counts([9, 3, 2, 1], 6) == [("0", 2), ("1", 1), ("2–3", 2), ("4–7", 0), ("8–15", 1)]
    assert half_of_releases([5, 3, 2]) == 1
    assert half_of_releases([4, 3, 3]) == 2
    assert kept([[0.5, 0.5], [0.0, 1.0]]) == 0.75
    assert row_distance([[0.5, 0.5], [0.5, 0.5]]) == 0.0
    assert row_distance([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]) == 1.0  # a class without records says nothing


def _luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_of_words_and_figures_have_contrast(scheme: str) -> None:
    """Figures are beyond axe's sight, so the palette itself is held to WCAG: 4.5 for words, 3 for shapes."""
    assert _contrast("#000000", "#ffffff") == pytest.approx(21)
    halves = palette().split("@media")
    colours = dict(re.findall(r"--([\w-]+): (#\w{6})", halves[0 if scheme == "light" else 1]))
    words = [(ink, ground) for ink in ("ink", "dim") for ground in ("paper", "ground", "soft")]
    words += [("pass", "pass-soft"), ("fail", "fail-soft"), ("ink", "fail-soft"), ("ink", "note-soft"), ("on-heat", "heat")]
    words += [(role, "paper") for role in ("private", "useful", "general", "pass", "fail")]
    assert min((_contrast(colours[a], colours[b]), a, b) for a, b in words) >= (4.5, "", "")
    shapes = [(shape, "paper") for shape in ("before", "heat", "private", "useful", "general")]
    assert min((_contrast(colours[a], colours[b]), a, b) for a, b in shapes) >= (3.0, "", "")
