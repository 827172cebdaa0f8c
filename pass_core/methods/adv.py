"""ADV, or ALR (Bertran et al. 2019): keep a classifier's output for useful attributes, within a budget of leakage."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pass_core.checks import ranged
from pass_core.data import Records, with_role
from pass_core.methods.adversarial.players import GameConfig, GeneratorLoss, Move, total
from pass_core.methods.adversarial.training import AdversarialMethod
from pass_core.methods.base import ReleaseContext


@dataclass(frozen=True, slots=True)
class AdvConfig(GameConfig):
    """The released code's values."""

    penalty: float = ranged(50.0, at_least=0)  # λ
    budget: float = ranged(0.001, at_least=0)  # k: nats that may leak of every private attribute


def useful_divergence(original: Tensor, released: Tensor) -> Tensor:
    """Mean KL( p(U|x) ‖ p(U|x') ), from (batch, classes) logits of one classifier on originals and on what is released."""
    return F.kl_div(F.log_softmax(released, dim=1), F.log_softmax(original, dim=1), reduction="batchmean", log_target=True)


def leakage_penalty(private: Tensor, shares: Tensor, budget: float) -> Tensor:
    """relu( mean KL( p(S|x') ‖ π ) − k )², from (members, batch, classes) logits and the classes' shares π."""
    logs = F.log_softmax(private, dim=2)
    leaked = (logs.exp() * (logs - shares.log())).sum(dim=2).mean()
    return F.relu(leaked - budget).square()


class Adv(AdversarialMethod[AdvConfig]):
    """Σ_U KL( p(U|x) ‖ p(U|x') ) + λ Σ_S relu( KL( p(S|x') ‖ π ) − k )², useful classifiers as originals made them."""

    summary: ClassVar[str] = "ADV (ALR): a generator that keeps what classifiers say, within a budget of leakage"
    config_type: ClassVar[type[AdvConfig]] = AdvConfig
    useful_stay: ClassVar[bool] = True

    def objective(self, data: Records, context: ReleaseContext, config: AdvConfig) -> GeneratorLoss:
        private = with_role(context.attributes, "private")
        # Each class counts once more than it occurs: one that never occurs would be infinitely surprising.
        counts = {a.name: torch.from_numpy(np.bincount(data.labels[a.name], minlength=a.n_classes)).float() + 1 for a in private}
        shares = {name: (count / count.sum()).to(context.device) for name, count in counts.items()}

        def terms(move: Move) -> dict[str, Tensor]:
            with torch.no_grad():
                original = {name: network(move.original) for name, network in move.players.helpers().items()}
            useful = {name: useful_divergence(original[name], released) for name, released in move.useful.items()}
            private = {name: leakage_penalty(logits, shares[name], config.budget) for name, logits in move.private.items()}
            return {"useful": total(useful), "private": config.penalty * total(private)}

        return terms


METHOD = Adv()
