"""params.yaml: a problem is reported with its path and what is allowed; everything but a data set has defaults."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pass_core.attacks
import pass_core.methods
import tasks.datasets
import tasks.extractors
from pass_core import discovery
from pass_core.auditing.thresholds import Thresholds
from pass_core.errors import ConfigError
from tasks.config import load_config, parse_overrides
from tasks.config_types import entry_value, settings_of
from tests.conftest import PROJECT, write_params


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.epoch=5", r"train\.epoch: unknown key \(did you mean 'epochs'\?\): expected one of epochs, batch_size"),
        ("nonsense=5", r"nonsense: unknown key: expected one of seed, compute"),
        ("audit.attack={}", r"audit\.attack: unknown key \(did you mean 'attacks'\?\): expected one of attacks"),
        ("dataset.synthetic_motion.subject=5", r"dataset\.synthetic_motion\.subject: unknown key .*: expected one of private"),
        ("train.epochs=five", r"train\.epochs: input should be a valid integer, found str"),
        ("train.learning_rate=1e-3", r"train\.learning_rate: .* found str \(YAML reads 1e-3 as text"),
        ("train.epochs=0", r"train\.epochs: expected at least 1, found 0"),
        ("train.batch_size=1", r"expected at least 2"),
        ("pool.donors=-1", r"pool\.donors: expected at least 1"),
        (
            "pool.target={gender: {male: 0.9, female: 0.2}}",
            r"pool\.target: expected shares of 'gender' that sum to 1, found 1\.1",
        ),
        ("pool.target={gender: {male: much}}", r"pool\.target\.gender\.male: input should be a valid number"),
        ("pool.target={size: {small: 1}}", r"pool\.target\.size: may not be a key, since DVC overlooks a change in it; rename"),
        ("pool={donors: 9, target: {a: {b: 1}}, stratify: [a]}", r"pool\.target: expected without `stratify`"),
        ("pool.only={consent: yes}", r"pool\.only\.consent: .*found bool \(put it in quotes: YAML reads yes and no as true and"),
        ("dataset.synthetic_motion.kept=[hair]", r"dataset\.synthetic_motion\.kept: unknown attribute 'hair'.*gender, id"),
        ("dataset.synthetic_motion.kept=[id]", r"an attribute has one role: id found in several of .*kept"),
        ("compute.device=gpu", r"compute\.device: input should be 'cpu', 'cuda', 'mps' or 'auto'"),
        ("compute.threads=0", r"compute\.threads: expected between 1 and 256"),
        ("method.nope={}", r"method\.nope: unknown name 'nope' in methods: expected one of .*identity"),
        ("method.pass_substitution.temperature=0", r"method\.pass_substitution\.temperature: expected above 0"),
        ("audit.attacks={}", r"audit\.attacks: expected a table with at least one of"),
        ("audit.attacks.network.epochs=-1", r"audit\.attacks\.network\.epochs: expected at least 1"),
        ("audit.depth.fresh_draws=0", r"audit\.depth\.fresh_draws: expected at least 1"),
        ("audit.thresholds.private_nag_at_most={value: 5, reason: why}", r"private_nag_at_most: expected between 0 and 1"),
        ("dataset.synthetic_motion.private=[hair]", r"dataset\.synthetic_motion\.private: unknown attribute 'hair'.*gender, id"),
        ("dataset.synthetic_motion.private=[activity]", r"an attribute has one role: activity"),
        ("dataset.synthetic_motion.useful=[]", r"at least one attribute under `private` and one under `useful`"),
        ("dataset.synthetic_motion.extractor=x", r"dataset\.synthetic_motion\.extractor: unknown name 'x'.*identity"),
        ("datasets=[celeba]", r"dataset 'celeba' has no section"),
        ("release.synthetic_motion=[id]", r"release\.synthetic_motion: column 'id' may not be released: only useful.*activity"),
        ("release.nope=[id]", r"release\.nope: unknown data set"),
        ("audit=5", r"audit: input should be .*found int"),
        ("train.weight_decay=.nan", r"train\.weight_decay: "),
        ("method.pass_substitution.temperature=.inf", r"method\.pass_substitution\.temperature: "),
        ("seed.x=1", r"'seed' is a value, not a section"),
        ("extractor.nope={}", r"extractor\.nope: unknown name 'nope' in extractors: expected one of facenet, hubert"),
        ("extractor.hubert.layers=3", r"extractor\.hubert\.layers: unknown key .*: expected one of components, engine"),
        ("extractor.hubert.revision=main", r"extractor\.hubert\.revision: expected the 40 hex digits"),
        ("extractor.logmel.bands=1", r"extractor\.logmel\.bands: expected between 8 and 128"),
        ("dataset.synthetic_motion.corrupt_files_allowed=-1", r"synthetic_motion\.corrupt_files_allowed: expected at least 0"),
        ("dataset.mine={private: [a], useful: [b], reader: nope}", r"dataset\.mine: unknown name 'nope' in datasets.*lake"),
        ("dataset.mine={private: [a], useful: [b], reader: lake}", r"dataset\.mine: expected the columns `record_id`"),
        ("dataset.My-Calls={private: [a], useful: [b], reader: lake, record_id: i, payload: [p]}", r"name of lower-case letters"),
        ("dataset.celeba={private: [a], useful: [b], reader: lake, record_id: i, payload: [p]}", r"celeba\.reader: .*rename"),
    ],
)
def test_bad_parameter_names_its_path(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write_params(tmp_path), parse_overrides([setting]))


def test_lake_has_a_name_and_columns_of_its_own(tmp_path: Path) -> None:
    mine = "dataset.mine={private: [hair], useful: [mood], reader: lake, record_id: i, payload: [p], extractor: logmel}"
    config = load_config(write_params(tmp_path), parse_overrides([mine, "datasets=[mine]"]))
    assert config.dataset["mine"].roles() == {"hair": "private", "mood": "useful"}


def test_classes_may_be_numbers(tmp_path: Path) -> None:
    """A digit needs no quotes where it is a key."""
    config = load_config(write_params(tmp_path), parse_overrides(["pool.target={digit: {3: 0.5}}", 'pool.only={consent: "yes"}']))
    assert config.pool.target == {"digit": {"3": 0.5}}
    assert config.pool.only == {"consent": "yes"}


def test_section_of_extractors_may_be_absent(tmp_path: Path) -> None:
    path = write_params(tmp_path)
    path.write_text(path.read_text().replace("extractor:\n  identity: {}\n", ""))
    assert load_config(path).extractor == {}


def test_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.synthetic_motion\.useful: is missing; see `pass-pipeline config explain"):
        load_config(write_params(tmp_path, dataset={"synthetic_motion": {"private": ["id"]}}))


def test_file_of_one_data_set_is_enough(tmp_path: Path) -> None:
    """Every other section has defaults: the methods, all attacks, the thresholds with their reasons."""
    path = tmp_path / "params.yaml"
    path.write_text("dataset:\n  mine: {reader: lake, record_id: i, payload: [p], private: [hair], useful: [mood]}\n")
    config = load_config(path)
    assert config.datasets == ("mine",)
    assert config.methods == ("pass_substitution",)
    assert config.method["pass_substitution"].preset == "paper"
    assert tuple(config.audit.attacks) == discovery.available(pass_core.attacks)
    assert config.audit.thresholds == Thresholds()
    assert config.pool.donors is None
    assert config.with_names(("mine",), ("gap",)).method["gap"].penalty == 10


@pytest.mark.parametrize("limit", ["0.1", "{value: 0.1}", "{value: 0.1, reason: ours}"])
def test_limit_is_overridden_by_its_value_alone(tmp_path: Path, limit: str) -> None:
    thresholds = load_config(write_params(tmp_path), {"audit.thresholds.private_nag_at_most": limit}).audit.thresholds
    assert thresholds.private_nag_at_most.value == 0.1
    reason = thresholds.private_nag_at_most.reason
    assert reason == "ours" if "ours" in limit else reason.startswith("Set to 0.1 in place of the default 0.15: An attacker")
    assert thresholds.useful_nag_at_least == Thresholds().useful_nag_at_least


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    wrong = ["train.epoch=1", "method.pas={}", "pool.donors=many", "compute.threads=0"]
    with pytest.raises(ConfigError) as caught:
        load_config(write_params(tmp_path), parse_overrides(wrong))
    for path in ("train.epoch", "method.pas", "pool.donors", "compute.threads"):
        assert f"{path}: " in str(caught.value)


@pytest.mark.parametrize(
    ("package", "entry", "setting", "kind"),
    [
        (pass_core.methods, "laplace", "epsilon", "number, above 0"),
        (pass_core.methods, "gap", "adversary_steps", "whole number, at least 1"),
        (pass_core.attacks, "network", "start", "one of scratch, originals"),
        (pass_core.attacks, "network", "learning_rate", "number, between 0 and 1"),
    ],
)
def test_settings_say_which_values_they_allow(package: ModuleType, entry: str, setting: str, kind: str) -> None:
    assert {one.name: one.type for one in settings_of(entry_value(package, entry, "config_type"))}[setting] == kind


@pytest.mark.parametrize("package", [pass_core.methods, pass_core.attacks, tasks.datasets, tasks.extractors], ids=str)
def test_settings_read_from_source_are_those_of_the_imported_class(package: ModuleType) -> None:
    """In a process of its own: here the modules are imported already."""
    code = (
        "import importlib, json, sys; from pass_core import discovery; from tasks.config_types import entry_value, settings_of\n"
        f"package = importlib.import_module({package.__name__!r})\n"
        "read = {n: str(settings_of(entry_value(package, n, 'config_type'))) for n in discovery.available(package)}\n"
        "assert not {'torch', 'sklearn', 'pyarrow'} & sys.modules.keys()\n"
        "print(json.dumps(read))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PROJECT)
    for name, settings in json.loads(found.stdout).items():
        assert settings == str(settings_of(entry_value(package, name, "config_type", imported=True)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 1: is not YAML|line 2: is not YAML"),
        ("- a", "expected a table of sections, found list"),
        ("", "expected a table"),
    ],
)
def test_file_that_is_no_parameter_table(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(path)


def test_absent_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected file is missing; run from the project's folder"):
        load_config(tmp_path / "params.yaml")


def test_folder_in_place_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read as a text file"):
        load_config(tmp_path)


def test_override_must_be_a_pair() -> None:
    with pytest.raises(ConfigError, match="expected path=value"):
        parse_overrides(["train.epochs"])


def test_overrides_are_typed_like_the_file(tmp_path: Path) -> None:
    config = load_config(write_params(tmp_path), parse_overrides(["train.epochs=9", "dataset.synthetic_motion.subjects=6"]))
    assert config.train.epochs == 9
    assert config.dataset["synthetic_motion"].subjects == 6


def test_the_projects_own_file_is_valid_and_its_demo_is_large_enough() -> None:
    config = load_config(PROJECT / "params.yaml")
    assert config.dataset["synthetic_motion"].subjects >= 20
    assert "pass_substitution" in config.methods
    assert config.audit.thresholds.private_nag_at_most.value <= 0.15
    assert config.audit.thresholds.useful_nag_at_least.value >= 0.9


def test_reading_config_classes_leaves_no_stub_in_a_library_that_was_loaded_before() -> None:
    """A real submodule, imported while torch was a stub, kept the stub, and no model could be saved."""
    code = (
        "import safetensors\n"
        "from tasks.config_types import value_of\n"
        "value_of('tasks.extractors.facenet', 'EXTRACTOR')\n"
        "import safetensors.torch, torch\n"
        "assert safetensors.torch.torch is torch"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PROJECT)
