"""Several networks of which each has not seen one part of the training records, and every record meets the one that has not.

A network treats records that it was trained on differently from others, and who sees what it does with a record can tell
which it was. Here the training records are divided into folds, in whole blocks, with a network for each fold that never learns
from it. A training record meets its fold's network, any other record that of a fold as good as drawn by lot: neither has been
seen by the network that it meets, so that they are treated alike by construction.

Which fold a record belongs to is a function of its values alone, kept in a table that gives every training record its own fold
and any other record some fold. The table is no list of the training records: it answers for all records alike. (A Bloomier
filter: a record's fold is the sum of three cells, and the cells are solved for by peeling off records that have a cell to
themselves.) A training record of which a single bit changed counts as any other.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from pass_core.data import FloatArray, IntArray, Rng
from pass_core.errors import DataError

CELLS = 3  # that a record's fold is the sum of
SPARE = 32  # cells beyond those that the records need


def divide(blocks: IntArray, folds: int, rng: Rng) -> IntArray:
    """(n,) the fold of every record: whole blocks, in random order, each into the fold with the fewest records."""
    names, of_records, counts = np.unique(blocks, return_inverse=True, return_counts=True)
    if len(names) < folds:
        raise DataError(f"folds: expected training records of at least {folds} blocks, found {len(names)}; set fewer folds")
    chosen, sizes = np.zeros(len(names), dtype=np.int64), np.zeros(folds, dtype=np.int64)
    for block in rng.permutation(len(names)):
        chosen[block] = sizes.argmin()
        sizes[chosen[block]] += counts[block]
    return np.asarray(chosen[of_records.reshape(-1)])


def make_table(records: FloatArray, folds: IntArray, rng: Rng) -> IntArray:
    """The table from which `look_up` reads the folds of these records; equal records have the fold of one of them."""
    n_folds, size = int(folds.max()) + 1, CELLS * (len(records) // 2 + SPARE)
    while True:
        cells = _cells(records, size)
        cells, first = np.unique(cells, axis=0, return_index=True)
        order = _peel(cells, size)
        if len(order) == len(cells):
            break
        size *= 2  # rarely: records that block each other in every order
    table = rng.integers(n_folds, size=size)
    for record, cell in reversed(order):
        others = table[cells[record]].sum() - table[cell]
        table[cell] = (folds[first[record]] - others) % n_folds
    return np.asarray(table)


def look_up(table: IntArray, records: FloatArray, n_folds: int) -> IntArray:
    """(n,) the fold of every record."""
    return np.asarray(table[_cells(records, len(table))].sum(axis=1) % n_folds)


def _cells(records: FloatArray, size: int) -> IntArray:
    """(n, 3) the cells of every record, one in each third of the table."""
    digests = b"".join(hashlib.blake2b(record.tobytes(), digest_size=8 * CELLS).digest() for record in records)
    words = np.frombuffer(digests, dtype="<u8").reshape(-1, CELLS) % np.uint64(size // CELLS)
    return np.asarray(words.astype(np.int64) + np.arange(CELLS) * (size // CELLS))


def _peel(cells: IntArray, size: int) -> list[tuple[int, int]]:
    """Records, each with a cell that no later one has; fewer than all where the rest block each other."""
    counts, sharing = np.bincount(cells.reshape(-1), minlength=size), np.zeros(size, dtype=np.int64)
    for column in cells.T:
        np.bitwise_xor.at(sharing, column, np.arange(len(cells)))  # what remains of a cell with one record is that record
    order, free = [], np.flatnonzero(counts == 1).tolist()
    while free:
        cell = free.pop()
        if counts[cell] != 1:
            continue
        record = int(sharing[cell])
        order.append((record, cell))
        for each in cells[record].tolist():
            counts[each] -= 1
            sharing[each] ^= record
            if counts[each] == 1:
                free.append(each)
    return order


class CrossFitted(nn.Module):
    """A network for every fold, which has not learnt from it; every record meets the network of its own fold."""

    table: Tensor

    def __init__(self, networks: Sequence[nn.Module], table: IntArray) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.register_buffer("table", torch.from_numpy(table.astype(np.uint8)))

    def forward(self, records: Tensor) -> Tensor:
        """Outputs (n, …); all networks see all records, so that no output depends on the records beside it."""
        folds = look_up(self.table.cpu().numpy().astype(np.int64), records.cpu().numpy(), len(self.networks))
        outputs = torch.stack([network(records) for network in self.networks])
        return outputs[torch.from_numpy(folds).to(records.device), torch.arange(len(records), device=records.device)]


def networks_of(network: nn.Module) -> list[nn.Module]:
    """The networks that learn: several where it is cross-fitted."""
    return list(network.networks) if isinstance(network, CrossFitted) else [network]


class Steps:
    """Which records every network learns from in a step: as many each, none of its own fold."""

    def __init__(self, folds: IntArray) -> None:
        numbers = np.unique(folds)
        everything = np.arange(len(folds))
        learnt_from = [everything[folds != fold] for fold in numbers] if len(numbers) > 1 else [everything]
        self._rows = [torch.from_numpy(rows) for rows in learnt_from]

    def __len__(self) -> int:
        """Records that every network learns from in an epoch."""
        return min(len(rows) for rows in self._rows)

    def rows(self, places: Tensor, epoch: int) -> list[Tensor]:
        """For every network the records at these places; over the epochs, all of them have their turn."""
        return [rows[(places + epoch * len(self)) % len(rows)] for rows in self._rows]


def cross_fitted(build: Callable[[IntArray], nn.Module], records: FloatArray, folds: IntArray, rng: Rng) -> nn.Module:
    """A network for every fold of these records, or one alone; `build` gets the rows that a network may learn from."""
    numbers = np.unique(folds)
    if len(numbers) == 1:
        return build(np.arange(len(records)))
    networks = [build(np.flatnonzero(folds != fold)) for fold in numbers]
    return CrossFitted(networks, make_table(records, folds, rng))


def rebuilt(build: Callable[[], nn.Module], folds: int, learnt: Mapping[str, Tensor]) -> nn.Module:
    """What `cross_fitted` returned, to load these tensors into."""
    return build() if folds == 1 else CrossFitted([build() for _ in range(folds)], learnt["table"].cpu().numpy())
