"""Results on disk: one JSON file per cell, named by its digest; a control's network beside it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from tasks.paper_tables.cells import Cell, CellResult, Control
from tasks.paper_tables.measure import AttributeScores
from tasks.storage.files import read_json, write_atomically, write_json


@dataclass(frozen=True, slots=True)
class Store:
    """The folder of results."""

    root: Path

    def path(self, cell: Cell | Control) -> Path:
        """The path of a cell's result."""
        return self.root / ("controls" if isinstance(cell, Control) else "cells") / f"{cell.digest}.json"

    def has(self, cell: Cell | Control) -> bool:
        return self.path(cell).exists()

    def note(self, cell: Cell | Control) -> Path:
        """The path of the note: when and where a cell was computed, and its MLflow run; it differs from run to run."""
        return self.path(cell).with_suffix(".note.json")

    def put(self, cell: Cell, result: CellResult) -> None:
        content = {"attributes": {name: asdict(scores) for name, scores in result.attributes.items()}}
        write_json(self.path(cell), content | {"curves": result.curves, "problem": result.problem, "recipe": cell.recipe()})

    def get(self, cell: Cell) -> CellResult:
        raw = read_json(self.path(cell))
        return CellResult(
            {name: AttributeScores(**scores) for name, scores in raw["attributes"].items()}, raw["curves"], raw["problem"]
        )

    def put_control(self, control: Control, network: dict[str, Tensor], accuracy: float) -> None:
        """Writes the network first: a result with its final name is complete."""
        path = self.path(control)
        with write_atomically(path.with_suffix(".safetensors")) as temporary:
            save_file(network, temporary)
        write_json(path, {"accuracy": accuracy, "recipe": control.recipe()})

    def get_control(self, control: Control) -> dict[str, Tensor]:
        network: dict[str, Tensor] = load_file(self.path(control).with_suffix(".safetensors"))
        return network

    def figures(self, cell: Cell | Control) -> dict[str, Any]:
        """The figures of a result, flat: `gender.attacker` -> 0.57."""
        if isinstance(cell, Control):
            return {"accuracy": read_json(self.path(cell))["accuracy"]}
        scores = self.get(cell).attributes.items()
        return {f"{name}.{key}": value for name, one in scores for key, value in asdict(one).items() if value is not None}
