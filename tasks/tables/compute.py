"""Computing a cell, in whatever process: from features on disk to a result in the store."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import pass_core.methods
from pass_core import discovery
from pass_core.attacks.network import ATTACK, NetworkAdversary, NetworkConfig
from pass_core.data import Attribute
from pass_core.epochs import Epoch, OnEpoch
from pass_core.errors import ConfigError, DataError, MethodError
from pass_core.methods.base import Fitted, Method, Setting
from pass_core.networks import build_network
from pass_core.randomness import stream
from pass_core.run import Run
from pass_core.validation import learnt_from
from tasks.donor_choice import choose_donors
from tasks.lake import FeatureTable, TableInfo, read_features
from tasks.numerics import fixed_numerics
from tasks.storage import rounded
from tasks.tables.cells import Cell, Control, FeatureSet
from tasks.tables.definition import Roles
from tasks.tables.measure import Split, learn_control, measure, release
from tasks.tables.store import CellResult, Store

OnShare = Callable[[float], None]  # told which share of a cell is done
THREADS = 1  # of every cell, however many run at once: a result is the same on any number of workers
FIT_SHARE = 0.5


def compute(cell: Cell | Control, features: FeatureSet, store: Store, tell: OnShare) -> None:
    """Computes a cell and puts it into the store."""
    with fixed_numerics(THREADS):
        if isinstance(cell, Control):
            _compute_control(cell, features, store, tell)
        else:
            store.put(cell, _compute_cell(cell, features, store, tell))


def _compute_control(control: Control, features: FeatureSet, store: Store, tell: OnShare) -> None:
    name = control.attribute
    attribute = Attribute(name, TableInfo.load(features.folder).classes[name], "hidden")
    split = _split(read_features(features.folder, (attribute,)), (attribute,))
    rng = stream(control.seed, "control", control.dataset, name)
    learnt = learn_control(split.train, attribute, control.config, rng, lambda epoch: tell(epoch.number / epoch.total))
    accuracy = (learnt.probabilities(split.test.features).argmax(axis=1) == split.test.labels[name]).mean()
    store.put_control(control, learnt.network.state_dict(), float(accuracy))


def _compute_cell(cell: Cell, features: FeatureSet, store: Store, tell: OnShare) -> CellResult:
    attributes = attributes_of(cell.roles, features)
    table = read_features(features.folder, attributes)
    split = _split(table, attributes)
    curves: dict[str, list[float]] = {}

    def on_epoch(epoch: Epoch) -> None:
        for term, value in epoch.terms.items():
            curves.setdefault(term, []).append(value)
        tell(FIT_SHARE * epoch.number / epoch.total)

    try:
        fitted, setting = _fit(cell, features, table, attributes, on_epoch)
    except (ConfigError, DataError, MethodError) as error:  # the same every time: part of the result
        return CellResult({}, {}, str(error))
    controls = {name: _restore(store, control, split) for name, control in cell.controls().items()}
    released = release(fitted, split, cell.attack.draws, cell.seed, setting.pool.features)
    told = measure(fitted, released, split, controls, cell.attack, cell.seed, _attack_progress(cell.roles, tell))
    return CellResult(told, rounded(curves))


def attributes_of(roles: Roles, features: FeatureSet) -> tuple[Attribute, ...]:
    """The attributes with their classes."""
    classes = TableInfo.load(features.folder).classes
    return tuple(Attribute(name, classes[name], roles.of(name)) for name in roles.names())


@dataclass(frozen=True, slots=True)
class _Place:
    """How far the attacks of a cell are."""

    before: int
    total: int
    tell: OnShare

    def __call__(self, epoch: Epoch) -> None:
        self.tell(FIT_SHARE + (1 - FIT_SHARE) * (self.before + epoch.number / epoch.total) / self.total)


def _attack_progress(roles: Roles, tell: OnShare) -> Callable[[str], OnEpoch]:
    names = roles.names()
    return lambda name: _Place(names.index(name), len(names), tell)


def _fit(
    cell: Cell, features: FeatureSet, table: FeatureTable, attributes: tuple[Attribute, ...], on_epoch: OnEpoch
) -> tuple[Fitted, Setting]:
    """The protector, learnt from the share of the training records that it may know."""
    share = cell.training.share
    train = table.rows("train")
    known = learnt_from(train, table.blocks[train], share, stream(cell.seed, "share", cell.dataset))
    donors = choose_donors(
        features.folder,
        cell.roles.useful,
        cell.pool,
        share,
        stream(cell.seed, "share", cell.dataset),
        stream(cell.seed, "donors", cell.dataset),
    )
    setting = Setting(attributes, table.subset(donors), torch.device("cpu"))
    method: Method = discovery.load(pass_core.methods, cell.method).METHOD
    rng = stream(cell.seed, "fit", cell.dataset, cell.method)
    return method.fit(table.subset(known), setting, cell.config, cell.training, rng, Run(on_epoch)), setting


def _split(table: FeatureTable, attributes: tuple[Attribute, ...]) -> Split:
    return Split(attributes, table.subset(table.rows("train")), table.subset(table.rows("test")))


def _restore(store: Store, control: Control, split: Split) -> NetworkAdversary:
    attribute = next(a for a in split.attributes if a.name == control.attribute)
    return restore_network(store, control, split.train.feature_shape, attribute.n_classes, control.config)


def restore_network(
    store: Store, control: Control, shape: tuple[int, ...], n_classes: int, config: NetworkConfig
) -> NetworkAdversary:
    """The control's network again."""
    # The weights drawn here are overwritten at once; any generator does.
    network = build_network(config.network, shape, n_classes, torch.Generator().manual_seed(0), ATTACK.widths)
    network.load_state_dict(store.get_control(control))
    return NetworkAdversary(network)
