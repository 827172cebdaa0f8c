"""HuBERT, wav2vec2 or WavLM from the Hugging Face hub or a local folder; one vector per clip.

The defaults are the paper's recipe: HuBERT-base at its own sampling rate, last layer, mean over time, unit length, no
normalisation of the waveform. `as_published: true` repeats how the paper's features were really made: 48-kHz samples read as
16-kHz ones, cut or padded with zeros to 30,000.
"""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError

from pass_core.checks import ranged
from pass_core.data import FloatArray, IntArray
from pass_core.errors import ChecksumMismatch, ConfigError, DataError
from tasks.extractors.base import Extractor, Finished
from tasks.extractors.engines.base import NetworkConfig, make_engine
from tasks.extractors.engines.quantised import Quantised
from tasks.payloads.payload import Payload, Payloads
from tasks.payloads.sounds import decode_sound, resampled, sound_seconds
from tasks.payloads.torch_repair import repair
from tasks.storage.files import file_digest, read_json

HUBERT_BASE = "facebook/hubert-base-ls960"
HUBERT_BASE_REVISION = "dba3bb02fda4248b6e082697eee756de8fe8aa8a"
# That revision has a pickle only; it is opened because its digest is pinned here.
HUBERT_BASE_DIGEST = "062249fffb353eab67547a2fbc129f7c31a2f459faf641b19e8fb007cc5c48ad"
MODEL_TYPES = ("hubert", "wav2vec2", "wavlm")
FILES = ["config.json", "preprocessor_config.json", "*.safetensors", "pytorch_model.bin"]
PUBLISHED_RATE, PUBLISHED_SAMPLES = 48_000, 30_000
POOLINGS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {  # (frames, hidden) -> one vector
    "mean": lambda frames: frames.mean(dim=0),
    "max": lambda frames: frames.amax(dim=0),
    "mean_std": lambda frames: torch.cat([frames.mean(dim=0), frames.std(dim=0, correction=0)]),
}
GRID_SECONDS = 0.1  # clips are padded to a multiple of this, whatever the other clips of the batch


@dataclass(frozen=True, slots=True, kw_only=True)
class HubertConfig(NetworkConfig):
    """Which model and layer, and how one vector is made of it."""

    model: str = HUBERT_BASE  # a hub id, or a local folder
    revision: str | None = HUBERT_BASE_REVISION  # the commit of a hub id
    digest: str | None = HUBERT_BASE_DIGEST  # SHA-256 of the weights; required for every model
    layer: int = -1  # of the hidden states: 0 is the transformer's input, -1 the last layer
    pooling: Literal["mean", "max", "mean_std"] = "mean"
    unit_length: bool = True
    normalise_waveform: bool = False  # to mean 0, variance 1, as models with layer-normed feature encoders need
    as_published: bool = False
    batch_seconds: float = ranged(16.0, above=0)  # of audio per batch

    def __post_init__(self) -> None:
        NetworkConfig.__post_init__(self)
        if not _is_folder(self.model) and not re.fullmatch(r"[0-9a-f]{40}", self.revision or ""):
            raise ConfigError(f"revision: expected the 40 hex digits of a commit of {self.model}, or a local folder as model")

    def check_files(self) -> None:
        """Raises a PassError when the engine or the pinned weights of a local model are missing; called before a run."""
        self.check_engine()
        if _is_folder(self.model):
            _checked_digest(_model_folder(self), self.digest)


