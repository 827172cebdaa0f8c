"""Throughput of a PASS training step against the loss as one would write it first, and against the bare matrix products.

python benchmarks/train.py [batch] [pool]: all in one run, by turns, the best of each counts; two threads, embeddings of
512, the paper's three-layer encoder on 577 features, one private attribute of 60 classes and one useful of 10. Memory is the peak
of live tensors while loss and gradient are computed, encoder excluded; growth compares pools of one and two times the size.

vs_naive: the plain loss in float32 against ours with `train.amp`; vs_naive_float32 against ours without it. cpu_* are the same
ratios of CPU time, which other jobs on the machine disturb less.
"""

import json
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pass_core.methods._pass_objective import Objective
from pass_core.training.loop import TrainConfig, encoder_precision
from pass_core.training.networks import build_network
from tasks.extractors.engines.processor import fast_instructions

THREADS, WIDTH, FEATURES, PRIVATE, USEFUL = 2, 512, 577, 60, 10
FLOAT32 = TrainConfig()
TEMPERATURE, USEFUL_WEIGHT, GENERAL_WEIGHT = 0.01, 1.0, 0.2


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that are alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._follow(tensor.untyped_storage())
        return result

    def _follow(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._known:
            return
        self._known.add(key)
        size = storage.nbytes()
        self.now += size
        self.peak = max(self.peak, self.now)

        def gone() -> None:
            self.now -= size
            self._known.discard(key)

        weakref.finalize(storage, gone)


class Case:
    """One size of batch and pool, with all three ways to make a step."""

    def __init__(self, batch: int, pool: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.encoder = build_network("mlp", (FEATURES,), WIDTH, generator)
        self.features = torch.randn(batch, FEATURES, generator=generator)
        self.donors = torch.randn(pool, WIDTH, generator=generator, requires_grad=True)
        self.private = torch.randint(PRIVATE, (batch,), generator=generator)
        self.useful = torch.randint(USEFUL, (batch,), generator=generator)
        self.donor_labels = torch.arange(pool) % USEFUL
        indicators = F.one_hot(self.donor_labels, USEFUL).T.float()
        self.objective = Objective(
            private_classes=(PRIVATE,),
            useful_donors=(indicators,),
            useful_weight=USEFUL_WEIGHT,
            general_weight=GENERAL_WEIGHT,
            temperature=TEMPERATURE,
        )

    def plain(self, embedded: Tensor) -> Tensor:
        """The loss of eq. 3 as one would write it first."""
        cosine = F.normalize(embedded, dim=1) @ F.normalize(self.donors, dim=1).T
        log_p = F.log_softmax(cosine / TEMPERATURE, dim=1)
        p = log_p.exp()
        members = F.one_hot(self.private, PRIVATE).float()
        counts = members.sum(dim=0)
        means = (members.T @ p) / counts.clamp_min(1)[:, None]
        private = ((counts / len(p)) * (means * means.clamp_min(1e-30).log()).sum(dim=1)).sum()
        carried = p @ F.one_hot(self.donor_labels, USEFUL).float()
        own = carried.gather(1, self.useful[:, None])[:, 0]
        useful = -torch.log(torch.tensor(float(USEFUL))) * own.clamp_min(1e-30).log().mean()
        general = -(p * log_p).sum(dim=1).mean()
        return private + USEFUL_WEIGHT * useful + GENERAL_WEIGHT * general

    def ours(self, embedded: Tensor) -> Tensor:
        return self.objective(embedded, self.donors, [self.private], [self.useful])[0]

    def fast(self, embedded: Tensor) -> Tensor:
        return replace(self.objective, fast=True)(embedded, self.donors, [self.private], [self.useful])[0]

    def products(self, embedded: Tensor) -> Tensor:
        """Only what no loss over this channel can do without: f gᵀ, and its two gradients."""
        scores = embedded @ self.donors.T
        return _Gradients.apply(scores)

    def step(self, loss: Callable[[Tensor], Tensor], config: TrainConfig) -> None:
        self.encoder.zero_grad(set_to_none=True)
        self.donors.grad = None
        with encoder_precision(config, self.features.device):
            embedded = self.encoder(self.features)
        loss(embedded.float()).backward()

    def peak(self, loss: Callable[[Tensor], Tensor]) -> int:
        """Peak bytes of loss and gradient."""
        embedded = self.encoder(self.features).detach().requires_grad_()
        with LiveBytes() as live:
            loss(embedded).backward()
        return live.peak


class _Gradients(torch.autograd.Function):
    """A scalar whose gradient costs nothing: the scores themselves."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        return scores.new_zeros(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        del grad
        return ctx.saved_tensors[0]


def seconds(case: Case, names: Sequence[str], repetitions: int = 7) -> dict[str, tuple[float, float]]:
    """The best (wall, CPU) seconds of a step with each loss, taken by turns."""
    best = dict.fromkeys(names, (float("inf"), float("inf")))
    for _ in range(repetitions):
        for name in names:
            started = time.perf_counter(), time.process_time()
            case.step(getattr(case, name), replace(FLOAT32, amp=name == "fast"))
            taken = time.perf_counter() - started[0], time.process_time() - started[1]
            best[name] = min(best[name][0], taken[0]), min(best[name][1], taken[1])
    return best


def main() -> None:
    """Measures and prints the RESULT line."""
    batch, pool = (int(sys.argv[k]) if len(sys.argv) > k else default for k, default in ((1, 1024), (2, 4096)))
    torch.set_num_threads(THREADS)
    case, double = Case(batch, pool), Case(batch, 2 * pool)
    times = seconds(case, ("plain", "ours", "fast", "products"))
    growth = seconds(double, ("ours",))["ours"][0] / times["ours"][0]
    memory = {name: case.peak(loss) for name, loss in (("plain", case.plain), ("ours", case.ours))}
    shown = ", ".join(f"{name} {wall * 1e3:.0f} ms ({cpu * 1e3:.0f} of CPU)" for name, (wall, cpu) in times.items())
    print(f"batch {batch}, pool {pool}, {THREADS} threads, load {os.getloadavg()[0]:.0f}: {shown}")
    print("peak of the loss: " + ", ".join(f"{name} {value / 2**20:.0f} MB" for name, value in memory.items()))
    print(f"time with twice the pool: {growth:.2f} times")
    result: dict[str, Any] = {}
    for prefix, kind in (("", 0), ("cpu_", 1)):
        plain, ours, fast, products = (times[name][kind] for name in ("plain", "ours", "fast", "products"))
        result |= {
            f"{prefix}vs_naive": round(plain / fast, 3),
            f"{prefix}vs_naive_float32": round(plain / ours, 3),
            f"{prefix}vs_gemm": round(products / ours, 3),
        }
    result |= {
        "memory_vs_naive": round(memory["ours"] / memory["plain"], 3),
        "growth_2x_pool": round(growth, 3),
        "bfloat16_instructions": fast_instructions("bfloat16"),
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
