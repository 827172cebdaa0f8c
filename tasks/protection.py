"""What training, substitution and audit share: a trained protector and the pool it draws from."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from pass_core.data import Attribute, Records
from pass_core.methods.base import Fitted, Setting
from tasks.lake import FEATURES, TableInfo, array_of, labels_of, read_folder
from tasks.models import load_model, model_digest
from tasks.storage import digest


@dataclass(frozen=True, slots=True)
class Protector:
    """A trained protector with the pool it draws from."""

    fitted: Fitted
    pool: pa.Table
    pool_digest: str
    model_digest: str
    info: TableInfo


def read_setting(pool: Path, attributes: tuple[Attribute, ...], device: torch.device) -> Setting:
    """The donors as training sees them."""
    info = TableInfo.load(pool)
    table = read_folder(pool, [FEATURES, *(a.name for a in attributes)])
    return Setting(attributes, Records(array_of(table, FEATURES, info.feature_shape), labels_of(table, attributes)), device)


def read_protector(model: Path, pool: Path, attributes: tuple[Attribute, ...], device: torch.device) -> Protector:
    """The protector in `model`, checked against the pool."""
    pool_digest = digest(pool)
    fitted = load_model(model, read_setting(pool, attributes, device), pool_digest)
    return Protector(fitted, read_folder(pool), pool_digest, model_digest(model), TableInfo.load(pool))
