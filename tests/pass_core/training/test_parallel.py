"""Two processes with half a batch each learn what one learns from the whole, and what would go wrong without the exchange."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.data import Attribute, Records
from pass_core.errors import ConfigError, MethodError
from pass_core.methods import pass_substitution, transport_substitution
from pass_core.methods._pass_objective import Objective
from pass_core.methods.base import ReleaseContext
from pass_core.methods.pass_substitution import PassConfig
from pass_core.methods.transport.channel import TransportConfig
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext, ignore_epoch
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.loop import TrainConfig
from pass_core.training.parallel import World, share_statistics
from tasks.running.processes import run_ranks

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b", "c"), "useful"))
METHODS = {
    "pass": (pass_substitution.METHOD, PassConfig(embedding_size=8, temperature=0.1)),
    "pass, cross-fitted": (pass_substitution.METHOD, PassConfig(embedding_size=8, temperature=0.1, folds=2)),
    "transport": (transport_substitution.METHOD, TransportConfig(epsilon=0.1, rounds=3)),
}


def _fit(name: str, shape: tuple[int, ...], run: TrainingContext) -> dict[str, Tensor]:
    rng = stream(4, "parallel")
    labels = {"s": rng.integers(0, 2, 150), "u": np.arange(150) % 3}
    data = Records(rng.normal(size=(150, *shape)).astype(np.float32), labels)
    setting = ReleaseContext(ATTRIBUTES, data.subset(np.arange(30)), torch.device("cpu"))
    method, config = METHODS[name]
    return method.fit(
        data, context=setting, config=config, training=TrainConfig(3, 32, 0.001), rng=stream(1, "fit"), run=run
    ).state_dict()


def _fit_rank(name: str, shape: tuple[int, ...], folder: Path, world: World, on_epoch: OnEpoch) -> None:
    run = TrainingContext(on_epoch, held_out=np.arange(140, 150), world=world)
    save_file({k: v.contiguous() for k, v in _fit(name, shape, run).items()}, folder / f"rank {world.rank}")


def _is_before_batch_norm(name: str, state: dict[str, Tensor]) -> bool:
    prefix, _, kind = name.rpartition(".")
    network, _, layer = prefix.rpartition(".")
    return kind == "bias" and f"{network}.{int(layer) + 1}.running_mean" in state


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shape", [(6,), (2, 16)], ids=["mlp", "cnn"])
def test_two_processes_learn_what_one_learns(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    told: list[Epoch] = []
    run_ranks(functools.partial(_fit_rank, name, shape, tmp_path), 2, 1, tmp_path / "rendezvous", told.append)
    ours, other = load_file(tmp_path / "rank 0"), load_file(tmp_path / "rank 1")
    assert all(torch.equal(ours[k], other[k]) for k in ours)
    alone: list[Epoch] = []
    expected = _fit(name, shape, TrainingContext(alone.append, held_out=np.arange(140, 150)))
    assert ours.keys() == expected.keys()
    for k in expected:
        # Batch norm takes away what a bias before it adds: its gradient is rounding noise, which AdamW makes steps of.
        loose = k.endswith("running_mean") or _is_before_batch_norm(k, expected)
        # Potentials follow from all the rest, at a small ε; of several encoders a weight without gradient may step either way.
        atol = 0.02 if loose else 2e-3 if k == "potentials" or "networks" in k else 2e-4
        assert torch.allclose(ours[k], expected[k], rtol=1e-3, atol=atol), k
    for epoch, reference in zip(told, alone, strict=True):
        assert epoch.terms == pytest.approx(reference.terms, rel=1e-3, abs=5e-3)


def _batch() -> tuple[Tensor, Tensor, Tensor, Tensor, Objective]:
    generator = torch.Generator().manual_seed(3)
    f, g = torch.randn(16, 4, generator=generator), torch.randn(9, 4, generator=generator)
    private, useful = torch.randint(2, (16,), generator=generator), torch.randint(3, (16,), generator=generator)
    return (
        f,
        g,
        private,
        useful,
        Objective(
            private_classes=(2,),
            useful_donors=(F.one_hot(torch.arange(9) % 3).T.float(),),
            useful_weight=1.3,
            general_weight=0.4,
            temperature=0.1,
        ),
    )


def _objective_rank(folder: Path, shared: bool, world: World, on_epoch: OnEpoch) -> None:
    """The batch's loss and gradient from halves; without the exchange, from each half by itself."""
    f, g, private, useful, alone = _batch()
    rows = world.part(torch.arange(16))
    f, g = f[rows].requires_grad_(), g.requires_grad_()
    if shared:
        together = Objective(
            private_classes=alone.private_classes,
            useful_donors=alone.useful_donors,
            useful_weight=1.3,
            general_weight=0.4,
            temperature=0.1,
            world=world,
        )
        total, terms = together(f, g, [private[rows]], [useful[rows]])
    else:
        total, terms = alone(f, g, [private[rows]], [useful[rows]])
        total, terms = world.mean(total), world.mean(terms)
    total.backward()
    world.add_gradients([g])
    assert g.grad is not None
    save_file({"terms": terms, "donors": g.grad}, folder / f"rank {world.rank}")


@pytest.mark.parametrize("shared", [True, False])
def test_loss_is_that_of_the_whole_batch(shared: bool, tmp_path: Path) -> None:
    """Class means of parts have another entropy, so without the exchange the private term and its gradient differ."""
    f, g, private, useful, objective = _batch()
    g.requires_grad_()
    total, terms = objective(f, g, [private], [useful])
    total.backward()
    run_ranks(functools.partial(_objective_rank, tmp_path, shared), 2, 1, tmp_path / "rendezvous", ignore_epoch)
    found = load_file(tmp_path / "rank 0")
    private_and_spread, means = [0, 2], [1, 3]  # means over records are the same either way
    assert torch.allclose(found["terms"][means], terms[means], atol=1e-5)
    for k in private_and_spread:
        assert torch.allclose(found["terms"][k], terms[k], atol=1e-5) == shared
    assert g.grad is not None
    assert torch.allclose(found["donors"], g.grad, atol=1e-5) == shared


def _refuse(world: World, on_epoch: OnEpoch) -> None:
    if world.rank == 1:
        raise ConfigError("epochs: rank one does not like it")
    world.sum(torch.ones(1))  # waits for the other for ever


def _die(world: World, on_epoch: OnEpoch) -> None:
    import os

    if world.rank == 0:
        os._exit(7)
    world.sum(torch.ones(1))


def test_failure_of_one_process_ends_all_with_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rank one does not like it"):
        run_ranks(_refuse, 2, 1, tmp_path / "a", ignore_epoch)
    with pytest.raises(MethodError, match=r"a process of the training died|rank 1 of the training failed"):
        run_ranks(_die, 2, 1, tmp_path / "b", ignore_epoch)


def test_batches_must_divide_among_processes() -> None:
    with pytest.raises(ConfigError, match=r"batch_size: expected a multiple of compute.processes \(3\), found 32"):
        _fit("pass", (6,), TrainingContext(world=World(0, 3)))


def test_alone_nothing_is_replaced() -> None:
    network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert type(share_statistics(network, World())[1]) is nn.BatchNorm1d
    names = list(network.state_dict())
    assert type(share_statistics(network, World(0, 2))[1]) is not nn.BatchNorm1d
    assert list(network.state_dict()) == names
