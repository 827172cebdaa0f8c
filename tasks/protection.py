"""What training, substitution and audit share: a trained protector and the pool it draws from."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from pass_core.data import Attribute, IntArray, Records
from pass_core.methods.base import Fitted, Setting
from pass_core.pool import Forbidden
from pass_core.substitution import Channel, ExcludingChannel, Exclusion
from tasks.lake import FEATURES, PERSON, RECORD_ID, FeatureTable, TableInfo, array_of, labels_of, read_folder
from tasks.models import load_model, model_digest
from tasks.step_io import Key
from tasks.storage import digest

STAMP = "reproducible experiment: the draw key comes from the seed in params.yaml; not for release"


@dataclass(frozen=True, slots=True)
class Protector:
    """A trained protector with the pool it draws from."""

    fitted: Fitted
    pool: pa.Table
    pool_digest: str
    model_digest: str
    info: TableInfo

    def channel_for(self, features: FeatureTable, rows: IntArray, forbid: Forbidden) -> Channel | None:
        """The channel for these records: without themselves or their own person, where that is forbidden."""
        channel, exclusion = self.fitted.channel, exclusion_of(features, rows, self.pool, forbid)
        return channel if channel is None or exclusion is None else ExcludingChannel(channel, exclusion)


def draw_scope(key: Key, model: str, forbid: Forbidden) -> tuple[str, ...]:
    """What the draw of a record depends on beside the secret key and the record's id."""
    return (key.dataset, model, *(() if forbid == "none" else (forbid,)))


def order_scope(key: Key, model: str, split: str, forbid: Forbidden) -> tuple[str, ...]:
    """What the order of a release depends on: two releases in one order would be two draws of the same records, side by side."""
    return (key.dataset, str(key.method), model, split, *(() if forbid == "none" else (forbid,)))


def exclusion_of(features: FeatureTable, rows: IntArray, pool: pa.Table, forbid: Forbidden) -> Exclusion | None:
    """Which donors are out of the question for these records under a rule; None when none is."""
    if forbid == "none":
        return None
    column = RECORD_ID if forbid == "self" else PERSON
    names = features.record_ids if forbid == "self" else features.persons
    donors = pool.column(column).to_pylist()
    _, units = np.unique([*(names[row] for row in rows), *donors], return_inverse=True)
    return Exclusion(units[: len(rows)], units[len(rows) :])


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
