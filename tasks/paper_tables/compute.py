"""Computing a cell, in any process: from features on disk to a result in the store."""

import torch

from pass_core.data import Attribute
from pass_core.errors import ConfigError, DataError, MethodError
from pass_core.methods.base import Fitted, ReleaseContext, find_method
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.held_out import learnt_from
from tasks.paper_tables.cells import Cell, CellResult, Control, FeatureSet, OnShare, Store
from tasks.paper_tables.control import compute_control, restore_control, split_of
from tasks.paper_tables.measure import measure
from tasks.running.numerics import fixed_numerics
from tasks.steps.sample_pool import choose_donors
from tasks.storage.files import rounded
from tasks.storage.parquet import FeatureTable, TableInfo, read_features

THREADS = 1  # of every cell, however many run at once: a result is the same on any number of workers
FIT_SHARE = 0.5  # of a cell, in its progress


def compute(cell: Cell | Control, features: FeatureSet, store: Store, report: OnShare) -> None:
    """Computes a cell and puts it into the store."""
    with fixed_numerics(THREADS):
        if isinstance(cell, Control):
            compute_control(cell, features, store, report)
        else:
            store.put(cell, _compute_cell(cell, features, store, report))


def _compute_cell(cell: Cell, features: FeatureSet, store: Store, report: OnShare) -> CellResult:
    classes = TableInfo.load(features.folder).classes
    attributes = cell.roles.attributes(classes)
    table = read_features(features.folder, attributes)
    split = split_of(table, attributes)
    curves: dict[str, list[float]] = {}

    def on_epoch(epoch: Epoch) -> None:
        for term, value in epoch.terms.items():
            curves.setdefault(term, []).append(value)
        report(FIT_SHARE * epoch.number / epoch.total)

    def on_attack(name: str) -> OnEpoch:
        names = list(cell.roles.roles())
        before = names.index(name)
        return lambda epoch: report(FIT_SHARE + (1 - FIT_SHARE) * (before + epoch.number / epoch.total) / len(names))

    try:
        fitted, context = _fit(cell, features, table, attributes, on_epoch)
    except (ConfigError, DataError, MethodError) as error:  # the same each time: the error is the result
        return CellResult({}, {}, str(error))
    controls = {name: restore_control(control, split, store) for name, control in cell.controls().items()}
    scores = measure(
        fitted, split, context.pool.features, controls=controls, config=cell.attack, seed=cell.seed, on_epoch=on_attack
    )
    return CellResult(scores, rounded(curves))


def _fit(
    cell: Cell, features: FeatureSet, table: FeatureTable, attributes: tuple[Attribute, ...], on_epoch: OnEpoch
) -> tuple[Fitted, ReleaseContext]:
    """The protector, trained on its share of the training records."""
    share, train = cell.training.share, table.rows("train")
    known = learnt_from(train, table.blocks[train], share, stream(cell.seed, "share", cell.dataset))
    again, rng = (stream(cell.seed, label, cell.dataset) for label in ("share", "donors"))  # the same share again
    donors = choose_donors(features.folder, cell.roles.useful, cell.pool, share, share_rng=again, rng=rng)
    context = ReleaseContext(attributes, table.subset(donors), torch.device("cpu"))
    rng, run, method = stream(cell.seed, "fit", cell.dataset, cell.method), TrainingContext(on_epoch), find_method(cell.method)
    fitted = method.fit(table.subset(known), context=context, config=cell.config, training=cell.training, rng=rng, run=run)
    return fitted, context
