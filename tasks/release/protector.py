"""What training, substitution and audit share: a trained protector and the pool it draws from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from pass_core.channel.draws import inverse_cdf, keyed_words
from pass_core.channel.pool import Forbidden
from pass_core.channel.substitution import Channel, ExcludingChannel, Exclusion
from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.methods.base import Fitted, ReleaseContext
from tasks.running.step_io import RunKey
from tasks.storage.files import digest
from tasks.storage.models import load_model, model_digest
from tasks.storage.parquet import FEATURES, PERSON, RECORD_ID, FeatureTable, TableInfo, array_of, labels_of, read_folder

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


def draw_scope(key: RunKey, model: str, forbid: Forbidden) -> tuple[str, ...]:
    """What the draw of a record depends on beside the secret key and the record's id."""
    return (key.dataset, model, *(() if forbid == "none" else (forbid,)))


def order_scope(key: RunKey, model: str, split: str, forbid: Forbidden) -> tuple[str, ...]:
    """What the order of a release depends on: two releases in one order would be two draws of the same records, side by side."""
    return (key.dataset, str(key.method), model, split, *(() if forbid == "none" else (forbid,)))


def exclusion_of(features: FeatureTable, rows: IntArray, pool: pa.Table, forbid: Forbidden) -> Exclusion | None:
    """Which donors are out of the question for these records under a rule; None when none is."""
    if forbid == "none":
        return None
    names = features.record_ids if forbid == "self" else features.persons
    return exclusion_among([names[row] for row in rows], donor_units(pool, forbid))


def donor_units(pool: pa.Table, forbid: Forbidden) -> list[str]:
    """What a rule goes by: the donors' own names, or their persons'."""
    units: list[str] = pool.column(RECORD_ID if forbid == "self" else PERSON).to_pylist()
    return units


def exclusion_among(names: Sequence[str], donors: Sequence[str]) -> Exclusion:
    """Records and donors of one name may not meet."""
    number = {name: k for k, name in enumerate(dict.fromkeys(donors))}
    record_units = np.array([number.get(name, -1) for name in names], dtype=np.int64)  # -1: no donor has this name
    return Exclusion(record_units, np.array([number[name] for name in donors], dtype=np.int64))


def draw_donors(
    channel: Channel,
    features: FloatArray,
    record_ids: Sequence[str],
    key: bytes,
    scope: tuple[str, ...],
    finished: Callable[[int], None],
) -> IntArray:
    """The donor of every record: a keyed function of its id, the data set and the model; `finished` is told how many are done."""
    donors: IntArray = np.empty(len(features), dtype=np.int64)
    for rows, probabilities in channel.blocks(features):
        donors[rows] = inverse_cdf(probabilities, keyed_words(key, "draw", scope, record_ids[rows]))
        finished(rows.stop)
    return donors


def read_setting(pool: Path, attributes: tuple[Attribute, ...], device: torch.device) -> ReleaseContext:
    """The donors as training sees them."""
    info = TableInfo.load(pool)
    table = read_folder(pool, [FEATURES, *(a.name for a in attributes)])
    return ReleaseContext(
        attributes, Records(array_of(table, FEATURES, info.feature_shape), labels_of(table, attributes)), device
    )


def read_protector(model: Path, pool: Path, attributes: tuple[Attribute, ...], device: torch.device) -> Protector:
    """The protector in `model`, checked against the pool."""
    pool_digest = digest(pool)
    fitted = load_model(model, read_setting(pool, attributes, device), pool_digest)
    return Protector(fitted, read_folder(pool), pool_digest, model_digest(model), TableInfo.load(pool))
