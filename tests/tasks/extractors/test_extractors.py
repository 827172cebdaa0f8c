"""Extractors against plain computations, with weights made here; real FaceNet weights where they are at hand."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pass_core.errors import ChecksumMismatch, ConfigError, DataError
from tasks.extractors import facenet, hubert, logmel
from tasks.payloads.images import decode_image
from tasks.payloads.sounds import decode_sound, resampled
from tasks.storage.files import file_digest
from tests.media import picture, random_facenet, small_hubert, sound

CPU = torch.device("cpu")


def _ignore(_: int) -> None:
    pass


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_hubert(tmp_path_factory.mktemp("model"))


def _hubert(model: Path, **settings: Any) -> Any:
    weights = model / "model.safetensors"
    pinned = {"digest": file_digest(weights) if weights.exists() else None} | settings
    return hubert.EXTRACTOR.load(hubert.HubertConfig(model=str(model), **pinned), CPU)


@torch.inference_mode()
def _plain_states(model: Path, samples: np.ndarray) -> list[np.ndarray]:
    """All hidden states (frames, hidden) of one clip, by the model alone."""
    from transformers import HubertModel

    network = HubertModel.from_pretrained(model).eval()
    output = network(torch.from_numpy(samples)[None], output_hidden_states=True)
    return [state[0].numpy() for state in output.hidden_states]


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def test_hubert_default_is_last_layer_mean_over_time_unit_length(model: Path) -> None:
    clip = sound(0.4, 16_000)  # a multiple of 0.1 s: no padding
    states = _plain_states(model, decode_sound(clip)[0])
    features = _hubert(model).features([clip], 1, _ignore)[0]
    assert features == pytest.approx(_unit(states[-1].mean(axis=0)), abs=1e-5)
    assert np.linalg.norm(features) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(("layer", "pooling"), [(0, "mean"), (1, "max"), (2, "mean_std")])
def test_hubert_layer_and_pooling_can_be_chosen(model: Path, layer: int, pooling: str) -> None:
    clip = sound(0.4, 16_000)
    state = _plain_states(model, decode_sound(clip)[0])[layer]
    wanted = {
        "mean": state.mean(axis=0),
        "max": state.max(axis=0),
        "mean_std": np.concatenate([state.mean(axis=0), state.std(axis=0)]),
    }[pooling]
    loaded = _hubert(model, layer=layer, pooling=pooling, unit_length=False)
    assert loaded.features([clip], 1, _ignore)[0] == pytest.approx(wanted, abs=1e-4)


def test_hubert_is_fed_at_its_own_rate_unless_as_published(model: Path) -> None:
    """At 48 kHz: resampled by default; fed as if it were 16 kHz, cut or padded to 30,000 samples, when asked for."""
    clip = sound(0.4, 48_000)
    samples, rate = decode_sound(clip)
    proper = _plain_states(model, resampled(samples, rate, 16_000))[-1]
    assert _hubert(model).features([clip], 1, _ignore)[0] == pytest.approx(_unit(proper.mean(axis=0)), abs=1e-5)
    published = _plain_states(model, np.pad(samples, (0, 30_000 - len(samples))))[-1]
    found = _hubert(model, as_published=True).features([clip, sound(0.9, 48_000)], 1, _ignore)
    assert found[0] == pytest.approx(_unit(published.mean(axis=0)), abs=1e-5)
    cut = _plain_states(model, decode_sound(sound(0.9, 48_000))[0][:30_000])[-1]
    assert found[1] == pytest.approx(_unit(cut.mean(axis=0)), abs=1e-5)


def test_hubert_padding_does_not_enter_the_mean(model: Path) -> None:
    """0.43 s are padded to 0.5 s; only frames of the clip are pooled."""
    clip = sound(0.43, 16_000)
    samples = decode_sound(clip)[0]
    state = _plain_states(model, np.pad(samples, (0, 8_000 - len(samples))))[-1]
    frames = int(_hubert(model).model._get_feat_extract_output_lengths(torch.tensor(len(samples))))
    assert frames < len(state)
    assert _hubert(model).features([clip], 1, _ignore)[0] == pytest.approx(_unit(state[:frames].mean(axis=0)), abs=1e-5)


@pytest.mark.parametrize("kind", ["Wav2Vec2", "WavLM"])
def test_relatives_of_hubert_load(tmp_path: Path, kind: str) -> None:
    loaded = _hubert(small_hubert(tmp_path / "model", kind))
    assert loaded.features([sound(0.3)], 1, _ignore).shape == (1, 32)


def test_missing_or_hostile_hubert_models_are_refused(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # what HF_HUB_OFFLINE=1 sets at import
    with pytest.raises(DataError, match=r"hf download facebook/hubert-base-ls960 --revision dba3.*extractor: logmel"):
        hubert.EXTRACTOR.load(hubert.HubertConfig(), CPU)
    with pytest.raises(ConfigError, match="revision: expected the 40 hex digits"):
        hubert.HubertConfig(revision="main")
    with pytest.raises(DataError, match=r"expected folder with config\.json"):
        _hubert(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="the model has 2 layers, found 7"):
        _hubert(model, layer=7)
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "config.json").write_text((model / "config.json").read_text())
    with pytest.raises(DataError, match=r"expected model\.safetensors, found no weights"):
        _hubert(pickled)
    (pickled / "pytorch_model.bin").write_bytes(b"a pickle that would run code")
    with pytest.raises(ChecksumMismatch, match=r"pytorch_model\.bin: expected weights with SHA-256 None, found [0-9a-f]{64}"):
        _hubert(pickled)
    with pytest.raises(ChecksumMismatch, match="expected weights with SHA-256 0622"):  # HuBERT-base's, the default
        hubert.EXTRACTOR.load(hubert.HubertConfig(model=str(model)), CPU)
    (pickled / "model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(DataError, match="is damaged or no model"):
        _hubert(pickled)


def test_hub_id_at_a_pinned_commit_is_found_offline(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(model, tmp_path / "models--some--hubert" / "snapshots" / commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    config = hubert.HubertConfig(model="some/hubert", revision=commit, digest=file_digest(model / "model.safetensors"))
    clip = sound(0.3)
    loaded = hubert.EXTRACTOR.load(config, CPU)
    assert (loaded.features([clip], 1, _ignore) == _hubert(model).features([clip], 1, _ignore)).all()
    (tmp_path / "models--some--hubert" / "snapshots" / commit / "model.safetensors").unlink()  # an interrupted download
    with pytest.raises(DataError, match="cannot be downloaded"):
        hubert.EXTRACTOR.load(config, CPU)


def test_pinned_pickle_loads_like_safetensors(model: Path, tmp_path: Path) -> None:
    """The published HuBERT-base is a pickle: it is opened when its digest is the pinned one."""
    from safetensors.torch import load_file

    (tmp_path / "config.json").write_text((model / "config.json").read_text())
    torch.save(load_file(model / "model.safetensors"), tmp_path / "pytorch_model.bin")
    loaded = _hubert(tmp_path, digest=file_digest(tmp_path / "pytorch_model.bin"))
    clip = sound(0.3)
    assert loaded.features([clip], 1, _ignore) == pytest.approx(_hubert(model).features([clip], 1, _ignore), abs=1e-6)


def test_model_of_another_family_is_refused(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    BertModel(
        BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=20)
    ).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="is a bert model: expected one of hubert, wav2vec2, wavlm"):
        _hubert(tmp_path)


def _slow_logmel(samples: np.ndarray) -> np.ndarray:
    """The same numbers frame by frame, with numpy and a filter bank of its own."""
    window = np.pad(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400), (56, 56))
    padded = np.pad(samples.astype(np.float64), 256)
    frames = np.stack([padded[s : s + 512] for s in range(0, len(samples) + 1, 160)])
    power = np.abs(np.fft.rfft(frames * window)) ** 2
    hertz = np.linspace(0, 8000, 257)
    mel = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), 66)
    corners = 700 * (10 ** (mel / 2595) - 1)
    bank = np.zeros((257, 64))
    for band in range(64):
        low, middle, high = corners[band : band + 3]
        bank[:, band] = np.maximum(0, np.minimum((hertz - low) / (middle - low), (high - hertz) / (high - middle)))
    logs = (np.log(power @ bank + 1e-6) + 6) / 4  # (frames, bands)
    n = len(logs)
    stretches = [logs[(k * n) // 8 : -((-(k + 1) * n) // 8)].mean(axis=0) for k in range(8)]
    return np.concatenate([np.stack(stretches, axis=1).ravel(), logs.std(axis=0), [np.log(len(samples) / 16_000)]])


def test_logmel_equals_a_plain_computation() -> None:
    clips = [sound(0.25, pitch=300), sound(0.61, pitch=900)]
    features = logmel.EXTRACTOR.load(logmel.LogMelConfig(), CPU).features(clips, 2, _ignore)
    assert features.shape == (2, 577)
    for row, clip in zip(features, clips, strict=True):
        assert row == pytest.approx(_slow_logmel(decode_sound(clip)[0]), abs=2e-3)


def test_facenet_sees_the_centre_of_the_image(tmp_path: Path) -> None:
    """160 of 178 × 218 pixels: 9 columns and 29 rows are cut on each side."""
    pixels = decode_image(picture())
    cut = facenet.centre_crop(pixels, 160)
    assert (cut == pixels[29:189, 9:169]).all()
    assert facenet.centre_crop(pixels, None).shape == (160, 160, 3)
    with pytest.raises(DataError, match="fewer than the crop of 200"):
        facenet.centre_crop(pixels, 200)


def test_facenet_equals_the_bare_network(tmp_path: Path) -> None:
    from facenet_pytorch import InceptionResnetV1
    from safetensors.torch import load_file

    weights = random_facenet(tmp_path)
    config = facenet.FaceNetConfig(weights=str(weights), digest=file_digest(weights), layer="embedding", components=0)
    loaded = facenet.EXTRACTOR.load(config, CPU)
    network = InceptionResnetV1(classify=False).eval()
    network.load_state_dict(load_file(weights))
    pixels = decode_image(picture())[29:189, 9:169]
    with torch.inference_mode():
        expected = network(torch.from_numpy((pixels.transpose(2, 0, 1)[None] - np.float32(127.5)) / np.float32(128)))
    assert loaded.features([picture()], 1, _ignore) == pytest.approx(expected.numpy(), abs=1e-5)
    assert loaded.weights_digest == file_digest(weights)


def test_facenet_weights_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    def load(**settings: Any) -> Any:
        return facenet.EXTRACTOR.load(facenet.FaceNetConfig(**settings), CPU)

    path = tmp_path / "weights.safetensors"
    with pytest.raises(DataError, match="expected file is missing"):
        load(weights=str(path), digest="0" * 64)
    path.write_bytes(b"a pickle that would run code")
    with pytest.raises(
        ConfigError, match=f"digest: expected the SHA-256 of .*, found none; if you trust it, set {file_digest(path)}"
    ):
        load(weights=str(path))
    with pytest.raises(ChecksumMismatch, match="expected SHA-256 0000"):
        load(weights=str(path), digest="0" * 64)
    with pytest.raises(DataError, match="no safetensors file"):
        load(weights=str(path), digest=file_digest(path))
    save_file({"other": torch.zeros(2)}, path)
    with pytest.raises(DataError, match="holds other tensors"):
        load(weights=str(path), digest=file_digest(path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # nobody answers there
    with pytest.raises(DataError, match=r"cannot be downloaded .* extractor\.facenet\.weights"):
        load()


def test_real_facenet_tells_people_apart() -> None:
    """Pairs of CelebA images of one person against pairs of two: the weights are real when AUC is at least 0.95."""
    raw = Path(os.environ.get("PASS_RAW_DATA", ""))
    weights, identities = raw / "facenet" / "inception_resnet_v1.safetensors", raw / "celeba" / "identity_CelebA.txt"
    if "PASS_RAW_DATA" not in os.environ or not weights.is_file() or not identities.is_file():
        pytest.skip("needs real weights: PASS_RAW_DATA with facenet/inception_resnet_v1.safetensors and celeba/")
    from sklearn.metrics import roc_auc_score

    by_person: dict[str, list[str]] = {}
    for line in identities.read_text().splitlines():
        image, person = line.split()
        by_person.setdefault(person, []).append(image)
    pairs = [images[:2] for images in by_person.values() if len(images) > 1][:150]
    payloads = [(raw / "celeba" / "img_align_celeba" / image).read_bytes() for pair in pairs for image in pair]
    config = facenet.FaceNetConfig(weights=str(weights), digest=file_digest(weights), layer="embedding", components=0)
    loaded = facenet.EXTRACTOR.load(config, CPU)
    first, second = loaded.features(payloads, 2, _ignore).reshape(len(pairs), 2, -1).swapaxes(0, 1)
    similarity = first @ second.T
    same = np.eye(len(pairs), dtype=bool)
    assert roc_auc_score(same.ravel(), similarity.ravel()) >= 0.95