class Hubert:
    """The network, with the sampling rate of its training."""

    def __init__(self, config: HubertConfig, device: torch.device) -> None:
        folder, self._config = _model_folder(config), config
        self.weights_digest = _checked_digest(folder, config.digest)
        self.model, self._rate = _load_model(folder, config)
        network, example = HiddenStates(self.model, config.layer), torch.zeros(2, self._rate // 2)
        lengths = {"any_length": True, "transformer": True}
        self.engine = make_engine(network, example, config, device, setting="extractor.hubert", **lengths)

    def feature_shape(self, _payload: Payload) -> tuple[int, ...]:
        return (self.model.config.hidden_size * (2 if self._config.pooling == "mean_std" else 1),)

    def features(self, payloads: Payloads, workers: int, finished: Finished) -> FloatArray:
        encoded = [bytes(data) for data in payloads]
        batches = list(self._batches(encoded))
        made = np.empty((len(encoded), *self.feature_shape(Payload("audio"))), dtype=np.float32)
        samples = np.empty(len(encoded), dtype=np.int64)

        def prepare(batch: IntArray) -> torch.Tensor:
            clips = [self._waveform(encoded[position]) for position in batch]
            samples[batch] = [len(clip) for clip in clips]
            return self._together(clips)

        for batch, states in zip(batches, self.engine.outputs(batches, prepare, workers), strict=True):
            made[batch] = self._pooled(states, samples[batch])
            finished(len(batch))
        return made

    def calibrate(self, payloads: Payloads) -> Quantised:
        """Makes the network's int8 form from these clips."""
        return self.engine.calibrate(self._together([self._waveform(bytes(data))]) for data in payloads)

    def _batches(self, encoded: list[bytes]) -> Iterable[IntArray]:
        """Positions of clips that are padded to the same length, at most `batch_seconds` of them together."""
        published = PUBLISHED_SAMPLES / self._rate if self._config.as_published else None
        lengths = np.array([published or _padded(sound_seconds(data)) for data in encoded]).round(6)
        for length in np.unique(lengths):
            positions = np.flatnonzero(lengths == length)
            at_once = max(1, int(self._config.batch_seconds / length))
            for start in range(0, len(positions), at_once):
                yield positions[start : start + at_once]

    def _waveform(self, data: bytes) -> FloatArray:
        samples, rate = decode_sound(data)
        if self._config.as_published:
            samples = resampled(samples, rate, PUBLISHED_RATE)[:PUBLISHED_SAMPLES]
            return np.pad(samples, (0, PUBLISHED_SAMPLES - len(samples)))
        samples = resampled(samples, rate, self._rate)
        if self._config.normalise_waveform:
            samples = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
        return samples.astype(np.float32, copy=False)

    def _together(self, clips: list[FloatArray]) -> torch.Tensor:
        """Padding is zeros without a mask, as these models were trained."""
        longest = round(_padded(max(map(len, clips)) / self._rate) * self._rate)
        batch = torch.zeros(len(clips), PUBLISHED_SAMPLES if self._config.as_published else longest)
        for row, clip in enumerate(clips):
            batch[row, : len(clip)] = torch.from_numpy(clip)
        return batch

    @torch.inference_mode()
    def _pooled(self, states: torch.Tensor, samples: IntArray) -> FloatArray:
        """Frames of padding do not enter the pooling."""
        frames = self.model._get_feat_extract_output_lengths(  # noqa: SLF001 (the model's own arithmetic of its strides)
            torch.from_numpy(samples)
        ).clamp(1, states.shape[1])
        pooled = torch.stack([POOLINGS[self._config.pooling](states[row, : int(n)].float()) for row, n in enumerate(frames)])
        if self._config.unit_length:
            pooled = torch.nn.functional.normalize(pooled, dim=1)
        features: FloatArray = pooled.cpu().numpy()
        return features


class HiddenStates(torch.nn.Module):
    """The network from waveforms (n, samples) to the hidden states (n, frames, hidden) of a layer."""

    def __init__(self, model: torch.nn.Module, layer: int) -> None:
        super().__init__()
        self.model, self._layer = model, layer

    def forward(self, waveforms: torch.Tensor) -> torch.Tensor:
        output = self.model(waveforms, output_hidden_states=self._layer != -1)
        states: torch.Tensor = output.last_hidden_state if self._layer == -1 else output.hidden_states[self._layer]
        return states


def _padded(seconds: float) -> float:
    return max(1.0, float(np.ceil(seconds / GRID_SECONDS - 1e-9))) * GRID_SECONDS


def _is_folder(model: str) -> bool:
    return model.startswith((".", "/", "~")) or Path(model).is_dir()


def _model_folder(config: HubertConfig) -> Path:
    """A local folder with the model's files; a hub id is looked up in the cache, then on the hub."""
    if _is_folder(config.model):
        folder = Path(config.model).expanduser()
        if not folder.is_dir():
            expected = "expected folder with config.json and model.safetensors is missing"
            raise DataError(f"{folder}: {expected}; correct extractor.hubert.model")
        return folder
    from huggingface_hub import snapshot_download

    failure = "no weights among its files"
    for local_only in (True, False):  # a pinned commit does not change: a local copy needs no download
        try:
            folder = Path(
                snapshot_download(config.model, revision=config.revision, allow_patterns=FILES, local_files_only=local_only)
            )
        except Exception as error:  # noqa: BLE001
            failure = type(error).__name__  # offline, behind a proxy, no such repository: the advice is the same
        else:
            if _weights(folder):  # else the download was interrupted
                return folder
    raise DataError(
        f"model {config.model} at revision {config.revision} is not on this machine and cannot be downloaded "
        f"({failure}). Where there is internet, run `hf download {config.model} --revision {config.revision} "
        "--local-dir FOLDER`, bring the folder here and set extractor.hubert.model to it; or use `extractor: logmel`, which "
        "needs no weights"
    )


def _weights(folder: Path) -> list[Path]:
    """The files that hold the weights: safetensors, or else a pickle."""
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model.bin"))


def _checked_digest(folder: Path, pinned: str | None) -> str:
    """The pinned SHA-256 of the weights: other weights give other features, and a pickle can run code."""
    files = _weights(folder)
    if not files:
        raise DataError(f"{folder}: expected model.safetensors, found no weights; get the right folder")
    digests = [file_digest(file) for file in files]
    found = digests[0] if len(files) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()
    if found != pinned:
        expected = f"expected weights with SHA-256 {pinned}, found {found}"
        raise ChecksumMismatch(f"{files[0]}: {expected}; if you trust them, write that under extractor.hubert.digest")
    return found


def _load_model(folder: Path, config: HubertConfig) -> tuple[Any, int]:
    """The model without its head, and its sampling rate."""
    repair()
    from transformers import AutoConfig, AutoModel

    safe, offline = _weights(folder)[0].suffix == ".safetensors", {"trust_remote_code": False, "local_files_only": True}
    try:
        description = AutoConfig.from_pretrained(folder, **offline)
        if description.model_type not in MODEL_TYPES:
            expected = f"expected one of {', '.join(MODEL_TYPES)}"
            raise ConfigError(f"{folder}: is a {description.model_type} model: {expected}; correct extractor.hubert.model")
        if not -description.num_hidden_layers - 1 <= config.layer <= description.num_hidden_layers:
            found = f"the model has {description.num_hidden_layers} layers, found {config.layer}"
            raise ConfigError(f"extractor.hubert.layer: {found}; choose one of them, or -1 for the last")
        model = AutoModel.from_pretrained(folder, config=description, use_safetensors=safe, dtype=torch.float32, **offline)
    except ConfigError:
        raise
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise DataError(f"{folder}: is damaged or no model for transformers ({type(error).__name__}); get it again") from None
    preparation = folder / "preprocessor_config.json"
    rate = int(read_json(preparation).get("sampling_rate", 16_000)) if preparation.is_file() else 16_000
    return model, rate


EXTRACTOR = Extractor(
    summary="audio: HuBERT, wav2vec2 or WavLM, one vector per clip (weights from the hub or a local folder)",
    config_type=HubertConfig,
    without_effect=("model", "revision", "digest", "batch_seconds"),
    payloads=("audio",),
    load=Hubert,
)
