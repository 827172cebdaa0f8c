"""Which training records become donors: read from a folder of features, chosen by `pass_core.channel.pool`."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from pass_core.channel.pool import Column, PoolConfig, sample_pool
from pass_core.data import IntArray, shown_classes
from pass_core.training.held_out import learnt_from
from tasks.storage.parquet import BLOCK, PERSON, SPLIT, TableInfo, class_indices, read_folder


def choose_donors(
    features: Path,
    useful: tuple[str, ...],
    config: PoolConfig,
    share: float,
    share_rng: np.random.Generator,
    rng: np.random.Generator,
) -> IntArray:
    """Rows of the donors in the folder; they come from the share of the training records that the protector may know."""
    info = TableInfo.load(features)
    table = read_folder(features, [SPLIT, PERSON, BLOCK, *info.classes])
    train = np.flatnonzero(np.array(table.column(SPLIT).to_pylist()) == "train").astype(np.int64)
    blocks = np.unique(np.array(table.column(BLOCK).to_pylist()), return_inverse=True)[1]
    train = learnt_from(train, blocks[train], share, share_rng)
    persons = table.column(PERSON).to_pylist()
    attributes = {name: _column(table, name, classes, train, persons) for name, classes in info.classes.items()}
    chosen: IntArray = train[sample_pool(attributes, useful, len(train), config, rng)]
    return chosen


def _column(table: pa.Table, name: str, classes: tuple[str, ...], train: IntArray, persons: list[str]) -> Column:
    labels = class_indices(table, name, classes)
    return Column(classes, labels[train], shown_classes(classes, labels, persons))
