"""The training loop: stopped anywhere and gone on with, it ends at the same bits."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from pass_core.data import Attribute, Records
from pass_core.epochs import Epoch
from pass_core.methods import pass_substitution, transport_substitution
from pass_core.methods.base import Method, Setting
from pass_core.methods.pass_substitution import PassConfig
from pass_core.methods.transport_substitution import TransportConfig
from pass_core.randomness import stream
from pass_core.run import Run
from pass_core.training import TrainConfig

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b", "c"), "useful"))


def _records(n: int, shape: tuple[int, ...]) -> Records:
    rng = stream(4, "training")
    labels = {"s": rng.integers(0, 2, n), "u": np.arange(n) % 3}
    x = rng.normal(0, 0.5, (n, *shape)).astype(np.float32)
    flat = x.reshape(n, -1)
    flat[:, 0] += 2 * labels["s"]
    flat[:, 1] += 2 * labels["u"]
    return Records(x, labels)


class Killed(Exception):
    """Stands for the end of the process."""


class Remembering:
    """Keeps the first `until` states, copied, then ends the process at the next offer: all later work is lost."""

    def __init__(self, until: int, kept: dict[str, Tensor] | None = None) -> None:
        self.kept, self._left = kept, until

    def load(self) -> Mapping[str, Tensor] | None:
        return self.kept

    def offer(self, state: Mapping[str, Tensor]) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1
        self.kept = {name: state[name].clone() for name in sorted(state)}  # as files do, it keeps no order


METHODS = [
    (pass_substitution.METHOD, PassConfig(embedding_size=8)),
    (transport_substitution.METHOD, TransportConfig(epsilon=0.1, rounds=5)),
]


@pytest.mark.parametrize(("method", "config"), METHODS, ids=["pass", "transport"])
@pytest.mark.parametrize("shape", [(6,), (2, 16)], ids=["mlp", "cnn"])
def test_stopped_training_ends_at_the_same_bits(method: Method, config: object, shape: tuple[int, ...]) -> None:
    data = _records(150, shape)
    setting = Setting(ATTRIBUTES, Records(data.features[:30], {k: v[:30] for k, v in data.labels.items()}), torch.device("cpu"))

    def fit(checkpoints: Remembering) -> tuple[dict[str, Tensor], list[Epoch]]:
        told: list[Epoch] = []
        fitted = method.fit(data, setting, config, TrainConfig(7, 32, 0.005), stream(1, "fit"), Run(told.append, checkpoints))
        return fitted.state_dict(), told

    expected, curves = fit(Remembering(99))
    kept = None
    for stop_after in (2, 0, 3):  # epochs kept of each run; a run that kept none repeats what it lost
        killed = Remembering(stop_after, kept)
        with pytest.raises(Killed):
            fit(killed)
        kept = killed.kept
    assert kept is not None
    assert kept["epochs"] == 5
    resumed, again = fit(Remembering(99, kept))
    assert resumed.keys() == expected.keys()
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
    assert again == curves
    assert [list(epoch.terms) for epoch in again] == [list(epoch.terms) for epoch in curves]
    # The control: without the optimiser's moments or the generator the same weights would go elsewhere.
    for forgotten in ("optimiser.", "generator"):
        partial = {name: torch.zeros_like(t) if name.startswith("optimiser.") else t for name, t in kept.items()}
        if forgotten == "generator":
            partial = kept | {"generator": torch.Generator().manual_seed(9).get_state()}
        elsewhere, _ = fit(Remembering(99, partial))
        assert not all(torch.equal(elsewhere[name], expected[name]) for name in expected)
