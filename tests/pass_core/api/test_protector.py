"""`Protector` as researchers use it: any container, scikit-learn's conventions, keyed draws, files."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import pass_core.methods
from pass_core import Protector, discovery
from pass_core.channel.draws import experiment_key
from pass_core.channel.substitution import draw_donors
from pass_core.errors import ChecksumMismatch, ConfigError, DataError, MethodError
from pass_core.storage.files import digest
from pass_core.training.epochs import Epoch
from tasks.release.draw import KeyedRelease
from tasks.release.protector import read_protector
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.parquet import read_folder
from tests.pass_core.api.data import FAST, SIZE, make

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
NAMES = [f"x{k}" for k in range(SIZE)]
CONTAINERS = {
    "numpy": lambda X: X,
    "numpy float32": lambda X: X.astype(np.float32),
    "torch": torch.from_numpy,
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES, index=[f"row {k}" for k in range(len(X))]),
}


def unfitted(**changes: Any) -> Protector:
    return Protector(**{"private": ["gender"], "useful": ["digit"], "donors": 64, "training": FAST, "device": "cpu", **changes})


@pytest.fixture(scope="module")
def fitted() -> Protector:
    made = make(400)
    return unfitted().fit(made.X, made.labels, persons=made.persons, ids=made.ids)


@pytest.mark.parametrize("kind", CONTAINERS)
def test_container_in_is_container_out(kind: str) -> None:
    made, new = make(300), CONTAINERS[kind](make(50, seed=1).X)
    labels = pl.DataFrame(made.labels) if kind == "polars" else pd.DataFrame(made.labels) if kind == "pandas" else made.labels
    protector = unfitted().fit(CONTAINERS[kind](made.X), labels)
    released = protector.transform(new, key=KEY)
    assert type(released) is type(new)
    assert released.shape == new.shape
    if kind == "pandas":
        assert list(released.index) == list(new.index)
    if kind in ("pandas", "polars"):
        assert list(released.columns) == NAMES
    pool = {row.tobytes() for row in protector.donors_}
    assert all(row.tobytes() in pool for row in np.ascontiguousarray(np.asarray(released), dtype=protector.donors_.dtype))


def test_frames_keep_the_types_of_their_columns() -> None:
    made = make(300)
    frame = pl.DataFrame(made.X, schema=NAMES).with_columns(pl.col("x0").round().cast(pl.Int32))
    released = unfitted().fit(frame, made.labels).transform(frame, key=KEY)
    assert released.schema == frame.schema
    assert set(released.rows()) <= set(frame.rows())


def test_same_key_and_id_meet_the_same_donor(fitted: Protector) -> None:
    new = make(200, seed=1)
    released, donors = fitted.transform(new.X, ids=new.ids, key=KEY, return_donors=True)
    order = np.random.default_rng(0).permutation(200)[:70]
    again = fitted.transform(new.X[order], ids=[new.ids[k] for k in order], key=KEY)
    assert (again == released[order]).all()
    assert (released == fitted.donors_[donors]).all()
    assert (fitted.transform(new.X, ids=new.ids, key=OTHER_KEY) != released).any()
    assert (fitted.transform(new.X, ids=[f"other {name}" for name in new.ids], key=KEY) != released).any()


def test_without_ids_equal_records_meet_the_same_donor(fitted: Protector) -> None:
    new = make(50, seed=1).X
    twice = fitted.transform(np.concatenate([new, new[::-1]]), key=KEY)
    assert (twice[:50] == twice[50:][::-1]).all()


def test_key_is_required_and_never_a_parameter(fitted: Protector) -> None:
    new = make(20, seed=1).X
    with pytest.raises(ConfigError, match=r"key: expected 32 secret bytes, found none.*secrets\.token_bytes"):
        fitted.transform(new)
    with pytest.raises(ConfigError, match="expected 32 bytes, found 5"):
        fitted.transform(new, key=b"short")
    assert (fitted.transform(new, key="experiment") == fitted.transform(new, key="experiment")).all()


@pytest.mark.parametrize("forbid", ["self", "same_person"])
def test_forbidden_donors_are_never_drawn(forbid: str) -> None:
    made = make(300)
    protector = unfitted(forbid=forbid, donors=100).fit(made.X, made.labels, persons=made.persons, ids=made.ids)
    _, donors = protector.transform(made.X, ids=made.ids, persons=made.persons, key=KEY, return_donors=True)
    own, others = (made.ids, protector.donor_ids_) if forbid == "self" else (made.persons, protector.donor_persons_)
    assert all(name != other for name, other in zip(own, others[donors], strict=True))
    if forbid == "same_person":
        with pytest.raises(ConfigError, match="persons: expected one for every record"):
            protector.transform(made.X, key=KEY)


def test_clone_parameters_and_not_fitted() -> None:
    protector = unfitted(settings={"epsilon": 0.1}, seed=3)
    copy = clone(protector)
    assert copy.get_params() == protector.get_params()
    assert copy.set_params(method="pass", donors=10).method == "pass"
    assert "epsilon" in repr(protector)
    for act in (lambda: copy.transform(make(5).X, key=KEY), lambda: copy.save("nowhere")):
        with pytest.raises(NotFittedError):
            act()


def test_pipeline_with_labels_as_y_and_one_array() -> None:
    made = make(300)
    steps = [("scale", StandardScaler()), ("protect", unfitted(key="experiment"))]
    released = Pipeline(steps).fit(made.X, made.labels).transform(make(40, seed=1).X)
    assert released.shape == (40, SIZE)
    single = Protector(method="random_donor", donors=64, training=FAST, key="experiment")  # y as scikit-learn has it
    assert Pipeline([*steps[:1], ("protect", single)]).fit_transform(made.X, made.labels["gender"]).shape == (300, SIZE)
    whole = Pipeline([("protect", single), ("model", LogisticRegression())])
    assert whole.fit(made.X, made.labels["gender"]).predict(made.X).shape == (300,)


def test_fit_passes_persons_through_a_pipeline() -> None:
    made = make(300)
    pipeline = Pipeline([("scale", StandardScaler()), ("protect", unfitted(forbid="same_person"))])
    pipeline.fit(made.X, made.labels, protect__persons=made.persons)
    assert set(pipeline["protect"].donor_persons_) <= set(made.persons)


def test_saved_protector_draws_the_same_donors(fitted: Protector, tmp_path: Path) -> None:
    new = make(100, seed=1)
    fitted.save(tmp_path / "model")
    loaded = Protector.load(str(tmp_path / "model"))
    assert (loaded.transform(new.X, ids=new.ids, key=KEY) == fitted.transform(new.X, ids=new.ids, key=KEY)).all()
    assert {path.suffix for path in (tmp_path / "model").iterdir()} == {".json", ".safetensors"}
    assert not hasattr(loaded, "training_")
    described = json.loads((tmp_path / "model" / "protector.json").read_text())
    assert "key" not in described["parameters"] or described["parameters"]["key"] is None


def test_damaged_folder_is_refused(fitted: Protector, tmp_path: Path) -> None:
    fitted.save(tmp_path / "a")
    other = make(400, seed=2)
    unfitted(seed=5).fit(other.X, other.labels).save(tmp_path / "b")
    (tmp_path / "a" / "pool.safetensors").write_bytes((tmp_path / "b" / "pool.safetensors").read_bytes())
    with pytest.raises(ChecksumMismatch, match="expected the donors that the model was trained for"):
        Protector.load(tmp_path / "a")
    (tmp_path / "b" / "pool.safetensors").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"pool\.safetensors: is damaged"):
        Protector.load(tmp_path / "b")
    with pytest.raises(DataError, match="expected file is missing"):
        Protector.load(tmp_path / "c")


@pytest.mark.parametrize("method", discovery.available(pass_core.methods))
def test_every_method_fits_releases_and_is_restored(method: str, tmp_path: Path) -> None:
    made, new = make(200), make(30, seed=1).X
    try:
        protector = unfitted(method=method, training={"epochs": 1, "batch_size": 64}).fit(made.X, made.labels)
    except MethodError as error:
        pytest.skip(f"not for vectors: {error}")
    released = protector.transform(new, key=KEY)
    assert released.shape == new.shape
    protector.save(tmp_path)
    assert (Protector.load(tmp_path).transform(new, key=KEY) == released).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "nonsense"}, "unknown name 'nonsense' in methods"),
        ({"settings": {"epsilonn": 1}}, "settings: unknown epsilonn: expected some of epsilon"),
        ({"settings": {"epsilon": -1.0}}, "settings: epsilon: expected above 0"),
        ({"training": {"epochs": "many"}}, "training.epochs"),
        ({"private": "gender"}, "private: expected a list of attributes"),
        ({"useful": ["gender"]}, "expected every attribute once"),
        ({"donors": 1000}, "expected at most the 100 training records"),
        ({"useful": ["age"]}, "labels: expected the attributes gender, age; missing: age"),
    ],
)
def test_wrong_parameters_say_what_to_do(changes: dict[str, Any], message: str) -> None:
    made = make(100)
    with pytest.raises((ConfigError, DataError), match=message):
        unfitted(**changes).fit(made.X, made.labels)


def test_wrong_data_say_what_to_do(fitted: Protector) -> None:
    made = make(100)
    holes, missing = made.X.copy(), [None, *made.labels["gender"][1:]]
    holes[0, 0] = np.nan
    cases: list[tuple[Any, Any, Any, str]] = [
        (holes, made.labels, None, "X: expected finite numbers"),
        (np.full((3, 2), "text"), made.labels, None, "X: expected numbers only"),
        (made.X[0], made.labels, None, "X: expected an array of records"),
        (made.X, made.labels["gender"], None, "labels: expected a mapping or a table with gender, digit"),
        (made.X, {**made.labels, "gender": missing}, None, "found 1 missing"),
        (made.X, made.labels, made.persons[:5], "persons: expected one value for each of the 100 records"),
    ]
    for X, labels, persons, message in cases:
        with pytest.raises(DataError, match=message):
            unfitted().fit(X, labels, persons=persons)
    with pytest.raises(DataError, match=r"X: expected records of shape \(8,\)"):
        fitted.transform(made.X[:, :3], key=KEY)


def test_columns_in_another_order_are_refused() -> None:
    frame, labels = pl.DataFrame(make(200).X, schema=NAMES), make(200).labels
    with pytest.raises(DataError, match="select the same columns in the same order"):
        unfitted().fit(frame, labels).transform(frame.select(reversed(NAMES)), key=KEY)


def test_progress_is_printed_and_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Epoch] = []
    made = make(200)
    unfitted(method="pass", verbose=True, on_epoch=seen.append).fit(made.X, made.labels)
    assert [epoch.number for epoch in seen] == [1, 2, 3, 4]
    assert capsys.readouterr().out.startswith("epoch 1 of 4: total ")


def test_pipelines_model_draws_the_same_donors_here(tiny_root: Path, tmp_path: Path) -> None:
    run, key = RunKey("synthetic_motion", "pass_substitution"), experiment_key(7)
    place = Layout(tiny_root)
    features = read_folder(place.artefact("features", run))
    x = np.array(features.column("features").to_pylist(), dtype=np.float32)
    protector = Protector.load(place.artefact("model", run))
    x, ids = x.reshape(len(x), *protector.donors_.shape[1:]), features.column("record_id").to_pylist()
    released, donors = protector.transform(x, ids=ids, key=key, return_donors=True)
    keyed = KeyedRelease(run=run, model=digest(place.artefact("model", run)), forbid="none", key=key)
    attributes = protector.attributes()
    trained = read_protector(place.artefact("model", run), place.artefact("pool", run), attributes, torch.device("cpu"))
    channel = trained.fitted.channel
    assert channel is not None
    assert (donors == keyed.donors(channel, x, ids)).all()
    assert (released == protector.donors_[donors]).all()
    shutil.copytree(place.artefact("pool", run), tmp_path / "pool")
    (tmp_path / "pool" / "table.json").write_text("{}")
    with pytest.raises(ChecksumMismatch, match="expected the donors that"):
        Protector.load(place.artefact("model", run), pool=tmp_path / "pool")


def test_what_recipients_know_reaches_the_method_and_is_saved(tmp_path: Path) -> None:
    """By default recipients know everything that is not private; the audit then judges the same recipient."""
    made = make(400)
    cells = {}
    for knows in (None, ("digit",), ()):
        protector = unfitted(knows=knows).fit(made.X, made.labels, persons=made.persons, ids=made.ids)
        cells[knows] = len(protector.fitted_.channel.cells)
    assert cells[None] == cells[("digit",)] > cells[()] == 2
    protector.save(tmp_path / "model")
    assert tuple(Protector.load(tmp_path / "model").knows) == ()
    with pytest.raises(ConfigError, match=r"attacker\.knows: expected attributes of the data set"):
        unfitted(knows=("height",)).fit(made.X, made.labels)


def test_carried_classes_select_donors_and_are_needed(tmp_path: Path) -> None:
    made, new = make(400), make(60, seed=1)
    protector = unfitted(settings={"carried": ["digit"], "epsilon": 0.2}).fit(made.X, made.labels, persons=made.persons)
    with pytest.raises(MethodError, match="carried: expected the class of digit with every record, found none; give it"):
        protector.transform(new.X, new.ids, key=KEY)
    digits = {"digit": (new.labels["digit"] + 1) % 3}  # not those that the records show
    _, drawn = protector.transform(new.X, new.ids, key=KEY, labels=digits, return_donors=True)
    features = new.X.astype(np.float32)
    channel = protector.fitted_.channel.knowing(digits)
    assert drawn.tolist() == draw_donors(channel, features, new.ids, key=KEY, scope=protector.scope_).tolist()
    truly = protector.transform(new.X, new.ids, key=KEY, labels={"digit": new.labels["digit"]}, return_donors=True)[1]
    assert truly.tolist() != drawn.tolist()
    protector.save(tmp_path / "model")
    again = Protector.load(tmp_path / "model").transform(new.X, new.ids, key=KEY, labels=digits, return_donors=True)[1]
    assert again.tolist() == drawn.tolist()


def test_what_training_leaves_visible_is_a_warning() -> None:
    made = make(400)
    labels = {**made.labels, "team": np.where(made.labels["gender"] == 1, made.labels["digit"] % 2, 2)}
    settings = {"rounds": 1, "epsilon": 0.2}
    protector = unfitted(general=["team"], knows=["team"], settings=settings)
    with pytest.warns(UserWarning, match="anybody still learns 0"):
        protector.fit(made.X, labels, persons=made.persons)
    assert any("training does not hide" in note or "nothing can hide" in note for note in protector.notes_)
