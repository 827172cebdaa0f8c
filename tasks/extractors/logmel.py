"""Log-mel statistics of audio: no weights needed.

The clip at 16 kHz, 64 mel bands every 10 ms in decibel-like logs, averaged over 8 equal stretches of time, then the bands'
spread over time and the log of the duration: 8 × 64 + 64 + 1 = 577 numbers, shifted and scaled by constants to about ±1.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pass_core.checks import Checked, ranged
from pass_core.data import FloatArray
from tasks.extractors.base import Extractor, Finished, in_order
from tasks.payloads.payload import Payload, Payloads
from tasks.payloads.sounds import decode_sound, resampled, sound_seconds
from tasks.payloads.torch_repair import repair

CLIPS_AT_ONCE = 16  # their spectra fit the cache
FLOOR = 1e-6  # power below which a band counts as silent
MEAN, SCALE = -6.0, 4.0  # rough mean and scale of log power in speech


@dataclass(frozen=True, slots=True)
class LogMelConfig(Checked):
    """Mel bands, stretches of time and the sampling rate."""

    bands: int = ranged(64, at_least=8, at_most=128)
    segments: int = ranged(8, at_least=1, at_most=64)
    sampling_rate: int = ranged(16_000, at_least=8_000, at_most=192_000)


class LogMel:
    """The transforms."""

    weights_digest = ""

    def __init__(self, config: LogMelConfig, device: torch.device) -> None:
        repair()
        from torchaudio import transforms

        self._config, self._device = config, device
        self._window = config.sampling_rate // 40  # 25 ms
        self._hop = config.sampling_rate // 100  # 10 ms
        self._points = 1 << (self._window - 1).bit_length()
        self._spectrum: Any = transforms.Spectrogram(
            n_fft=self._points, win_length=self._window, hop_length=self._hop, power=None, center=False
        ).to(device)
        self._bands: Any = transforms.MelScale(config.bands, config.sampling_rate, n_stft=self._points // 2 + 1).to(device)

    def feature_shape(self, _payload: Payload) -> tuple[int, ...]:
        return (self._config.bands * (self._config.segments + 1) + 1,)

    def features(self, payloads: Payloads, workers: int, finished: Finished) -> FloatArray:
        """Transforms clips of similar length together, one thread per worker."""
        encoded = [bytes(data) for data in payloads]
        order = np.argsort([sound_seconds(data) for data in encoded], kind="stable")
        groups = [order[start : start + CLIPS_AT_ONCE] for start in range(0, len(order), CLIPS_AT_ONCE)]
        made = np.empty((len(encoded), *self.feature_shape(Payload("audio"))), dtype=np.float32)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # the workers are the threads
        try:
            work = in_order(groups, lambda group: self._transform([encoded[position] for position in group]), workers)
            for group, features in zip(groups, work, strict=True):
                made[group] = features
                finished(len(group))
        finally:
            torch.set_num_threads(threads)
        return made

    @torch.inference_mode()
    def _transform(self, encoded: list[bytes]) -> FloatArray:
        rate = self._config.sampling_rate
        clips = [torch.from_numpy(resampled(*decode_sound(data), rate)) for data in encoded]
        # Zeros around every clip, so that frames do not depend on the longer clips beside it.
        margin = self._points // 2
        batch = torch.zeros(len(clips), max(map(len, clips)) + 2 * margin)
        for row, clip in enumerate(clips):
            batch[row, margin : margin + len(clip)] = clip
        spectrum = self._spectrum(batch.to(self._device))
        power = spectrum.real.square() + spectrum.imag.square()  # faster than the root and its square
        logs = (torch.log(self._bands(power) + FLOOR) - MEAN) / SCALE  # (clips, bands, frames)
        frames = torch.tensor([1 + len(clip) // self._hop for clip in clips], device=self._device)
        pooled, spread = _stretches(logs, frames, self._config.segments)
        durations = torch.tensor([len(clip) / rate for clip in clips], device=self._device).log()
        features: FloatArray = torch.cat([pooled.flatten(1), spread, durations[:, None]], dim=1).cpu().numpy()
        return features


def _stretches(logs: torch.Tensor, frames: torch.Tensor, segments: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Means (clips, bands, segments) over equal stretches of each clip's own frames, and the spread (clips, bands) over all."""
    time = torch.arange(logs.shape[2], device=logs.device)[:, None]  # against (clips, frames, segments)
    steps = torch.arange(segments, device=logs.device)
    starts = (steps * frames[:, None] // segments)[:, None]
    ends = -(-(steps + 1) * frames[:, None] // segments)[:, None]  # stretches of a short clip overlap by a frame
    weights = ((time >= starts) & (time < ends)) / (ends - starts)
    overall = (time < frames[:, None, None]) / frames[:, None, None]
    mean = logs @ overall
    squares = (logs - mean).square() @ overall
    return logs @ weights, squares[:, :, 0].sqrt()


EXTRACTOR = Extractor(
    summary="audio: log-mel bands over time stretches, their spread, duration (577 numbers, no weights)",
    config_type=LogMelConfig,
    payloads=("audio",),
    load=LogMel,
)
