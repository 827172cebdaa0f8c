"""Somebody else's release: pairs that leak on purpose fail, a private one passes, and tables that do not fit are told."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyarrow import csv

from pass_core.attacks import gradient_boosting, logistic_regression
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.thresholds import Depth
from pass_core.data import IntArray
from pass_core.errors import ConfigError, PassError
from pass_core.randomness import stream
from tasks.audits.pair import audit_pair, pair_subject
from tasks.lakes.pair import PairColumns
from tasks.running.progress import silent
from tasks.sections.audit import AuditConfig
from tasks.sections.dataset import Roles
from tasks.storage.files import read_json, write_json
from tests.media import picture

N = 6000
ROLES = Roles(private=("s", "t"), useful=("u",), general=("h",))
CONFIG = AuditConfig(
    attacks={
        "logistic_regression": logistic_regression.LogisticRegressionConfig(),
        "gradient_boosting": gradient_boosting.GradientBoostingConfig(iterations=20),
    },
    depth=Depth(fresh_draws=2, permutations=20, bundles=(1, 3), draws=(1, 2, 3), gallery=300),
)


def _labels(n: int, rng: np.random.Generator) -> IntArray:
    """(n, 4) classes of s, t, u and h."""
    return np.stack([rng.integers(0, k, n) for k in (2, 2, 4, 2)], axis=1)


def _vectors(labels: IntArray, rng: np.random.Generator) -> np.ndarray:
    return labels + rng.normal(0, 0.15, labels.shape)


def _original(n: int = N) -> tuple[pa.Table, IntArray]:
    labels = _labels(n, stream(1, "labels"))
    columns: dict[str, Any] = {name: pa.array([f"{name}{k}" for k in labels[:, i]]) for i, name in enumerate("stuh")}
    columns |= {"key": pa.array(range(n)), "person": pa.array([f"p{k % 600}" for k in range(n)])}
    return _with_payload(pa.table(columns), _vectors(labels, stream(1, "noise"))), labels


def _with_payload(table: pa.Table | None, vectors: np.ndarray) -> pa.Table:
    payload = pa.array(vectors.tolist(), pa.list_(pa.float32()))
    return pa.table({"payload": payload}) if table is None else table.append_column("payload", payload)


def _released(labels: IntArray, mechanism: str, draw: str = "0") -> np.ndarray:
    """Records of donors, of the same useful class and whatever the mechanism lets through."""
    rng = stream(2, mechanism, draw)
    donors = _labels(len(labels), rng)
    donors[:, 2] = labels[:, 2]
    if mechanism == "xor":
        donors[:, 1] = donors[:, 0] ^ labels[:, 0] ^ labels[:, 1]
    return _vectors(donors, rng)


def _write(folder: Path, **tables: pa.Table) -> list[Path]:
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return [folder / f"{name}.parquet" for name in tables]


def _audit(folder: Path, original: Path, *protected: Path, **columns: Any) -> dict[str, Any]:
    """The audit, as it is read back."""
    write_json(
        folder / "audit.json",
        audit_pair(
            original,
            protected,
            PairColumns(roles=ROLES, **columns),
            config=CONFIG,
            recipient=Recipient(),
            seed=7,
            progress=silent,
        ),
    )
    return read_json(folder / "audit.json")


def _failed(found: dict[str, Any]) -> set[tuple[str, str]]:
    return {(check["name"], check["about"]) for check in found["checks"] if check["outcome"] == "leak shown"}


def _row(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in found["attributes"] if row["name"] == name)


def test_private_mechanism_passes_and_says_what_was_not_looked_at(tmp_path: Path) -> None:
    original, labels = _original()
    release = _with_payload(None, _released(labels, "private"))
    found = _audit(tmp_path, *_write(tmp_path, original=original, release=release))
    assert found["verdict"] == "pass", found["reasons"]
    assert _row(found, "s")["unprotected"]["value"] > 0.95  # the attacks work where nothing protects
    assert _row(found, "u")["nag"]["low"] > 0.9
    assert (found["dataset"], found["method"]) == ("original", "release")
    assert found["split"] == "half to half by record, at random with seed 7"
    assert (found["channel"], found["donors"], found["membership"], found["replay"], found["model_digest"]) == (None,) * 5
    assert all(row["exact"] is None for row in found["attributes"])
    assert found["strangers"] is None  # nobody said who is who
    assert found["linkage"]["attack"] == "nearest"
    assert found["linkage"]["repeated_draws"] == []


def test_identity_fails(tmp_path: Path) -> None:
    original, _ = _original()
    paths = _write(tmp_path, original=original, release=original.select(["payload", "person"]))
    found = _audit(tmp_path, *paths, person="person")
    assert {("private_nag_at_most", "s"), ("private_nag_at_most", "t"), ("private_nag_at_most", "s × t")} <= _failed(found)
    assert found["linkage"]["reidentified"]["value"] == 1.0
    assert found["split"] == "half to half by person, at random with seed 7"
    assert found["strangers"]["persons"] == 300
    assert found["persons"] == {"train": 300, "test": 300}


def test_leak_of_a_combination_is_found(tmp_path: Path) -> None:
    original, labels = _original()
    release = _with_payload(None, _released(labels, "xor"))
    found = _audit(tmp_path, *_write(tmp_path, original=original, release=release))
    assert ("private_nag_at_most", "s × t") in _failed(found)
    assert _row(found, "s")["verdict"] == _row(found, "t")["verdict"] == "below the limit"


def test_released_column_is_attacked_with_the_payload(tmp_path: Path) -> None:
    original, labels = _original()
    release = _with_payload(pa.table({"u": original.column("u")}), _released(labels, "private"))
    title = pa.array(["Mr" if k else "Mrs" for k in labels[:, 0]])
    found = _audit(tmp_path, *_write(tmp_path, original=original, release=release.append_column("title", title)))
    assert found["pass_through"] == ["released u", "title"]
    assert ("private_nag_at_most", "s, with column title") in _failed(found)
    assert not [about for _, about in _failed(found) if "released u" in about]  # the control: it tells nothing private
    assert _row(found, "t")["verdict"] == "below the limit"


def test_several_draws_are_linked(tmp_path: Path) -> None:
    """A release with fresh noise: every draw alone is far from its original, their mean is not."""
    original, _ = _original(1500)
    payload = np.array(original.column("payload").to_pylist())
    draws = [_with_payload(None, payload + stream(3, str(k)).normal(0, 0.6, payload.shape)) for k in range(3)]
    found = _audit(tmp_path, *_write(tmp_path, original=original, one=draws[0], two=draws[1], three=draws[2]))
    rates = {entry["draws"]: entry["record"]["value"] for entry in found["linkage"]["repeated_draws"]}
    assert set(rates) == {1, 2, 3}
    assert rates[1] == found["linkage"]["reidentified"]["value"]
    assert rates[3] > 1.3 * rates[1]


@pytest.mark.parametrize("kind", ["csv", "delta", "hive", "keyed"])
def test_formats_and_joins_give_the_same_subject(tmp_path: Path, kind: str) -> None:
    original, labels = _original(400)
    part = pa.array(["test" if k % 3 == 0 else "train" for k in range(400)])
    original = original.append_column("part", part)
    release = _with_payload(original.select(["key"]), _released(labels, "private"))
    paths = _write(tmp_path, original=original, release=release)
    columns: dict[str, Any] = {"key": "key", "split": "part", "person": "person"}
    expected, _, _ = pair_subject(paths[0], paths[1:], PairColumns(roles=ROLES, **columns), 7)
    if kind == "csv":
        tables = []
        for table in (original, release):
            vectors = np.array(table.column("payload").to_pylist(), dtype=np.float32)
            flat = table.drop_columns(["payload"])
            for k, values in enumerate(vectors.T):
                flat = flat.append_column(f"x_{k}", pa.array(values))
            tables.append(flat)
        for path, table in zip(paths, tables, strict=True):
            csv.write_csv(table, path.with_suffix(".csv"))
        paths, columns = [path.with_suffix(".csv") for path in paths], columns | {"payload": ("x_*",)}
    elif kind == "delta":
        write_deltalake(tmp_path / "lake", release)
        paths[1] = tmp_path / "lake"
    elif kind == "hive":
        ds.write_dataset(original, tmp_path / "lake", format="parquet", partitioning=["part"], partitioning_flavor="hive")
        paths[0] = tmp_path / "lake"
    else:
        pq.write_table(release.take(pa.array(stream(4, "order").permutation(400))), paths[1])
    found, split, _ = pair_subject(paths[0], paths[1:], PairColumns(roles=ROLES, **columns), 7)
    assert split == "by column part"
    for name in ("train", "test"):
        one, other = (getattr(subject, name).records for subject in (expected, found))
        order, others = (np.lexsort(records.features.T) for records in (one, other))  # hive has another order of files
        assert np.array_equal(one.features[order], other.features[others])
        assert all(np.array_equal(one.labels[a][order], other.labels[a][others]) for a in "stuh")
    order, others = (np.lexsort(subject.test.records.features.T) for subject in (expected, found))
    assert np.array_equal(expected.released_test[order], found.released_test[others])


def test_identities_are_split_within_people(tmp_path: Path) -> None:
    original, labels = _original(2400)
    release = _with_payload(None, _released(labels, "private"))
    paths = _write(tmp_path, original=original, release=release)
    roles = Roles(private=("person",), useful=("u",))
    subject, split, shown = pair_subject(paths[0], paths[1:], PairColumns(roles=roles, person="person"), 7)
    assert split.startswith("half to half by record")
    assert np.isin(subject.labels("test", "person"), subject.labels("train", "person")).all()
    assert set(shown["person"]) == {f"class {k + 1}" for k in range(600)}  # nobody is named


def _broken(kind: str) -> tuple[pa.Table, pa.Table, dict[str, Any]]:
    original, labels = _original(200)
    release = _with_payload(original.select(["key", "person"]), _released(labels, "private"))
    missing = pa.array([None if k == 3 else "s0" for k in range(200)])
    nan = np.where(np.arange(200)[:, None] == 5, np.nan, _released(labels, "private"))
    others = release.drop_columns(["payload"])
    return {
        "fewer rows": (original, release.slice(0, 150), {}),
        "other order": (original, release.take(pa.array(np.arange(200)[::-1])), {"person": "person"}),
        "duplicate keys": (original, release.set_column(0, "key", pa.array([1] * 200)), {"key": "key"}),
        "other keys": (original, release.set_column(0, "key", pa.array(range(1000, 1200))), {"key": "key"}),
        "no key": (original, release.drop_columns(["key"]), {"key": "key"}),
        "no attribute": (original.drop_columns(["t"]), release, {}),
        "attribute missing": (original.set_column(0, "s", missing), release, {}),
        "floats": (original.set_column(0, "s", pa.array(np.arange(200) / 2)), release, {}),
        "one class": (original.set_column(0, "s", pa.array(["s0"] * 200)), release, {}),
        "no payload": (original, others, {}),
        "not a number": (original, _with_payload(others, nan), {}),
        "other shape": (original, _with_payload(others, np.zeros((200, 9))), {}),
        "media": (original, others.append_column("payload", pa.array([picture(8, 8)] * 200)), {}),
        "private column": (original, release.append_column("s", original.column("s")), {}),
        "split": (original, release, {"split": "u"}),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("fewer rows", "expected 200 rows as in the originals, found 150; give --key"),
        ("other order", "rows are in another order: column 'person' differs in 200; give --key"),
        ("duplicate keys", "column 'key': expected as many keys as its 200 records, found 1"),
        ("other keys", "expected the originals' keys in column 'key', found none of them"),
        ("no key", "missing columns: key; found"),
        ("no attribute", "missing columns: t; found"),
        ("attribute missing", r"column 's': 1 record\(s\) have no value"),
        ("floats", "column 's': expected text, whole numbers or booleans, found floats"),
        ("one class", "column 's': expected 2 to 1000 classes, found 1"),
        ("no payload", r"expected payload column\(s\) payload; found .*give --payload"),
        ("not a number", r"1 record\(s\) have a payload that is not all numbers"),
        ("other shape", r"expected payloads of shape \(4,\) as the originals', found \(9,\)"),
        ("media", "column 'payload' holds encoded files.*extract features"),
        ("private column", r"holds the private attribute\(s\) s, which every reader of the release sees"),
        ("split", "column 'u': expected train and test"),
    ],
)
def test_tables_that_do_not_fit_are_told(tmp_path: Path, kind: str, message: str) -> None:
    original, release, columns = _broken(kind)
    paths = _write(tmp_path, original=original, release=release)
    with pytest.raises(PassError, match=message) as error:
        pair_subject(paths[0], paths[1:], PairColumns(roles=ROLES, **columns), 7)
    assert "p17" not in str(error.value)  # no person is named


def test_missing_file_and_double_roles_are_told(tmp_path: Path) -> None:
    original, _ = _original(100)
    (path,) = _write(tmp_path, original=original)
    with pytest.raises(PassError, match=r"nowhere\.parquet: expected a Parquet, Delta or CSV table, found nothing"):
        pair_subject(path, [tmp_path / "nowhere.parquet"], PairColumns(roles=ROLES), 7)
    with pytest.raises(ConfigError, match="an attribute has one role"):
        Roles(private=("s",), useful=("s",))
