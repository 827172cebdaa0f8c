"""Cross-fitting: every training record meets the network that has not seen it; nothing lists the training records."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pass_core.data import FloatArray, Rng
from pass_core.errors import DataError
from pass_core.randomness import stream
from pass_core.training.cross_fit import CrossFitted, Steps, divide, look_up, make_table


def _records(n: int, rng: Rng) -> FloatArray:
    return rng.normal(size=(n, 3, 4)).astype(np.float32)


@pytest.mark.parametrize("folds", [2, 3, 5])
def test_folds_are_whole_blocks_of_about_one_size(folds: int) -> None:
    blocks = np.repeat(np.arange(40), np.tile([3, 9], 20))
    found = divide(blocks, folds, stream(1, "folds"))
    assert all(len(np.unique(found[blocks == block])) == 1 for block in range(40))
    assert np.ptp(np.bincount(found, minlength=folds)) <= 9
    assert not np.array_equal(found, divide(blocks, folds, stream(2, "folds")))


def test_fewer_blocks_than_folds_are_rejected() -> None:
    with pytest.raises(DataError, match="at least 3 blocks, found 2; set fewer folds"):
        divide(np.array([0, 0, 1]), 3, stream(1, "folds"))


@pytest.mark.parametrize(("n", "folds"), [(1, 2), (10, 2), (500, 3), (5000, 5)])
def test_training_records_have_their_fold_and_others_any(n: int, folds: int) -> None:
    rng = stream(n, "records")
    records, of_records = _records(n, rng), np.concatenate([[folds - 1], rng.integers(folds, size=n - 1)])
    table = make_table(records, of_records, rng)
    assert np.array_equal(look_up(table, records, folds), of_records)
    others = np.bincount(look_up(table, _records(6000, rng), folds), minlength=folds) / 6000
    assert np.abs(others - 1 / folds).max() < 0.1


def test_the_table_does_not_show_who_was_there() -> None:
    """Its cells are as good as random: those of training records are spread like those of others."""
    rng = stream(1, "table")
    records = _records(3000, rng)
    table = make_table(records, rng.integers(2, size=3000), rng)
    assert len(table) < 1.6 * len(records) + 100  # a cell holds one of two values: less than two bits per record
    assert abs(table.mean() - 0.5) < 0.05


def test_equal_records_share_a_fold() -> None:
    records = np.ones((20, 4), dtype=np.float32)
    found = look_up(make_table(records, np.arange(20) % 2, stream(1, "equal")), records, 2)
    assert len(np.unique(found)) == 1


class _Number(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def forward(self, records: Tensor) -> Tensor:
        return records.new_full((len(records), 1), self.number)


def test_a_record_meets_the_network_of_its_fold_whatever_is_beside_it() -> None:
    rng = stream(1, "met")
    records, folds = _records(200, rng), rng.integers(3, size=200)
    fitted = CrossFitted([_Number(k) for k in range(3)], make_table(records, folds, rng))
    everything = fitted(torch.from_numpy(records))[:, 0].numpy()
    assert np.array_equal(everything, folds)
    assert np.array_equal(fitted(torch.from_numpy(records[50:60]))[:, 0].numpy(), folds[50:60])


@pytest.mark.parametrize("folds", [1, 2, 3])
def test_no_step_shows_a_network_a_record_of_its_fold(folds: int) -> None:
    of_records = divide(np.arange(31), folds, stream(1, "folds")) if folds > 1 else np.zeros(31, dtype=np.int64)
    steps, seen = Steps(of_records), [set[int]() for _ in range(folds)]
    for epoch in range(folds + 1):
        for network, rows in enumerate(steps.rows(torch.arange(len(steps)), epoch)):
            seen[network] |= set(rows.tolist())
    for network, rows in enumerate(seen):
        assert rows == set(np.flatnonzero((of_records != network) | (folds == 1)).tolist())
