"""The summary of an audit, for the terminal and for Prefect."""

from pathlib import Path

import pytest

from flows.summary import audit_markdown, audit_rows
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.files import read_json, write_json
from tests.documents import of_a_pair, of_many_attributes, without_labels


@pytest.mark.parametrize("method", ["pass_substitution", "identity"])
def test_markdown_shows_verdict_reasons_attributes_and_linkage(method: str, tiny_root: Path) -> None:
    path = Layout(tiny_root).artefact("audit", RunKey("synthetic_motion", method))
    document = read_json(path)
    shown = audit_markdown(path, Path("somewhere/report.html"))
    assert shown.startswith(f"# synthetic_motion / {method}: {document['verdict'].upper()}\n")
    assert all(f"- {reason}" in shown for reason in document["reasons"])
    assert f"{document['linkage']['reidentified']['value']:.1%}" in shown
    assert "`somewhere/report.html`" in shown
    rows = audit_rows(path)
    assert [row["attribute"] for row in rows] == [row["name"] for row in document["attributes"]]
    for row, found in zip(rows, document["attributes"], strict=True):
        assert row["NAG"].startswith(f"{found['nag']['value']:.1%} (")
        assert f"| {' | '.join(row.values())} |" in shown
    assert (rows[0]["exact"] == "–") == (method == "identity")


def test_missing_measurements_are_reported(tiny_root: Path, tmp_path: Path) -> None:
    document = read_json(Layout(tiny_root).artefact("audit", RunKey("synthetic_motion", "pass_substitution")))
    path = tmp_path / "audit.json"
    write_json(path, without_labels(document))
    assert audit_rows(path) == []
    shown = audit_markdown(path, tmp_path)
    assert "Private attributes were not attacked on these data" in shown
    assert "No attribute was attacked." in shown
    write_json(path, of_a_pair(document))
    assert "Linkage was not measured." in audit_markdown(path, tmp_path)


def test_separators_in_names_do_not_break_the_table(tiny_root: Path, tmp_path: Path) -> None:
    document = of_many_attributes(read_json(Layout(tiny_root).artefact("audit", RunKey("synthetic_motion", "pass_substitution"))))
    document["attributes"][0]["name"] = "a|b"
    write_json(tmp_path / "audit.json", document)
    rows = [line for line in audit_markdown(tmp_path / "audit.json", tmp_path).splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(document["attributes"])
    assert {row.replace("\\|", "").count("|") for row in rows} == {rows[0].count("|")}
