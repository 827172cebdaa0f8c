"""`audit`: the whole audit of an array's protector, as a table, as HTML and as the pipeline's document."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from pass_core import AuditResult, Protector, audit
from pass_core.errors import AuditError, ConfigError
from pass_core.storage.audits import read_audit, schema
from tests.pass_core.api.data import make
from tests.pass_core.api.test_protector import KEY, unfitted

QUICK = {"majority": None, "logistic_regression": {"iterations": 50}, "exact_bayes": None}
SMALL = {"permutations": 50, "gallery": 100, "bundles": [1, 5], "draws": [1, 2], "fresh_draws": 2}


@pytest.fixture(scope="module")
def protector() -> Protector:
    made = make(600)
    return unfitted(settings={"epsilon": 0.2}).fit(made.X, made.labels, persons=made.persons, ids=made.ids)


@pytest.fixture(scope="module")
def result(protector: Protector) -> AuditResult:
    test = make(300, seed=1)
    return audit(protector, test.X, test.labels, persons=test.persons, ids=test.ids, attacks=QUICK, depth=SMALL)


def test_result_has_verdict_figures_and_checks(result: AuditResult) -> None:
    assert result.verdict in ("pass", "undecided", "fail")
    assert (result.verdict == "fail") == any(check.failed for check in result.checks)
    assert result.figures["gender"]["accuracy_unprotected"] > 0.9
    assert result.figures["gender"]["nag"] < 0.3
    assert result.figures["digit"]["nag"] > 0.7
    assert result.figures["verdict"] == result.verdict


def test_result_is_a_table_of_words_and_of_html(result: AuditResult) -> None:
    lines = str(result).splitlines()
    assert lines[0] == f"verdict: {result.verdict}"
    assert lines[2].split()[:3] == ["attribute", "role", "guess"]
    assert lines[3].startswith("gender")
    assert "An attacker who sees one released record guesses gender right in" in str(result)
    assert "<td>gender</td>" in result._repr_html_()
    assert f"Verdict: {result.verdict}" in result._repr_html_()


def test_saved_result_is_the_pipelines_document(result: AuditResult, tmp_path: Path) -> None:
    result.save(tmp_path / "audit.json")
    jsonschema.validate(json.loads((tmp_path / "audit.json").read_text()), schema())
    read_audit(tmp_path / "audit.json")


def test_attribute_that_only_chooses_donors_is_no_part_of_the_audit() -> None:
    """Its classes are known in `fit` and not for the audited records."""
    made, test = make(400), make(200, seed=1)
    labels = {**made.labels, "consent": np.where(np.arange(400) % 2, "yes", "no")}
    protector = unfitted(method="random_donor", pool={"only": {"consent": "yes"}}).fit(made.X, labels, persons=made.persons)
    found = audit(protector, test.X, test.labels, persons=test.persons, attacks=QUICK, depth=SMALL)
    assert [row.name for row in found.findings.attributes] == ["gender", "digit"]


def test_unprotected_release_fails() -> None:
    """The positive control: an audit that passed everything would say nothing."""
    made, test = make(400), make(200, seed=1)
    bare = unfitted(method="identity").fit(made.X, made.labels, persons=made.persons)
    found = audit(bare, test.X, test.labels, persons=test.persons, attacks=QUICK, depth=SMALL)
    assert found.verdict == "fail"
    assert found.figures["gender"]["nag"] > 0.9
    assert any(check.name == "private_nag_at_most" and not check.passed for check in found.checks)


def test_loaded_protector_needs_training_records(protector: Protector, result: AuditResult, tmp_path: Path) -> None:
    protector.save(tmp_path)
    loaded, made, test = Protector.load(tmp_path), make(600), make(300, seed=1)
    with pytest.raises(AuditError, match=r"pass train=protector\.records"):
        audit(loaded, test.X, test.labels, attacks=QUICK)
    train = loaded.records(made.X, made.labels, persons=made.persons, ids=made.ids)
    again = audit(loaded, test.X, test.labels, test.persons, test.ids, train=train, attacks=QUICK, depth=SMALL)
    for name in ("gender", "digit"):  # equal but for the last bits
        assert again.figures[name] == pytest.approx(result.figures[name], abs=1e-4)


def test_secret_key_is_not_found_by_trying_seeds(protector: Protector) -> None:
    test = make(300, seed=1)
    found = audit(protector, test.X, test.labels, test.persons, test.ids, key=KEY, attacks=QUICK, depth=SMALL)
    replay = next(check for check in found.checks if check.name == "replayed_seeds_at_most")
    assert (replay.outcome, replay.found.value) == ("below the limit", 0)


def test_wrong_settings_say_what_to_do(protector: Protector) -> None:
    test = make(50, seed=1)
    with pytest.raises(ConfigError, match="unknown name 'nonsense' in attacks"):
        audit(protector, test.X, test.labels, attacks={"nonsense": None})
    with pytest.raises(ConfigError, match=r"depth: unknown drawings: expected some of fresh_draws"):
        audit(protector, test.X, test.labels, attacks=QUICK, depth={"drawings": 1})


def test_importing_pass_core_stays_light() -> None:
    code = "import pass_core, sys; print(sorted({'torch', 'sklearn', 'numpy', 'pydantic'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
