"""OpenVINO on the CPU: the same network, compiled for this processor.

Every stream is one thread. Images go through in passes of a fixed number of rows: a record's outputs depend neither on the number
of threads nor on the records beside it.
"""

import contextlib
import io
import logging
import queue
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from pass_core.errors import ConfigError, DataError
from tasks.extractors.base import Job, in_order
from tasks.extractors.engines.quantised import Quantised

ROWS = 8  # of a pass: what it computes stays in the processor's cache
Requests = queue.SimpleQueue[Any]  # of a compiled network: each is used by one thread at a time


class OpenVinoEngine:
    """A network that is converted at its first use, and compiled for a number of workers."""

    def __init__(
        self,
        network: torch.nn.Module,
        example: torch.Tensor,
        precision: str,
        *,
        setting: str,
        any_length: bool = False,
        transformer: bool = False,
    ) -> None:
        """`any_length`: inputs differ in length; `transformer`: int8 leaves attention's sensitive parts as they are."""
        self._network, self._example, self._precision, self._setting = network, example, precision, setting
        self._any_length, self._transformer = any_length, transformer
        self._compiled: dict[int, Requests] = {}
        self.quantised: Quantised | None = None

    def outputs(self, jobs: Iterable[Job], prepare: Callable[[Job], torch.Tensor], workers: int) -> Iterator[torch.Tensor]:
        """Each worker prepares inputs and passes them through a stream of its own."""
        if workers not in self._compiled:
            self._compiled[workers] = self._compile(workers)
        requests = self._compiled[workers]
        return in_order(jobs, lambda job: self._pass(prepare(job), requests), workers)

    def calibrate(self, inputs: Iterable[torch.Tensor]) -> Quantised:
        """Ranges of activations by post-training quantisation of NNCF."""
        silence_telemetry()
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():  # its progress bars
            warnings.simplefilter("ignore")
            import nncf

            logging.getLogger("nncf").setLevel(logging.ERROR)  # its own function sets the level of everybody's handlers
            examples = [one.numpy() for one in inputs]
            kind = nncf.ModelType.TRANSFORMER if self._transformer else None
            model = self._converted(rows=1)
            quantised = nncf.quantize(model, nncf.Dataset(examples), subset_size=len(examples), model_type=kind)
        self.quantised = Quantised.of(quantised)
        return self.quantised

    def _pass(self, inputs: torch.Tensor, requests: Requests) -> torch.Tensor:
        request = requests.get()
        try:
            if self._any_length:
                return torch.from_numpy(request.infer([inputs.numpy()], share_inputs=True)[0])
            outputs = []
            for part in inputs.split(ROWS):
                missing = part.new_zeros(ROWS - len(part), *part.shape[1:])
                whole = torch.cat([part, missing]) if len(missing) else part
                outputs.append(torch.from_numpy(request.infer([whole.numpy()], share_inputs=True)[0][: len(part)]))
            return torch.cat(outputs)
        finally:
            requests.put(request)

    def _compile(self, workers: int) -> Requests:
        silence_telemetry()
        import openvino

        if self._precision == "int8":
            if self.quantised is None:
                raise DataError(f"{self._setting}: expected a calibrated int8 network, found none; run extract again")
            model = self.quantised.model()
            self._reshape(model, ROWS)
        else:
            model = self._converted(ROWS)
        half = self._precision == "bfloat16"
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if half else "f32",
            "INFERENCE_NUM_THREADS": workers,
            "NUM_STREAMS": workers,
            "ENABLE_CPU_PINNING": False,  # processes with fewer threads than cores would all choose the same cores
        }
        compiled = openvino.Core().compile_model(model, "CPU", settings)
        if half and compiled.get_property("INFERENCE_PRECISION_HINT") != openvino.Type.bf16:
            expected = "expected a processor that computes in bfloat16, found one that does not"
            raise ConfigError(f"{self._setting}.precision: {expected}; set engine: torch, or another precision for all steps")
        requests: Requests = queue.SimpleQueue()
        for _ in range(workers):
            requests.put(compiled.create_infer_request())
        return requests

    def _converted(self, rows: int) -> Any:
        silence_telemetry()
        import openvino

        with warnings.catch_warnings():  # about branches that the conversion follows once
            warnings.simplefilter("ignore")
            model = openvino.convert_model(self._network, example_input=self._example)
        self._reshape(model, rows)
        return model

    def _reshape(self, model: Any, rows: int) -> None:
        if not self._any_length:
            model.reshape([rows, *self._example.shape[1:]])


def silence_telemetry() -> None:
    """Keeps OpenVINO and NNCF from reporting their use to Google Analytics: both do without this package of theirs."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type] # None: its import fails
