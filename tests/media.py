"""Small images, sounds and models, made here: no test needs a download."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from PIL import Image

from pass_core.randomness import stream
from tasks.payloads.payload import Payload, PayloadKind, Payloads
from tasks.payloads.torch_repair import repair
from tasks.storage.files import file_digest


def sound(seconds: float = 0.5, rate: int = 16_000, pitch: float = 220.0, form: str = "WAV") -> bytes:
    """A tone with some noise, encoded."""
    time = np.arange(int(seconds * rate)) / rate
    noise = stream(1, "sound", str(pitch)).normal(0, 0.01, len(time))
    buffer = io.BytesIO()
    soundfile.write(buffer, 0.4 * np.sin(2 * np.pi * pitch * time) + noise, rate, format=form, subtype="PCM_16")
    return buffer.getvalue()


def picture(seed: int = 0, width: int = 178, height: int = 218, form: str = "JPEG", **options: Any) -> bytes:
    """A face-like blob on a coloured ground, encoded."""
    rng = stream(seed, "picture")
    y, x = np.mgrid[0:height, 0:width]
    oval = np.exp(-(((x - width / 2) / (width / 4)) ** 2) - ((y - height / 2) / (height / 3)) ** 2)
    pixels = rng.integers(0, 120, 3) + oval[..., None] * rng.integers(80, 130, 3) + rng.normal(0, 4, (height, width, 3))
    buffer = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(buffer, form, **options)
    return buffer.getvalue()


def small_payloads(kind: PayloadKind, n: int) -> tuple[Payload, Payloads]:
    """A few payloads of a kind, of different lengths and sizes where they may differ."""
    if kind == "image":
        return Payload("image"), [picture(seed) for seed in range(n)]
    if kind == "audio":
        return Payload("audio"), [sound(0.3 + 0.07 * k, pitch=200 + 60 * k) for k in range(n)]
    return Payload("vector", (2, 128)), stream(1, "payload").normal(size=(n, 2, 128)).astype(np.float32)


def small_hubert(folder: Path, kind: str = "Hubert", hidden: int = 32) -> Path:
    """A model of the family with few, random weights, in a folder as `transformers` writes it."""
    repair()
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        conv_dim=(32,) * 7,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    return folder


def random_facenet(folder: Path) -> Path:
    """InceptionResnetV1 with random weights, as a safetensors file."""
    repair()
    from facenet_pytorch import InceptionResnetV1
    from safetensors.torch import save_file

    torch.manual_seed(0)
    path = folder / "facenet.safetensors"
    save_file(InceptionResnetV1(classify=False).state_dict(), path)
    return path


def small_settings(extractor: str, folder: Path) -> Any:
    """Settings with which an extractor works here; one that needs weights gets random ones."""
    from pass_core import discovery
    from tasks import extractors

    config_type = discovery.load(extractors, extractor).EXTRACTOR.config_type
    if extractor == "hubert":
        model = small_hubert(folder / "hubert")
        return config_type(model=str(model), digest=file_digest(model / "model.safetensors"))
    if extractor == "facenet":
        weights = random_facenet(folder)
        return config_type(weights=str(weights), digest=file_digest(weights))
    return config_type()
