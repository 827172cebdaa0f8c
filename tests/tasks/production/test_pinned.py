"""What is audited and published was made by the model and pool of the run's start, and the manifest says so."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pass_core.errors import ChecksumMismatch
from pass_core.storage.models import load_tensors, save_tensors
from tasks.production.run import Hooks, execute
from tasks.storage.files import digest
from tests.tasks.production.lakes import PassGate, make_options, protect, published

MODEL, POOL = "models/calls/pass_substitution", "pools/calls"


def _other_weights(root: Path) -> None:
    """The same description with weights that differ a little."""
    path = root / MODEL / "model.safetensors"
    tensors = {name: tensor + 0.01 * torch.ones_like(tensor) for name, tensor in load_tensors(path).items()}
    path.unlink()
    save_tensors(path, tensors)


def _other_pool(root: Path) -> None:
    path = next((root / POOL).glob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)


def _before(step: str, change: Callable[[], None]) -> Callable[..., Any]:
    def call(name: str, _title: str, body: Callable[[], Any]) -> Any:
        if name == step:
            change()
        return body()

    return call


@pytest.fixture
def root(champion: Path, tmp_path: Path) -> Path:
    """A champion of the test's own."""
    return Path(shutil.copytree(champion, tmp_path / "root"))


@pytest.mark.parametrize(("swap", "named"), [(_other_weights, "model"), (_other_pool, "pool")])
@pytest.mark.parametrize("gate", [None, PassGate()], ids=["audit", "other gate"])
def test_what_was_swapped_after_staging_is_neither_audited_nor_published(
    root: Path, lake: Path, tmp_path: Path, swap: Callable[[Path], None], named: str, gate: PassGate | None
) -> None:
    kept = Path(shutil.copytree(root, tmp_path / "kept"))
    options, expected = make_options(root, lake, tmp_path / "out"), digest(root / {"model": MODEL, "pool": POOL}[named])
    with pytest.raises(ChecksumMismatch, match=rf"expected the {named} .*{expected[:12]}.*run again") as error:
        execute(options, Hooks(gate=gate, call=_before("publish", lambda: swap(root))))
    assert digest(root / {"model": MODEL, "pool": POOL}[named])[:12] in str(error.value)
    assert not (tmp_path / "out" / "current").exists()
    # As the message says: with the old files in place, the next run publishes what is staged.
    shutil.rmtree(root)
    kept.rename(root)
    protect(root, lake, tmp_path / "out")
    protect(root, lake, tmp_path / "undisturbed")
    assert published(tmp_path / "out") == published(tmp_path / "undisturbed")


def test_the_manifest_names_limits_and_digests(root: Path, lake: Path, tmp_path: Path) -> None:
    manifest = execute(make_options(root, lake, tmp_path / "out")).manifest
    assert manifest is not None
    assert manifest.audit["digests"] == {"model": digest(root / MODEL), "pool": digest(root / POOL)}
    assert manifest.audit["limits"]
    assert all(isinstance(limit, float) for limit in manifest.audit["limits"].values())
