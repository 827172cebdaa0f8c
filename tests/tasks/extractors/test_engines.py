"""Engines and precisions against the network as it is: small networks with random weights, made here."""

import importlib.util
import logging
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pass_core.errors import ConfigError, DataError
from tasks.extractors import facenet, hubert
from tasks.extractors.engines.base import ARITHMETICS, described
from tasks.extractors.engines.processor import fast_instructions
from tasks.extractors.engines.quantised import Quantised
from tasks.preflight import check_run
from tasks.storage.files import file_digest
from tests.conftest import PROJECT
from tests.media import picture, random_facenet, small_hubert, sound

CPU = torch.device("cpu")
COSINES = {"float32": 0.999999, "bfloat16": 0.999, "int8": 0.99}
PICTURES = [picture(seed) for seed in range(11)]
CLIPS = [sound(0.3 + 0.1 * (k % 3), pitch=200 + 60 * k) for k in range(11)]
OTHERS = [
    pytest.param(*each, marks=pytest.mark.skipif(not fast_instructions("bfloat16"), reason="this processor has no bfloat16"))
    if each == ("openvino", "bfloat16")
    else each
    for each in ARITHMETICS[1:]
]


def _ignore(_: int) -> None:
    pass


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("weights")
    weights, model = random_facenet(folder), small_hubert(folder / "hubert")
    return {
        "facenet": {"weights": str(weights), "digest": file_digest(weights), "layer": "repeat_1"},
        "hubert": {"model": str(model), "digest": file_digest(model / "model.safetensors")},
    }


def _load(settings: dict[str, dict[str, Any]], name: str, engine: str, precision: str) -> Any:
    entry = {"facenet": facenet, "hubert": hubert}[name].EXTRACTOR
    return entry.load(entry.config_type(**settings[name], engine=engine, precision=precision), CPU)


