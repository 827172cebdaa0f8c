"""A trained protector with the pool it draws from, as training, substitution and audit use it."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from pass_core.channel.pool import Forbidden
from pass_core.channel.substitution import Channel, channel_of_records
from pass_core.data import Attribute, IntArray, Records
from pass_core.errors import ChecksumMismatch
from pass_core.methods.base import Fitted, ReleaseContext
from pass_core.storage.models import describe_model, restore_model
from tasks.release.draw import exclusion_of
from tasks.storage.files import digest
from tasks.storage.parquet import FEATURES, FeatureTable, TableInfo, array_of, labels_of, read_folder

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
        """The channel for these records, without the donors that a rule excludes; None for methods that make new records."""
        if self.fitted.channel is None:
            return None
        exclusion = exclusion_of(features, rows, self.pool, forbid)
        return channel_of_records(self.fitted.channel, features.subset(rows).labels, exclusion)


def read_setting(pool: Path, attributes: tuple[Attribute, ...], device: torch.device) -> ReleaseContext:
    """The donors as training sees them."""
    info = TableInfo.load(pool)
    table = read_folder(pool, [FEATURES, *(a.name for a in attributes)])
    donors = Records(array_of(table, FEATURES, info.feature_shape), labels_of(table, attributes))
    return ReleaseContext(attributes, donors, device)


def read_protector(model: Path, pool: Path, attributes: tuple[Attribute, ...], device: torch.device) -> Protector:
    """The protector in `model`; rejected when it was trained for another pool, or is damaged."""
    if describe_model(model)["pool_digest"] != digest(pool):
        raise ChecksumMismatch(f"{model}: expected the pool that it was trained for, found another; run train again")
    fitted = restore_model(model, read_setting(pool, attributes, device))
    donors, info = read_folder(pool), TableInfo.load(pool)
    return Protector(fitted, donors, digest(pool), digest(model), info)  # digests last: they name the bytes that were read
