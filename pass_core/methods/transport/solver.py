"""Transport: the donors' distribution is made the same for every private class, at the least cost in feature space.

I(X';S) = 0 means that P(X'|S=s) is one distribution m over donors, whatever s. Among all such channels this is the one
that moves records least and keeps the useful class: an entropic optimal transport problem to a shared, free marginal, solved by
Sinkhorn scaling in the log domain.

    ln kernel   k(x,d) = cos(φ(x), φ(d))/ε + ω Σ_j ln p(U_j = U'_j(d) | x)
    channel     P_c(d|x) = softmax over d of k(x,d) + v_c(d)                      of cell c
    round       q_s = mean over records of private class s of P;  ln m = Σ_s w_s ln q_s;  v_c += ln m − ln q_s for c in s
    release     P(d|x) = Σ_c p(c|x) P_c(d|x)                                      over the likeliest cells

A cell is a combination of the private classes and of the classes of all attributes A that the recipient knows; without any it is
the private class. Each A adds a constraint: the same within every class of A; and so do several together, where their
combinations have enough records. A round takes the mean of all corrections.

m is not given: it is the classes' entropic Wasserstein barycentre on the pool. Its weights w_s, shares to the power of
`majority`, decide whose records stay near: 0 treats all classes alike, 1 moves records least overall, and a larger power lets the
largest class keep its own donors, to which the others move.

Several private attributes count as one, whose classes are their combinations in training. p(c|x) and p(U|x) come from
one small network, φ from `pass_core.methods.transport.neighbourhoods`.

The potentials are solved for records as they will be released: donors that `pool.forbid` excludes for a record are out of its
kernel. Without donors of its own person, a training record is like one of a person not seen in training, so that these
potentials hold for unseen people, too.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.substitution import BLOCK_ROWS, Exclusion
from pass_core.data import Records, Rng, combinations, with_role
from pass_core.errors import ConfigError
from pass_core.methods.base import ReleaseContext
from pass_core.methods.transport.cells import Cells, Constraint, cell_attributes, what_can_be_hidden
from pass_core.methods.transport.channel import Seen, TransportChannel, TransportConfig
from pass_core.methods.transport.classifier import build_classifier, fit_classifier, widths_of
from pass_core.methods.transport.neighbourhoods import Neighbourhoods, learn_neighbourhoods
from pass_core.methods.transport.notes import left_over
from pass_core.methods.transport.projections import Anderson, Projection, Totals, project
from pass_core.randomness import torch_generator
from pass_core.training.context import TrainingContext, ignore_epoch
from pass_core.training.cross_fit import cross_fitted
from pass_core.training.epochs import Epoch, OnEpoch
from pass_core.training.loop import TrainConfig
from pass_core.training.parallel import share_statistics

UNDAMPED_ROUNDS = 10  # of those that see only a part of the records; later ones average over what they happened to see


def solve_transport(
    data: Records, *, context: ReleaseContext, config: TransportConfig, training: TrainConfig, rng: Rng, run: TrainingContext
) -> tuple[TransportChannel, tuple[str, ...]]:
    """Trains the classifier, then scales until every private class has the same distribution over donors.

    Also returns what is still visible, in sentences. Records that are held out decide when the classifier stops and how sure it
    is. The rounds use all records, report figures of them, and stop by themselves.
    """
    useful = context.needed("useful")
    context.needed("private")
    if unknown := set(config.carried) - set(context.known):
        found = f"expected attributes that the recipient knows, found {', '.join(sorted(unknown))}"
        raise ConfigError(f"carried: {found}; name them under attacker.knows, too, or leave them out")
    hidden_from = cell_attributes(data.labels, context.attributes, context.known)
    cells, numbers = Cells.of(data, context.attributes, tuple(a.name for a in hidden_from))
    generator = torch_generator(rng)
    learnt = run.trained_rows(len(data))
    folds = run.folds(learnt, config.folds, rng)
    classifier = cross_fitted(
        lambda _: build_classifier(data.feature_shape, cells, generator, config.classifiers), data.features[learnt], folds, rng
    )
    share_statistics(classifier, run.world).to(context.device)
    features = torch.from_numpy(data.features).to(context.device)
    of_heads = [cells.hidden[numbers], *(data.labels[a.name] for a in useful)]
    fit_classifier(
        classifier,
        features,
        [torch.from_numpy(labels).to(context.device) for labels in of_heads],
        training,
        folds=folds,
        widths=widths_of(cells),
        dropout=config.dropout,
        generator=generator,
        run=replace(run, on_epoch=ignore_epoch),  # the curves are those of the rounds
    )
    kinds = torch.from_numpy(combinations([data.labels[a.name] for a in useful])).to(context.device)
    space = learn_neighbourhoods(features, kinds, generator)
    unscaled = torch.zeros(len(cells), len(context.pool), device=context.device)
    channel = build_channel(classifier, space, cells, unscaled, context=context, config=config)
    of_records = torch.from_numpy(numbers).to(context.device)
    hiding = what_can_be_hidden(data.labels, context.attributes, context.known)
    jointly = next((each.jointly for each in hiding if each.jointly and not each.problem), ())
    constraints = cells.constraints(context.device, jointly=jointly)
    potentials, notes = _solve_potentials(
        channel,
        _views(channel, features, context.exclusion),
        of_records,
        constraints=constraints,
        generator=generator,
        on_epoch=run.on_epoch,
    )
    return replace(channel, potentials=potentials), notes


def build_channel(
    classifier: nn.Module,
    space: Neighbourhoods,
    cells: Cells,
    potentials: Tensor,
    *,
    context: ReleaseContext,
    config: TransportConfig,
) -> TransportChannel:
    """The channel with these parts, over the context's donors."""
    useful = with_role(context.attributes, "useful")
    return TransportChannel(
        classifier=classifier,
        neighbourhoods=space,
        donors=space(torch.tensor(context.pool.features, device=context.device)),
        cells=cells,
        potentials=potentials,
        useful_donors=tuple(torch.from_numpy(context.pool.labels[a.name]).to(context.device) for a in useful),
        config=config,
    )


