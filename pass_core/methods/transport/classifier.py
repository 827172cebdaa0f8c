"""The classifier of cells and useful attributes: regularised, and calibrated on held-out records.

A release mixes over its posteriors, so all of them must be right, not only the largest. Dropout acts before the last layer; the
weights are those of the epoch that was best on held-out records; every head is divided by a temperature, within its weights.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.substitution import BLOCK_ROWS
from pass_core.data import Attribute, IntArray, Records, with_role
from pass_core.methods.transport.cells import Cells
from pass_core.training.context import TrainingContext
from pass_core.training.cross_fit import Steps, networks_of
from pass_core.training.loop import TrainConfig, Validation, encoder_precision, minimise
from pass_core.training.networks import build_network

TEMPERATURES = tuple(2 ** (eighths / 8) for eighths in range(-16, 33))
BINS = 10  # of confidence, for the expected calibration error


class Ensemble(nn.Module):
    """The mean of several networks' logits: after a softmax, the normalised geometric mean of their posteriors."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, records: Tensor) -> Tensor:
        return torch.stack([member(records) for member in self.members]).mean(dim=0)


def build_classifier(shape: tuple[int, ...], cells: Cells, generator: torch.Generator, members: int) -> nn.Module:
    """The network for p(cell|x) and p(U|x), one head after the other; or several with the same heads."""
    built = [build_network("auto", shape, sum(widths_of(cells)), generator) for _ in range(members)]
    return built[0] if members == 1 else Ensemble(built)


def widths_of(cells: Cells) -> list[int]:
    """The number of outputs of every head."""
    return [cells.n_hidden, *(a.n_classes for a in with_role(cells.attributes, "useful"))]


def fit_classifier(
    classifier: nn.Module,
    features: Tensor,
    labels: Sequence[Tensor],
    training: TrainConfig,
    *,
    folds: IntArray,
    widths: Sequence[int],
    dropout: float,
    generator: torch.Generator,
    run: TrainingContext,
) -> None:
    """Trains the heads with these labels on all records but those held out, which then decide the epoch and the temperatures.

    Where the classifier is cross-fitted, `folds` are those of the records that are not held out.
    """
    learnt = torch.from_numpy(run.trained_rows(len(features))).to(features.device)
    networks, steps = [_parts(network) for network in networks_of(classifier)], Steps(folds)  # by fold; all that learn from it
    held_out = torch.from_numpy(run.held_out).to(features.device)
    # A class that training lacks says nothing about the posteriors of the others.
    judged = [held_out[torch.isin(each[held_out], each[learnt])] for each in labels]

    def losses() -> list[tuple[Tensor, float]]:
        found = zip(judged, labels, range(len(widths)), strict=True)
        return [_log_losses(logits_of(classifier, features[rows], widths)[k], each[rows]) for rows, each, k in found if len(rows)]

    def figures() -> dict[str, float]:
        total = sum(float(loss) for loss, _ in losses())
        classifier.train()
        return {"held_out_log_loss": total}

    def loss(network: tuple[nn.Module, nn.Linear], rows: Tensor) -> Tensor:
        trunk, last = network
        # Drawn for the whole batch from the generator that a checkpoint keeps: a training can resume, and be shared.
        drawn = torch.rand(len(rows) * run.world.processes, last.in_features, generator=generator) if dropout else None
        with encoder_precision(training, features.device):
            inputs = trunk(features[rows])
            if drawn is not None:
                inputs = inputs * (run.world.part(drawn) >= dropout).to(inputs) / (1 - dropout)
            heads = last(inputs).float().split(list(widths), dim=1)
        return torch.stack([F.cross_entropy(head, each[rows]) for head, each in zip(heads, labels, strict=True)]).sum()

    def batch_loss(places: Tensor, epoch: int) -> dict[str, Tensor]:
        parts = zip(networks, steps.rows(places, epoch), strict=True)
        found = [loss(network, learnt[rows]) for of_fold, rows in parts for network in of_fold]
        return {"total": run.world.mean(torch.stack(found).mean())}

    watched = Validation(figures, "held_out_log_loss", training.patience or training.epochs) if len(held_out) else None
    classifier.train()
    state = classifier.state_dict(keep_vars=True)
    minimise(batch_loss, state, len(steps), training, generator=generator, run=run, validation=watched)
    starts = np.cumsum([0, *widths])
    used = [k for k, rows in enumerate(judged) if len(rows)]
    with torch.no_grad():
        for k, (_, temperature) in zip(used, losses(), strict=True):
            outputs = slice(int(starts[k]), int(starts[k + 1]))
            for _, last in itertools.chain(*networks):
                last.weight[outputs] /= temperature
                last.bias[outputs] /= temperature
    classifier.eval()


