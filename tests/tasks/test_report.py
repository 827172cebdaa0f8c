"""The report: self-contained, complete, the same bytes for the same audit; provenance only in the published copy."""

import re
from html.parser import HTMLParser
from pathlib import Path

from tasks.layout import Layout
from tasks.publishing import publish_report
from tasks.step_io import Key
from tasks.storage import digest, read_json

KEY = Key("synthetic_motion", "pass_substitution")


class _Page(HTMLParser):
    """Notes tags, ids and whatever could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in {"src", "href", "srcset", "data", "action"}:
                self.loads.append(str(value))


def _page(path: Path) -> tuple[str, _Page]:
    text = path.read_text()
    page = _Page()
    page.feed(text)
    return text, page


def test_report_is_self_contained_and_complete(tiny_root: Path) -> None:
    text, page = _page(Layout(tiny_root).artefact("report", KEY) / "report.html")
    assert page.loads == []
    assert "script" not in page.tags
    assert not re.search(r"url\(|@import", text)
    assert page.tags.count("svg") == 6  # NAG, three confusions, donors, training
    assert {"header", "main", "footer"} <= set(page.tags)
    assert {"attributes", "substitution", "donors", "training", "limits", "settings", "provenance"} <= set(page.ids)
    assert len(text.encode()) < 3_000_000
    audit = read_json(Layout(tiny_root).artefact("audit", KEY))
    for row in audit["attributes"]:
        assert f"{100 * row['nag']:.1f} %" in text
    for fact in (audit["model_digest"], audit["pool_digest"], audit["not_promised"][:40]):
        assert fact in text


def test_report_of_a_method_without_channel_leaves_its_parts_out(tiny_root: Path) -> None:
    text, page = _page(Layout(tiny_root).artefact("report", Key(KEY.dataset, "identity")) / "report.html")
    assert page.tags.count("svg") == 1
    assert "<strong>Fail</strong>" in text
    assert "private attribute id: NAG" in text


def test_provenance_is_joined_into_the_published_copy_only(tiny_root: Path) -> None:
    layout = Layout(tiny_root)
    before = digest(layout.artefact("report", KEY))
    path = publish_report(layout, KEY)
    again = publish_report(layout, KEY)
    assert digest(layout.artefact("report", KEY)) == before
    versioned = (layout.artefact("report", KEY) / "report.html").read_text()
    assert path == again
    time = read_json(layout.provenance("audit", KEY))["time"]
    assert time in path.read_text()
    assert time not in versioned
    assert sorted(p.name for p in path.parent.iterdir()) == ["audit.json", "figures", "provenance.json", "report.html"]
    assert digest(path.parent / "audit.json") == digest(layout.artefact("audit", KEY))
    provenance = read_json(path.parent / "provenance.json")
    assert next(iter(provenance)) == "generate"
    assert {"time", "host", "git_commit", "versions", "engine"} <= set(provenance["train"])
