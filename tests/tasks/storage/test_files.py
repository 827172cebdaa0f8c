"""Files are whole or absent, equal tables are equal bytes, and one run at a time writes."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pass_core.data import Attribute
from pass_core.errors import DataError, SchemaMismatch, StorageError
from tasks.payloads.payload import vectors
from tasks.storage.files import digest, publish, read_json, rounded, staging_folder, storage_errors, write_json
from tasks.storage.parquet import array_of, labels_of, read_table, write_table


def _table() -> pa.Table:
    return pa.table({"id": ["CANARY-a", "b"], "payload": vectors(np.arange(8, dtype=np.float32).reshape(2, 2, 2))})


def test_equal_tables_give_equal_bytes(tmp_path: Path) -> None:
    write_table(_table(), tmp_path / "1.parquet")
    write_table(_table().replace_schema_metadata({"pandas": "x"}), tmp_path / "2.parquet")
    assert digest(tmp_path / "1.parquet") == digest(tmp_path / "2.parquet")


def test_footer_tells_no_values(tmp_path: Path) -> None:
    write_table(_table(), tmp_path / "t.parquet")
    metadata = pq.ParquetFile(tmp_path / "t.parquet").metadata
    assert all(not metadata.row_group(0).column(k).is_stats_set for k in range(metadata.num_columns))
    assert b"pandas" not in (metadata.metadata or {})


def test_arrays_survive_a_round_trip(tmp_path: Path) -> None:
    write_table(_table(), tmp_path / "t.parquet")
    back = read_table(tmp_path / "t.parquet")
    assert (array_of(back, "payload", (2, 2)) == np.arange(8).reshape(2, 2, 2)).all()
    with pytest.raises(SchemaMismatch, match="length 3, found"):
        array_of(back, "payload", (3,))


@pytest.mark.parametrize("damage", ["truncate", "flip", "text", "missing"])
def test_damaged_table_names_the_file(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "t.parquet"
    write_table(_table(), path)
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        content[-10] ^= 0xFF
        path.write_bytes(content)
    elif damage == "text":
        path.write_text("not parquet")
    else:
        path.unlink()
    with pytest.raises(DataError, match=r"t\.parquet"):
        read_table(path)


def test_missing_column_is_named(tmp_path: Path) -> None:
    write_table(_table(), tmp_path / "t.parquet")
    with pytest.raises(SchemaMismatch, match="missing: nope"):
        read_table(tmp_path / "t.parquet", ["id", "nope"])


def test_unknown_class_is_counted_not_shown() -> None:
    with pytest.raises(DataError, match=r"column 'a': 1 record\(s\)") as error:
        labels_of(pa.table({"a": ["x", "CANARY"]}), (Attribute("a", ("x", "y"), "private"),))
    assert "CANARY" not in str(error.value)


def test_publish_replaces_a_folder_whole(tmp_path: Path) -> None:
    for version in ("old", "new"):
        staged = tmp_path / "staged"
        staged.mkdir()
        (staged / version).write_text(version)
        publish(staged, tmp_path / "final")
        assert [p.name for p in (tmp_path / "final").iterdir()] == [version]
        shutil.rmtree(staged, ignore_errors=True)  # the version before, as the staging folder's end removes it
    assert sorted(p.name for p in tmp_path.iterdir()) == ["final"]


def test_staging_is_emptied_before_and_removed_after(tmp_path: Path) -> None:
    (tmp_path / "step").mkdir()
    (tmp_path / "step" / "left by a killed run").write_text("x")
    with staging_folder(tmp_path, "step") as folder:
        assert list(folder.iterdir()) == []
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    with pytest.raises(RuntimeError), staging_folder(tmp_path, "step") as folder:
        raise RuntimeError
    assert not folder.exists()


def test_second_writer_is_refused_and_told_who(tmp_path: Path) -> None:
    code = "from pathlib import Path\nfrom tasks.storage.files import staging_folder\n"
    code += f"with staging_folder(Path({str(tmp_path)!r}), 's'): pass"
    with staging_folder(tmp_path, "s"):
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"process {os.getpid()} is running this step" in other.stderr
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "no space left"), (errno.EROFS, "read-only"), (errno.EACCES, "permission")]
)
def test_storage_errors_say_what_to_do(tmp_path: Path, number: int, words: str) -> None:
    with pytest.raises(StorageError, match=words), storage_errors(tmp_path):
        raise OSError(number, "x", "some/file")


def test_other_os_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(ConnectionResetError), storage_errors(tmp_path):
        raise ConnectionResetError(errno.ECONNRESET, "x")


def test_json_is_stable_and_refuses_damage(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", rounded({"x": -0.00000001, "y": [1.23456789]}))
    assert read_json(tmp_path / "a.json") == {"x": 0.0, "y": [1.234568]}
    assert "-0.0" not in (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(DataError, match=r"a\.json: is damaged"):
        read_json(tmp_path / "a.json")
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "b.json", float("nan"))
    assert not (tmp_path / "b.json").exists()
