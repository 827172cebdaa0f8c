"""Classifiers of original records: how well attributes are told without protection, and where attackers start."""

import torch

from pass_core.attacks.network import ATTACK, NetworkAdversary
from pass_core.data import Attribute
from pass_core.randomness import stream
from pass_core.statistics.nag import hits_of
from pass_core.training.networks import build_network
from tasks.paper_tables.cells import Control, FeatureSet, OnShare
from tasks.paper_tables.measure import Split, learn_control
from tasks.paper_tables.store import Store
from tasks.storage.parquet import FeatureTable, TableInfo, read_features


def compute_control(control: Control, features: FeatureSet, store: Store, tell: OnShare) -> None:
    """Learns the classifier and keeps it."""
    name = control.attribute
    attribute = Attribute(name, TableInfo.load(features.folder).classes[name], "general")
    split = split_of(read_features(features.folder, (attribute,)), (attribute,))
    rng = stream(control.seed, "control", control.dataset, name)
    learnt = learn_control(split.train, attribute, control.config, rng, lambda epoch: tell(epoch.number / epoch.total))
    hits = hits_of(learnt.probabilities(split.test.features), split.test.labels[name])
    store.put_control(control, learnt.network.state_dict(), float(hits.mean()))


def restore_control(control: Control, split: Split, store: Store) -> NetworkAdversary:
    """The classifier again."""
    n_classes = next(a.n_classes for a in split.attributes if a.name == control.attribute)
    # The weights drawn here are overwritten at once; any generator does.
    anyhow = torch.Generator().manual_seed(0)
    network = build_network(control.config.network, split.train.feature_shape, n_classes, anyhow, ATTACK.widths)
    network.load_state_dict(store.get_control(control))
    return NetworkAdversary(network)


def split_of(table: FeatureTable, attributes: tuple[Attribute, ...]) -> Split:
    """The records as published: to learn from, and to score on."""
    return Split(attributes, table.subset(table.rows("train")), table.subset(table.rows("test")))
