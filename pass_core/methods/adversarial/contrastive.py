"""Contrastive losses: which of many vectors is another view of the same record?"""

import torch
from torch import Tensor
from torch.nn import functional as F


def info_nce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """InfoNCE of two views, (batch, dim) each, of the same records; negatives are the other view's, both directions averaged."""
    similar = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T / temperature  # (batch, batch)
    own = torch.arange(len(first), device=first.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2


def nt_xent(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """NT-Xent of two views, (batch, dim) each: negatives are all other vectors of both views."""
    both = F.normalize(torch.cat([first, second]), dim=1)  # (2 batch, dim)
    similar = both @ both.T / temperature
    similar = similar.masked_fill(torch.eye(len(both), dtype=torch.bool, device=both.device), -torch.inf)
    return F.cross_entropy(similar, torch.arange(len(both), device=both.device).roll(len(first)))
