"""Classifiers of original records: accuracy without protection, and where attackers start."""

from pass_core.attacks.network import ATTACK, NetworkAdversary
from pass_core.data import Attribute
from pass_core.randomness import stream
from pass_core.statistics.nag import hits_of
from pass_core.training.networks import build_network, restored
from tasks.paper_tables.cells import Control, FeatureSet, OnShare, Store
from tasks.paper_tables.measure import Split, learn_control
from tasks.storage.parquet import FeatureTable, TableInfo, read_features


def compute_control(control: Control, features: FeatureSet, store: Store, report: OnShare) -> None:
    """Trains and stores the classifier."""
    name = control.attribute
    attribute = Attribute(name, TableInfo.load(features.folder).classes[name], "general")
    split = split_of(read_features(features.folder, (attribute,)), (attribute,))
    rng = stream(control.seed, "control", control.dataset, name)
    learnt = learn_control(split.train, attribute, control.config, rng, lambda epoch: report(epoch.number / epoch.total))
    hits = hits_of(learnt.probabilities(split.test.features), split.test.labels[name])
    store.put_control(control, learnt.network.state_dict(), float(hits.mean()))


def restore_control(control: Control, split: Split, store: Store) -> NetworkAdversary:
    """The stored classifier."""
    n_classes = next(a.n_classes for a in split.attributes if a.name == control.attribute)
    kind, shape = control.config.network, split.train.feature_shape
    build = lambda any_: build_network(kind, shape, n_classes, any_, ATTACK.widths)  # noqa: E731 (one line)
    return NetworkAdversary(restored(build, store.get_control(control)))


def split_of(table: FeatureTable, attributes: tuple[Attribute, ...]) -> Split:
    """The records in their published split."""
    return Split(attributes, table.subset(table.rows("train")), table.subset(table.rows("test")))
