"""The feature space in which neighbours are alike."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pass_core.methods.transport.neighbourhoods import Neighbourhoods, describe, learn_neighbourhoods


def _takes(n_things: int, n_takes: int) -> tuple[Tensor, Tensor, Tensor]:
    """(features, thing, kind): takes of one thing differ widely in some directions that have nothing to do with the thing."""
    generator = torch.Generator().manual_seed(0)
    things = torch.randn(n_things, 20, generator=generator) * torch.tensor([1.0] * 8 + [0.0] * 12)
    thing = torch.arange(n_things).repeat_interleave(n_takes)
    between_takes = torch.randn(len(thing), 20, generator=generator) * torch.tensor([0.25] * 8 + [1.0] * 12)
    mixing = torch.linalg.qr(torch.randn(20, 20, generator=generator)).Q
    return (things[thing] + between_takes) @ mixing, thing, thing % 3


def _same_thing(space: Tensor, thing: Tensor, kind: Tensor) -> float:
    """Share of the records whose nearest other record of their kind is of the same thing."""
    similarity = space @ space.T
    similarity[kind[:, None] != kind] = -9
    similarity.fill_diagonal_(-9)
    return float((thing[similarity.argmax(dim=1)] == thing).float().mean())


def test_neighbours_are_of_the_same_thing_more_often_than_by_plain_features() -> None:
    features, thing, kind = _takes(60, 12)
    learnt = learn_neighbourhoods(features, kind, torch.Generator().manual_seed(1))
    plain = F.normalize((features - features.mean(dim=0)) / features.std(dim=0), dim=1)
    assert _same_thing(learnt(features), thing, kind) > _same_thing(plain, thing, kind) + 0.05


def test_vectors_have_length_one_and_scales_do_not_matter() -> None:
    features, _, kind = _takes(20, 6)
    stretched = features * torch.linspace(0.01, 100, 20) + 5
    first, second = (learn_neighbourhoods(x, kind, torch.Generator().manual_seed(1))(x) for x in (features, stretched))
    assert torch.allclose(first.norm(dim=1), torch.ones(len(first)))
    assert torch.allclose(first @ first.T, second @ second.T, atol=1e-3)


@pytest.mark.parametrize("kinds", [torch.arange(30), torch.zeros(30, dtype=torch.long)])
def test_records_alone_of_their_kind_and_constant_features_are_no_trouble(kinds: Tensor) -> None:
    features = torch.randn(30, 5, generator=torch.Generator().manual_seed(2))
    features[:, 3] = 7.0
    features[10:20] = features[:10]  # duplicates
    assert learn_neighbourhoods(features, kinds, torch.Generator().manual_seed(1))(features).isfinite().all()


def test_windows_are_described_without_their_phase() -> None:
    time = torch.arange(64) / 64 * 2 * torch.pi
    waves = torch.stack([torch.sin(4 * time), torch.cos(4 * time), torch.sin(9 * time)])[:, None]
    described = describe(waves)
    assert torch.allclose(described[0], described[1], atol=1e-3)
    assert not torch.allclose(described[0], described[2], atol=0.1)
    identity = Neighbourhoods(torch.zeros(33), torch.eye(33))
    assert identity(waves).shape == (3, 33)