@torch.inference_mode()
def logits_of(classifier: nn.Module, features: Tensor, widths: Sequence[int]) -> tuple[Tensor, ...]:
    """The logits of every head, computed in blocks; leaves the network in evaluation mode."""
    classifier.eval()
    logits = torch.cat([classifier(block) for block in features.split(BLOCK_ROWS)])
    heads: tuple[Tensor, ...] = logits.split(list(widths), dim=1)
    return heads


def _parts(classifier: nn.Module) -> list[tuple[nn.Module, nn.Linear]]:
    """Each network before its last layer, and that layer."""
    if isinstance(classifier, Ensemble):
        return [part for member in classifier.members for part in _parts(member)]
    if not isinstance(classifier, nn.Sequential) or not isinstance(last := classifier[-1], nn.Linear):
        raise TypeError("expected a sequence of layers that ends with a linear one")
    return [(classifier[:-1], last)]


def _log_losses(logits: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """The smallest mean log-loss that a temperature gives, and that temperature."""
    losses = torch.stack([F.cross_entropy(logits / temperature, labels) for temperature in TEMPERATURES])
    return losses.min(), TEMPERATURES[int(losses.argmin())]


def held_out_figures(classifier: nn.Module, data: Records, held_out: IntArray, cells: Cells) -> dict[str, float]:
    """Accuracy, log-loss (nats) and expected calibration error on held-out records, of every attribute that is classified."""
    if not len(held_out):
        return {}
    device = next(classifier.parameters()).device
    features = torch.from_numpy(data.features[held_out]).to(device)
    hidden, *useful = (head.softmax(dim=1).cpu() for head in logits_of(classifier, features, widths_of(cells)))
    heads = dict(zip(with_role(cells.attributes, "useful"), useful, strict=True))
    parts = [a for a in cells.attributes if a.role == "private" or (a.role == "general" and a in cells.known())]
    _, first = np.unique(cells.hidden, return_index=True)  # a cell of every combination
    for attribute in parts:
        classes = torch.from_numpy(cells.classes(attribute.name)[first])
        heads[attribute] = torch.zeros(len(hidden), attribute.n_classes).index_add_(1, classes, hidden)
    found: dict[str, float] = {}
    for attribute, probabilities in heads.items():
        found |= _figures(attribute, probabilities, torch.from_numpy(data.labels[attribute.name][held_out]))
    return found


def _figures(attribute: Attribute, probabilities: Tensor, labels: Tensor) -> Mapping[str, float]:
    confidence, guess = probabilities.max(dim=1)
    right = (guess == labels).float()
    bins = (confidence * BINS).long().clamp_max(BINS - 1)
    gaps = torch.zeros(BINS).index_add_(0, bins, confidence - right).abs() / len(labels)
    of_truth = probabilities.gather(1, labels[:, None]).clamp_min(torch.finfo(probabilities.dtype).tiny)
    return {
        f"held_out_accuracy_{attribute.name}": float(right.mean()),
        f"held_out_log_loss_{attribute.name}": float(-of_truth.log().mean()),
        f"held_out_calibration_error_{attribute.name}": float(gaps.sum()),
    }
