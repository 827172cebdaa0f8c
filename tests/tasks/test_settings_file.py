"""A file of settings lies between params.yaml and --set."""

from pathlib import Path

import pytest
import yaml

from pass_core.errors import ConfigError
from tasks.config import load_config, parse_overrides
from tasks.settings_file import read_settings, with_file
from tests.conftest import write_params

TUNED = {
    "methods": ["transport_substitution"],
    "train": {"epochs": 3},
    "pool": {"donors": None, "only": {"v1.2": "yes"}},
    "method": {"transport_substitution": {"epsilon": 0.2}},
    "attacker": {"knows": []},
}


def test_the_file_overrides_params_and_set_overrides_the_file(tmp_path: Path) -> None:
    params, file = write_params(tmp_path), tmp_path / "tuned.yaml"
    file.write_text(yaml.safe_dump(TUNED))
    config = load_config(params, parse_overrides(with_file(file, ["train.epochs=9", "method.transport_substitution.rounds=7"])))
    assert config.methods == ("transport_substitution",)
    assert (config.train.epochs, config.train.batch_size) == (9, 64)
    assert (config.pool.donors, config.pool.only, config.pool.forbid) == (None, {"v1.2": "yes"}, "self")
    transport = config.method["transport_substitution"]
    assert (transport.epsilon, transport.rounds) == (0.2, 7)
    assert config.attacker.knows == ()
    assert with_file(None, None) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n", "expected a table of sections, found list"),
        ("train: [\n", "line 2: is not YAML"),
        ("dataset: {a: {since: 2026-01-01}}\n", r"dataset\.a\.since: expected plain YAML, found date; put it in quotes"),
    ],
)
def test_what_is_no_table_of_settings_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tuned.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_settings(file)
    with pytest.raises(ConfigError, match=r"none\.yaml: expected file is missing; give the file that `pass-pipeline tune` wrote"):
        read_settings(tmp_path / "none.yaml")
