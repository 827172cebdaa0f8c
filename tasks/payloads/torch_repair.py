"""Makes torchvision and torchaudio importable beside a CPU-only torch; does nothing on a healthy installation.

The packages on PyPI are CUDA builds. Beside a CPU torch their compiled parts do not load, and then neither import, nor do
facenet_pytorch and transformers, which only want their Python parts. Call `repair()` before importing any of them.
"""

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from pass_core.errors import ConfigError

_kept_alive: list[torch.library.Library] = []  # a collected Library takes its operators with it


def repair() -> dict[str, str]:
    """Imports both packages, repaired where needed; returns per package whether it was healthy or repaired."""
    return {
        "torchvision": _import_or_repair("torchvision", RuntimeError, _define_torchvision_operators),
        "torchaudio": _import_or_repair("torchaudio", OSError, _stub_torchaudio_extension),
    }


def _import_or_repair(name: str, symptom: type[Exception], cure: Callable[[], None]) -> str:
    if name in sys.modules:
        return "loaded before"
    try:
        importlib.import_module(name)
    except symptom:
        for module in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
            del sys.modules[module]  # half-imported: the next import starts afresh
        cure()
        try:
            importlib.import_module(name)
        except (symptom, ImportError) as error:
            found = f"{name} does not load beside torch {torch.__version__}: {error}"
            raise ConfigError(f"{found}; reinstall matching builds") from error
        return "repaired (compiled parts are off)"
    except ImportError as error:
        raise ConfigError(f"{name} is not installed: run `pip install -e .` again ({error})") from error
    return "healthy"


def _define_torchvision_operators() -> None:
    """torchvision registers fake versions of its operators at import, which fails when there are no operators."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", non_maximum_suppression, "CPU")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept_alive.append(library)


def non_maximum_suppression(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Indices of boxes (x1, y1, x2, y2) kept, best score first: each overlaps no better one by more than the threshold."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    remaining = scores.argsort(descending=True)
    kept = []
    while len(remaining):
        best, remaining = remaining[0], remaining[1:]
        kept.append(best)
        corner_low = torch.maximum(boxes[best, :2], boxes[remaining, :2])
        corner_high = torch.minimum(boxes[best, 2:], boxes[remaining, 2:])
        overlap = (corner_high - corner_low).clamp_min(0).prod(dim=1)
        remaining = remaining[overlap <= iou_threshold * (areas[best] + areas[remaining] - overlap)]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)


def _stub_torchaudio_extension() -> None:
    """torchaudio loads its compiled parts in `_extension`; resampling and mel features need none of them."""
    stub: Any = types.ModuleType("torchaudio._extension")
    stub._IS_TORCHAUDIO_EXT_AVAILABLE = False  # noqa: SLF001 (the name torchaudio reads)
    stub._load_lib = lambda _name: False  # noqa: SLF001
    stub.fail_if_no_align = lambda function: function
    sys.modules["torchaudio._extension"] = stub
