"""Principal components against a plain decomposition, and the layers of FaceNet that they reduce."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pass_core.errors import ConfigError, DataError
from pass_core.randomness import stream
from tasks.config import load_config
from tasks.extractors import facenet, hubert
from tasks.extractors._components import Components, learn_components
from tasks.extractors.loading import load_extractor
from tasks.payloads.payload import Payload
from tasks.sections.dataset import DatasetConfig
from tasks.storage.files import file_digest
from tests.conftest import write_params
from tests.media import picture, random_facenet, small_hubert, small_payloads

CPU = torch.device("cpu")
SETTING = "extractor.facenet.components"


def _ignore(_: int) -> None:
    pass


def _outputs(rows: int = 300, numbers: int = 60) -> np.ndarray:
    """Outputs with a few strong directions."""
    rng = stream(3, "outputs")
    strong = rng.normal(size=(rows, 8)) * np.arange(9, 1, -1)
    mixed = strong @ rng.normal(size=(8, numbers)) + rng.normal(size=(rows, numbers))
    return (5 + mixed).astype(np.float32)


def test_components_equal_a_plain_decomposition() -> None:
    outputs = _outputs()
    found = learn_components(outputs.copy(), 6, SETTING)
    centred = outputs.astype(np.float64) - outputs.mean(axis=0, dtype=np.float64)
    expected = np.linalg.svd(centred, full_matrices=False)[2][:6]
    axes = found.axes.numpy().T / found.axes.norm(dim=0).numpy()[:, None]
    assert np.abs((axes * expected).sum(axis=1)) == pytest.approx(np.ones(6), abs=1e-4)
    reduced = found.of(outputs)
    assert reduced.mean(axis=0) == pytest.approx(np.zeros(6), abs=1e-4)
    assert reduced.var(axis=0).mean() == pytest.approx(1, abs=1e-3)  # one factor for all: they keep their proportions
    lengths = np.linalg.svd(centred, compute_uv=False)[:6]
    assert reduced.std(axis=0) / reduced.std(axis=0)[0] == pytest.approx(lengths / lengths[0], abs=1e-3)


def test_components_are_the_same_again_and_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = _outputs()
    found = learn_components(outputs.copy(), 12, SETTING)
    assert learn_components(outputs.copy(), 12, SETTING).digest == found.digest
    assert learn_components(outputs[:-1].copy(), 12, SETTING).digest != found.digest
    whole = found.of(outputs)
    monkeypatch.setattr("tasks.extractors._components.AT_ONCE", 7)
    assert np.abs(found.of(outputs) - whole).max() < 1e-5
    found.save(tmp_path)
    assert Components.load(tmp_path).digest == found.digest
    (tmp_path / "components.safetensors").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"expected the tensors mean and axes, found a damaged file; run extract"):
        Components.load(tmp_path)


def test_too_many_components_are_told() -> None:
    with pytest.raises(ConfigError, match=r"facenet\.components: expected at most 60 \(the extractor's outputs\), found 61"):
        learn_components(_outputs(), 61, SETTING)
    with pytest.raises(
        ConfigError, match=r"expected fewer than the 20 training records, found 20; set it to at most 19, or to 0 for the outputs"
    ):
        learn_components(_outputs(rows=20), 20, SETTING)


def _facenet(weights: Path, **settings: Any) -> facenet.FaceNetConfig:
    return facenet.FaceNetConfig(weights=str(weights), digest=file_digest(weights), **settings)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_facenet(tmp_path_factory.mktemp("weights"))


@pytest.mark.parametrize(("layer", "pooling"), [("repeat_1", 5), *((name, 3) for name in facenet.LAYERS), ("repeat_2", 1)])
def test_layers_equal_the_bare_network(weights: Path, layer: str, pooling: int) -> None:
    loaded = facenet.EXTRACTOR.load(_facenet(weights, layer=layer, pooling=pooling, components=0), CPU)
    seen: list[torch.Tensor] = []
    getattr(loaded.model, layer).register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    features = loaded.features([picture()], 1, _ignore)
    expected = torch.nn.functional.adaptive_avg_pool2d(seen[0], pooling).flatten(1).numpy()
    assert seen[0].shape[1:] == (facenet.LAYERS[layer][0], *2 * [facenet.LAYERS[layer][1]])  # channels and side as declared
    assert features == pytest.approx(expected, abs=1e-6)
    assert features.shape == (1, *loaded.feature_shape(Payload("image"))) == (1, facenet.LAYERS[layer][0] * pooling**2)


def test_batch_does_not_change_features(weights: Path) -> None:
    payloads = [picture(seed) for seed in range(5)]
    made = [
        facenet.EXTRACTOR.load(_facenet(weights, layer="mixed_6a", batch_size=size), CPU).features(payloads, 1, _ignore)
        for size in (1, 3, 5)
    ]
    assert np.abs(made[0]).max() > 0.01
    assert max(np.abs(other - made[0]).max() for other in made[1:]) < 1e-5


def test_wrong_layers_and_grids_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"layer: expected one of embedding, block8, .*, repeat_1, found 'repeat_9'"):
        facenet.FaceNetConfig(layer="repeat_9")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pooling: expected between 1 and 3, found 4"):
        facenet.FaceNetConfig(layer="mixed_7a", pooling=4)
    with pytest.raises(ConfigError, match="components: expected at least 0, found -1"):
        hubert.HubertConfig(components=-1)
    params = write_params(tmp_path, extractor={"facenet": {"layer": "repeat_9"}})
    with pytest.raises(ConfigError, match=r"extractor\.facenet\.layer: .*'repeat_2'.*config explain extractor\.facenet\.layer"):
        load_config(params)


def _digest(kind: str, config: Any) -> str:
    section = DatasetConfig(private=("a",), useful=("b",), extractor=kind)
    payload, payloads = small_payloads("image" if kind == "facenet" else "audio", 6)
    named = load_extractor(section, {kind: config}, payload, "cpu", "faces")
    if named.components:
        named = named.learn(named.network.features(payloads, 1, _ignore))
        assert named.features(payloads, 1, _ignore).shape == (6, named.components) == (6, *named.feature_shape(payload))
    return named.digest


def test_digest_names_what_features_depend_on(weights: Path, tmp_path: Path) -> None:
    base = {"layer": "repeat_1", "pooling": 2, "components": 3}
    variants = [{}, {"layer": "mixed_6a"}, {"pooling": 3}, {"components": 4}, {"components": 0}, {"crop": 120}]
    digests = [_digest("facenet", _facenet(weights, **base | changed)) for changed in variants]
    assert len({*digests}) == len(variants)
    moved = tmp_path / "moved.safetensors"
    moved.write_bytes(weights.read_bytes())
    assert _digest("facenet", _facenet(moved, **base | {"components": 0})) == digests[4]  # where weights are is nobody's business


def test_hubert_has_components(tmp_path: Path) -> None:
    model = small_hubert(tmp_path)
    pinned = {"model": str(model), "digest": file_digest(model / "model.safetensors")}
    digests = {_digest("hubert", hubert.HubertConfig(**pinned, components=n, layer=k)) for n in (0, 3) for k in (1, 2)}
    assert len(digests) == 4
    with pytest.raises(ConfigError, match=r"extractor\.hubert\.components: expected at most 32 \(.*\), found 33"):
        _digest("hubert", hubert.HubertConfig(**pinned, components=33))
