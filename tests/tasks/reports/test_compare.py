"""Several audits in one page."""

import statistics
from pathlib import Path

import pytest

from pass_core.errors import ConfigError, DataError
from tasks.reports.compare import letter, write_comparison
from tasks.reports.svg import percent
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.files import read_json, write_json
from tests.documents import of_a_pair, of_many_attributes, without_labels

KEYS = [RunKey("synthetic_motion", method) for method in ("pass_substitution", "identity")]


@pytest.fixture
def audits(tiny_root: Path) -> list[Path]:
    """A protected and an unprotected release."""
    return [Layout(tiny_root).artefact("audit", key) for key in KEYS]


def test_every_audit_is_there_with_its_figures(audits: list[Path], tmp_path: Path) -> None:
    write_comparison(audits, tmp_path / "deep" / "compare.html")
    text = (tmp_path / "deep" / "compare.html").read_text()
    for sign, path in zip("AB", audits, strict=True):
        document = read_json(path)
        assert f"{sign} {document['method']}" in text
        assert document["protected_digest"][:16] in text
        assert percent(document["linkage"]["reidentified"]["value"]) in text
        for row in document["attributes"]:
            assert f"{percent(row['nag']['value'])}  ({percent(row['nag']['low'])} to {percent(row['nag']['high'])})" in text
    assert "<script" not in text
    assert "sample standard deviation" not in text  # no method has two audits


def test_audits_of_one_method_are_joined_with_mean_and_deviation(audits: list[Path], tmp_path: Path) -> None:
    document = read_json(audits[0])
    values = [document["mnag"]["value"], document["mnag"]["value"] + 0.1]
    write_json(tmp_path / "other.json", document | {"mnag": document["mnag"] | {"value": values[1]}})
    write_comparison([*audits, tmp_path / "other.json"], tmp_path / "compare.html")
    text = (tmp_path / "compare.html").read_text()
    assert "mean and sample standard deviation over 2 audits (A, C)" in text
    assert f"± {percent(statistics.stdev(values))}" in text
    assert "mean of pass_substitution" in text


def test_other_data_sets_and_shapes_go_beside(audits: list[Path], tmp_path: Path) -> None:
    document = read_json(audits[0])
    others = [of_many_attributes(document), of_a_pair(document) | {"dataset": "other"}, without_labels(document)]
    paths = [tmp_path / f"{k}.json" for k in range(len(others))]
    for path, other in zip(paths, others, strict=True):
        write_json(path, other)
    write_comparison([*audits, *paths], tmp_path / "compare.html")
    text = (tmp_path / "compare.html").read_text()
    assert text.count('aria-labelledby="set-') == 2
    assert "private attributes not attacked: no labels" in text
    assert "<script" not in text
    assert len(text.encode()) < 3_000_000


def test_nothing_and_what_is_no_audit_are_refused(audits: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"at least one audit\.json"):
        write_comparison([], tmp_path / "compare.html")
    with pytest.raises(DataError, match="is missing"):
        write_comparison([*audits, tmp_path / "none.json"], tmp_path / "compare.html")
    assert not (tmp_path / "compare.html").exists()


def test_letters_go_on_after_z() -> None:
    assert [letter(k) for k in (0, 25, 26, 27, 52)] == ["A", "Z", "AA", "AB", "BA"]
