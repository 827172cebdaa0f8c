"""Which of the processor's instructions make a precision fast, and how much faster extraction is with them."""

import importlib.metadata
import importlib.util
from pathlib import Path

INSTRUCTIONS = {  # without them a precision works and gains little or nothing
    "bfloat16": ("avx512_bf16", "amx_bf16"),
    "int8": ("avx512_vnni", "avx_vnni", "amx_int8"),
}
GAIN = {"float32": "1.5", "bfloat16": "2.7", "int8": "5"}  # of OpenVINO for FaceNet, against torch in float32: docs/results.md


def describe() -> str:
    """What this machine offers extraction, and what it would gain."""
    installed = importlib.util.find_spec("openvino") is not None
    found = f"openvino {importlib.metadata.version('openvino')}" if installed else "no openvino (`pip install '.[fast]'`)"
    parts = [f"float32 about {GAIN['float32']} times as fast as torch"]
    for precision in INSTRUCTIONS:
        names = fast_instructions(precision)
        parts.append(
            f"{precision} about {GAIN[precision]} times ({', '.join(names)})"
            if names
            else f"{precision} little (no instructions)"
        )
    return f"{found}; with it FaceNet gains here: {', '.join(parts)}; default: torch, float32 (docs/datasets.md)"


def fast_instructions(precision: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """The instructions of this processor that make a precision fast; none where the system does not list them."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return tuple(name for name in INSTRUCTIONS.get(precision, ()) if name in flags)