def _views(channel: TransportChannel, features: Tensor, exclusion: Exclusion | None) -> Callable[[Tensor], Seen]:
    """How the channel sees some of the records, by their numbers.

    Looked at once, since it is the same in every round; of more records than a round uses, again for every block: φ of all of
    them would take as much memory as their features.
    """
    if len(features) <= channel.config.records_per_round:
        return channel.look_at(features, exclusion).rows
    return lambda rows: channel.look_at(features[rows], exclusion and exclusion.subset(rows.cpu().numpy()))


def _solve_potentials(
    channel: TransportChannel,
    seen: Callable[[Tensor], Seen],
    numbers: Tensor,
    *,
    constraints: tuple[Constraint, ...],
    generator: torch.Generator,
    on_epoch: OnEpoch,
) -> tuple[Tensor, tuple[str, ...]]:
    """v (cells, donors), from the number of every record's cell, and what is left above the limit.

    Memory is that of one block of records, whatever their number.

    Each round reports `total`, the largest gap of all constraints, and `private_information`, I(X';S) over the records of the
    round; for every known attribute also its own gap and I(X';S|A), nats.
    """
    config, device = channel.config, numbers.device
    counts = torch.bincount(numbers, minlength=len(channel.cells)).double()
    whole = len(numbers) <= config.records_per_round
    accelerated = Anderson((counts / counts.sum()).sqrt()[:, None]) if whole and len(constraints) > 1 else None
    potentials = torch.zeros(len(counts), channel.pool_size, dtype=torch.float64, device=device)
    rounds = config.rounds * len(constraints)
    for number in range(1, rounds + 1):
        order = torch.arange(len(numbers))
        if not whole:
            order = torch.randperm(len(numbers), generator=generator)[: config.records_per_round].sort().values
        totals = _totals(replace(channel, potentials=potentials.float()), seen, order.to(device), numbers)
        found = [project(constraint, totals, counts, config.majority) for constraint in constraints]
        last = max(each.gap for each in found) <= config.tolerance or number == rounds
        on_epoch(Epoch(number, number if last else rounds, _figures(constraints, found)))
        if last:
            break
        correction = torch.stack([each.correction for each in found]).mean(dim=0)
        if accelerated:
            potentials = accelerated.step(potentials, correction)
        else:
            potentials += (1.0 if whole else min(1.0, UNDAMPED_ROUNDS / number)) * correction
    return potentials.float(), left_over(constraints, found, channel.cells.attributes, config.residual, number)


def _totals(channel: TransportChannel, seen: Callable[[Tensor], Seen], rows: Tensor, numbers: Tensor) -> Totals:
    """The sums of P over these records, by cell.

    Of several cells of a private class the classifier is less sure than of the class alone. The rounds then see each record as a
    release mixes it, not in its own cell: otherwise the mixture reveals what every cell hides.
    """
    sums = torch.zeros(channel.potentials.shape, dtype=torch.float64, device=numbers.device)
    for block in rows.split(BLOCK_ROWS):
        with torch.inference_mode():
            of_block = seen(block)
            if channel.cells.known():
                probabilities = channel.mixed(of_block, channel.agreeing(channel.carried_classes[numbers[block]]))
            else:
                probabilities = channel.alone(of_block, numbers[block])
            members = F.one_hot(numbers[block], len(sums)).to(probabilities.dtype)
            sums += (members.T @ probabilities).double()
    return Totals(sums, torch.bincount(numbers[rows], minlength=len(sums)).double())


def _figures(constraints: tuple[Constraint, ...], found: list[Projection]) -> dict[str, float]:
    """A round's figures."""
    figures = {"total": max(each.gap for each in found), "private_information": found[0].information}
    if len(found) > 1:
        figures["gap"] = found[0].gap
    for constraint, each in zip(constraints[1:], found[1:], strict=True):
        figures |= {f"gap_given_{constraint.known}": each.gap, f"private_information_given_{constraint.known}": each.information}
    return figures
