"""A table on the embedded data set that is computed in seconds."""

from pathlib import Path

import yaml

from tests.conftest import TINY, write_params

EFFORT = {
    "seeds": 2,
    "train": {"epochs": 2, "batch_size": 64, "learning_rate": 0.003},
    "control": {"epochs": 4, "batch_size": 64, "learning_rate": 0.003},
    "attack": {"epochs": 2, "batch_size": 64, "learning_rate": 0.003, "start": "originals", "draws": 2},
    "methods": {"PASS": {"settings": {"embedding_size": 32}}},
}
TABLE = {
    "title": "A tiny table",
    "setup": {
        "dataset": "synthetic_motion",
        "pool": {"donors": 64},
        "efforts": {"full": EFFORT, "quick": EFFORT | {"seeds": 1}},
    },
    "roles": {"private": ["gender", "id"], "useful": ["activity"]},
    "columns": ["gender", "id, protector", "id", "activity", "activity, un-finetuned", "mNAG"],
    "rows": [
        {"label": "Nothing", "method": "identity"},
        {
            "label": "PASS",
            "method": "pass_substitution",
            "paper": ["1.0±0.5 (57.0)", "0.0±0.0 (4.6)", "0.0±0.0 (4.6)", "98.1±0.3 (96.8)", "97.6±0.3 (96.5)", "97.6±0.3"],
        },
        {"label": "Too large", "method": "pass_substitution", "pool": {"donors": 100000}},
    ],
}


def write_table(folder: Path, name: str = "tiny", **changes: object) -> Path:
    """The table in a file; `changes` replace whole parts."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(TABLE | changes, sort_keys=False))
    return path


def write_project(folder: Path) -> Path:
    """params.yaml with what a bench reads, and where it tracks."""
    tracking = {"enabled": True, "store": "mlflow", "experiment": "bench"}
    motionsense = {"private": ["gender", "id"], "useful": ["activity"]}
    return write_params(folder, tracking=tracking, dataset=TINY["dataset"] | {"motionsense": motionsense})