def _cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    cosines: np.ndarray = (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    return cosines


@pytest.mark.parametrize("name", ["facenet", "hubert"])
@pytest.mark.parametrize(("engine", "precision"), OTHERS)
def test_features_are_close_to_float32(settings: dict[str, Any], name: str, engine: str, precision: str) -> None:
    payloads = PICTURES if name == "facenet" else CLIPS
    expected = _load(settings, name, "auto", "float32").features(payloads, 2, _ignore)
    loaded = _load(settings, name, engine, precision)
    if precision == "int8":
        with pytest.raises(DataError, match=f"extractor.{name}: expected a calibrated int8 network"):
            loaded.features(payloads, 2, _ignore)
        loaded.calibrate(payloads[::2])
    finished: list[int] = []
    found = loaded.features(payloads, 2, finished.append)
    assert (found.shape, found.dtype, sum(finished)) == (expected.shape, np.float32, len(payloads))
    cosines = _cosines(found, expected)
    assert (np.median(cosines) if precision == "int8" else cosines.min()) >= COSINES[precision]
    assert (engine == "torch" and precision == "float32") or not (found == expected).all()  # it did compute otherwise


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_images_features_depend_on_no_other_image_and_no_thread(settings: dict[str, Any], precision: str) -> None:
    loaded = _load(settings, "facenet", "openvino", precision)
    if precision == "int8":
        loaded.calibrate(PICTURES[:4])
    whole = loaded.features(PICTURES, 2, _ignore)
    assert (loaded.features(PICTURES[9:], 1, _ignore) == whole[9:]).all()


def test_calibration_gives_the_same_bytes_and_is_read_back(settings: dict[str, Any], tmp_path: Path) -> None:
    first, second = (_load(settings, "hubert", "auto", "int8") for _ in range(2))
    quantised = first.calibrate(CLIPS[:3])
    assert second.calibrate(CLIPS[:3]).digest == quantised.digest
    assert second.calibrate(CLIPS[3:6]).digest != quantised.digest
    quantised.save(tmp_path)
    second.engine.quantised = Quantised.load(tmp_path)
    fresh = _load(settings, "hubert", "auto", "int8")
    fresh.engine.quantised = Quantised.load(tmp_path)
    assert (fresh.features(CLIPS, 2, _ignore) == first.features(CLIPS, 2, _ignore)).all()
    fresh = _load(settings, "hubert", "auto", "int8")
    fresh.engine.quantised = Quantised(quantised.content[: len(quantised.content) // 2])
    with pytest.raises(DataError, match=r"expected an int8 network, found a damaged file; run extract"):
        fresh.features(CLIPS, 2, _ignore)


def test_nothing_is_reported_to_anyone_and_warnings_stay(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """OpenVINO and NNCF report their use to Google Analytics, unless this package is missing."""
    loaded = _load(settings, "hubert", "auto", "int8")
    loaded.calibrate(CLIPS[:1])
    logging.getLogger("tasks.extractors").warning("a warning of ours")
    assert "a warning of ours" in caplog.text
    assert {"openvino", "nncf"} <= sys.modules.keys()
    assert sys.modules["openvino_telemetry"] is None
    assert not [name for name in sys.modules if name.startswith("openvino_telemetry.")]


def test_auto_is_chosen_by_settings_alone() -> None:
    def arithmetic(**settings: Any) -> dict[str, str]:
        return facenet.FaceNetConfig(**settings).arithmetic

    assert arithmetic() == {"engine": "torch", "precision": "float32"}
    assert arithmetic(precision="bfloat16")["engine"] == "torch"
    assert arithmetic(precision="int8")["engine"] == "openvino"
    with pytest.raises(ConfigError, match="precision: expected float32 or bfloat16 with engine: torch, found int8"):
        arithmetic(engine="torch", precision="int8")


def test_digests_of_the_default_are_those_from_before_there_was_a_choice() -> None:
    default = described(hubert.HubertConfig())
    assert not default.keys() & {"engine", "precision"}
    assert default == described(hubert.HubertConfig(engine="torch"))
    assert described(hubert.HubertConfig(precision="int8")) == default | {"engine": "openvino", "precision": "int8"}


def test_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    whole = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in ("openvino", "nncf") else whole(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    line = "extractor.facenet: expected the packages of the extra `fast` for engine: openvino, found no openvino"
    with pytest.raises(ConfigError, match=line.replace(".", r"\.") + r"; run `pip install '\.\[fast\]'`, or set engine: torch"):
        _load(settings, "facenet", "openvino", "float32")
    problems = check_run(PROJECT / "params.yaml", ["extractor.facenet.precision=int8"], datasets=["celeba"], steps=["extract"])
    assert [p for p in problems if p.startswith(line + " and no nncf; run")]


def test_openvino_computes_on_the_cpu_only(settings: dict[str, Any]) -> None:
    config = facenet.FaceNetConfig(**settings["facenet"], engine="openvino")
    with pytest.raises(ConfigError, match=r"extractor\.facenet\.engine: expected compute\.device: cpu with openvino, found meta"):
        facenet.EXTRACTOR.load(config, torch.device("meta"))


def test_instructions_are_read_from_the_processors_description(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor : 0\nflags\t\t: sse avx512_vnni avx512_bf16 amx_int8\n")
    assert fast_instructions("bfloat16", path) == ("avx512_bf16",)
    assert fast_instructions("int8", path) == ("avx512_vnni", "amx_int8")
    assert fast_instructions("float32", path) == fast_instructions("int8", tmp_path / "none") == ()


def test_real_facenet_keeps_its_features() -> None:
    """On CelebA: cosine to float32 of what the default layer gives."""
    raw = Path(os.environ.get("PASS_RAW_DATA", ""))
    weights, images = raw / "facenet" / "inception_resnet_v1.safetensors", raw / "celeba" / "img_align_celeba"
    if "PASS_RAW_DATA" not in os.environ or not weights.is_file() or not images.is_dir():
        pytest.skip("needs real weights: PASS_RAW_DATA with facenet/inception_resnet_v1.safetensors and celeba/")
    encoded = [path.read_bytes() for path in sorted(images.glob("*.jpg"))[:48]]
    real = {"facenet": {"weights": str(weights), "digest": file_digest(weights), "layer": "repeat_1"}}
    expected = _load(real, "facenet", "auto", "float32").features(encoded[:32], 2, _ignore)
    quantised = _load(real, "facenet", "auto", "int8")
    quantised.calibrate(encoded[32:])
    assert _cosines(quantised.features(encoded[:32], 2, _ignore), expected).min() >= 0.99
    half = _load(real, "facenet", "torch", "bfloat16")
    assert _cosines(half.features(encoded[:32], 2, _ignore), expected).min() >= 0.999
