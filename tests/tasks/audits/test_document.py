"""audit.json keeps to its published schema, and the schema refuses what is no audit."""

import copy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pass_core.storage.audits import schema
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.files import read_json
from tests.conftest import PROJECT
from tests.documents import SHAPES

METHODS = ("pass_substitution", "identity")


def _document(root: Path, method: str) -> dict[str, Any]:
    document: dict[str, Any] = read_json(Layout(root).artefact("audit", RunKey("synthetic_motion", method)))
    return document


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    """Of the published file, not of the code."""
    published = read_json(PROJECT / "docs" / "audit.schema.json")
    Draft202012Validator.check_schema(published)
    return Draft202012Validator(published)


def test_published_schema_is_the_codes() -> None:
    """When it fails: write `schema()` of pass_core/storage/audits.py to docs/audit.schema.json with `write_json`."""
    assert read_json(PROJECT / "docs" / "audit.schema.json") == schema()


@pytest.mark.parametrize("method", METHODS)
def test_real_audits_keep_to_it(method: str, tiny_root: Path, validator: Draft202012Validator) -> None:
    validator.validate(_document(tiny_root, method))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_the_reports_tests_use_keeps_to_it(shape: str, tiny_root: Path, validator: Draft202012Validator) -> None:
    validator.validate(SHAPES[shape](_document(tiny_root, "pass_substitution")))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "maybe"),
        (("schema_version",), 1),
        (("mnag", "value"), "0.5"),
        (("attributes", 0, "role"), "secret"),
        (("attributes", 0, "nag"), None),
        (("attributes", 0, "record_ids"), ["somebody"]),
        (("linkage", "bundles", 0, "sizes", 0, "accuracy"), 0.5),
        (("donors", "persons"), ["somebody"]),
    ],
)
def test_wrong_documents_are_refused(
    path: tuple[str | int, ...], value: object, tiny_root: Path, validator: Draft202012Validator
) -> None:
    wrong: Any = copy.deepcopy(_document(tiny_root, "pass_substitution"))
    place = wrong
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert not validator.is_valid(wrong)


def test_missing_parts_are_refused(tiny_root: Path, validator: Draft202012Validator) -> None:
    document = _document(tiny_root, "pass_substitution")
    for name in document:
        assert not validator.is_valid({key: part for key, part in document.items() if key != name}), name
