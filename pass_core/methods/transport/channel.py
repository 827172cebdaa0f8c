"""Transport's channel: what P(x'|x) is computed from, for records as they are released."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pass_core.channel.substitution import BLOCK_ROWS, BlockChannel, Exclusion
from pass_core.checks import Checked, ranged
from pass_core.data import Attribute, IntArray, with_role
from pass_core.errors import MethodError
from pass_core.methods.transport.cells import Cells
from pass_core.methods.transport.classifier import logits_of, widths_of
from pass_core.methods.transport.neighbourhoods import Neighbourhoods

GUESSED = -1  # in place of a carried class: none


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportConfig(Checked):
    """How sharp the channel is, how faithful to the useful class, and how long it is solved."""

    epsilon: float = ranged(0.015, above=0)  # ε: temperature of similarity; smaller keeps more of the record, larger mixes more
    useful_weight: float = ranged(1.0, at_least=0)  # ω
    rounds: int = ranged(60, at_least=1)  # at most, for every attribute that the recipient knows and one more
    tolerance: float = ranged(0.001, above=0)  # stop when each class's distribution over donors is this near to the shared one
    # nats of the private attributes that may be left, alone or given a known attribute; the training report names those above
    residual: float = ranged(0.001, above=0)
    # known attributes whose class every record carries at release, which then selects its cells; others are guessed from it
    carried: tuple[str, ...] = ()
    # class weights of the shared distribution: 0 all alike, 1 by records, more: the largest class stays
    majority: float = ranged(2.0, at_least=0)
    likeliest: int = ranged(3, at_least=1)  # cells (private and known classes) that a release mixes over
    dropout: float = ranged(0.2, at_least=0, below=1)  # of the classifier's last layer
    classifiers: int = ranged(1, at_least=1)  # whose mean is taken: several read new records better
    folds: int = ranged(
        1, at_least=1
    )  # of the training records; with several, no classifier has seen the records that it classifies
    records_per_round: int = ranged(50_000, at_least=1)  # of a larger training set every round sees another random part


@dataclass(frozen=True, slots=True)
class Seen:
    """Records as the channel sees them."""

    space: Tensor  # (n, dim) φ
    hidden: Tensor  # (n, combinations) ln p of the private and known general classes
    useful: tuple[Tensor, ...]  # (n, classes) ln p(U_j|x)
    units: tuple[Tensor, Tensor] | None = None  # (n,) of records and (pool,) of donors: a donor of the same unit is excluded

    def rows(self, rows: Tensor) -> "Seen":
        """Some of these records."""
        units = None if self.units is None else (self.units[0][rows], self.units[1])
        return Seen(self.space[rows], self.hidden[rows], tuple(logs[rows] for logs in self.useful), units)

    def excluded(self) -> Tensor | None:
        """(n, pool) the donors that are excluded for a record; None where none is for any."""
        return None if self.units is None else self.units[0][:, None] == self.units[1]


@dataclass(frozen=True, kw_only=True)
class TransportChannel(BlockChannel):
    """Everything that P(x'|x) is computed from."""

    classifier: nn.Module  # logits of the combinations `cells.hidden`, then of every useful attribute
    neighbourhoods: Neighbourhoods  # φ
    donors: Tensor  # (pool, dim) φ of donors, unit length
    cells: Cells
    potentials: Tensor  # (cells, pool) v_c
    useful_donors: tuple[Tensor, ...]  # (pool,) label of every donor, per useful attribute
    config: TransportConfig
    known: Mapping[str, IntArray] = field(default_factory=dict)  # what the records to release carry: attribute -> (n,) class

    def probabilities(self, records: Tensor) -> Tensor:
        return self.mixed(self.look_at(records))

    def probabilities_at(self, rows: slice, records: Tensor) -> Tensor:
        if missing := [a.name for a in self.carried if a.name not in self.known]:
            raise MethodError(
                f"carried: expected the class of {', '.join(missing)} with every record, found none; give it with the records, "
                "or train without it under `carried`"
            )
        classes = torch.full((len(records), len(self.carried)), GUESSED)  # also of the padding
        for k, attribute in enumerate(self.carried):
            classes[: rows.stop - rows.start, k] = torch.from_numpy(self.known[attribute.name][rows])
        return self.mixed(self.look_at(records), self.agreeing(classes.to(records.device)))

    @property
    def carried(self) -> tuple[Attribute, ...]:
        """Attributes whose class every record has to carry at release."""
        return tuple(a for a in self.cells.known() if a.name in self.config.carried)

    def knowing(self, labels: Mapping[str, IntArray]) -> "TransportChannel":
        """The channel of records with these classes: only cells that agree with them are mixed."""
        return replace(self, known=labels)

    @functools.cached_property
    def carried_classes(self) -> Tensor:
        """(cells, carried attributes) the classes that select a cell."""
        classes = [self.cells.classes(a.name) for a in self.carried]
        return torch.from_numpy(np.array(classes, dtype=np.int64).reshape(len(classes), len(self.cells)).T).to(self.donors.device)

    def agreeing(self, classes: Tensor) -> Tensor:
        """(n, cells) which cells agree with these classes (n, carried attributes); all, where none does."""
        agree = ((classes[:, None] == self.carried_classes) | (classes[:, None] == GUESSED)).all(dim=2)
        return agree | ~agree.any(dim=1, keepdim=True)

    @functools.cached_property
    def _cell_heads(self) -> tuple[Tensor, tuple[tuple[int, Tensor], ...]]:
        """For every cell its combination of the first head, and its class of every known useful attribute with its place."""
        useful, known = with_role(self.cells.attributes, "useful"), self.cells.known()
        classes = [(k, torch.from_numpy(self.cells.classes(a.name))) for k, a in enumerate(useful) if a in known]
        device = self.donors.device
        return torch.from_numpy(self.cells.hidden).to(device), tuple((k, labels.to(device)) for k, labels in classes)

    def log_cells(self, seen: Seen) -> Tensor:
        """(n, cells) ln p(cell|x), up to a constant of each record: cells that never occurred are left out."""
        hidden, useful = self._cell_heads
        logs = seen.hidden[:, hidden]
        for place, classes in useful:
            logs = logs + seen.useful[place][:, classes]
        return logs

    @torch.inference_mode()
    def look_at(self, features: Tensor, exclusion: Exclusion | None = None) -> Seen:
        """The channel's view of these records, by blocks; raises MethodError when a record is left without any donor."""
        units = None
        if exclusion is not None:
            if len(np.unique(exclusion.donor_units)) == 1 and np.isin(exclusion.record_units, exclusion.donor_units).any():
                raise MethodError(
                    "pool.forbid: expected a donor for every record, found records without; raise pool.donors, or forbid less"
                )
            records, donors = (torch.from_numpy(u).to(features.device) for u in (exclusion.record_units, exclusion.donor_units))
            units = records, donors
        heads = logits_of(self.classifier, features, widths_of(self.cells))
        hidden, *useful = (F.log_softmax(head, dim=1) for head in heads)
        space = torch.cat([self.neighbourhoods(block) for block in features.split(BLOCK_ROWS)])
        return Seen(space, hidden, tuple(useful), units)

    def log_kernel(self, seen: Seen) -> Tensor:
        """k (n, pool), whatever donors are excluded."""
        kernel = seen.space @ self.donors.T / self.config.epsilon
        for logs, labels in zip(seen.useful, self.useful_donors, strict=True):
            kernel += self.config.useful_weight * logs[:, labels]
        return kernel

    @torch.inference_mode()
    def mixed(self, seen: Seen, possible: Tensor | None = None) -> Tensor:
        """P (n, pool) as released, mixed over the likeliest cells; `possible` (n, cells) excludes some."""
        kernel, logs, excluded = self.log_kernel(seen), self.log_cells(seen), seen.excluded()
        if possible is not None:
            logs = logs.masked_fill(~possible, -torch.inf)
        shares, cells = logs.softmax(dim=1).topk(min(self.config.likeliest, len(self.cells)), dim=1)
        shares = shares / shares.sum(dim=1, keepdim=True)
        if excluded is not None:  # a release excludes donors from the mixture: a cell counts by what it leaves to the others
            shares = (shares.log() + torch.stack([self._left(kernel, of, excluded) for of in cells.T], dim=1)).softmax(dim=1)
            kernel.masked_fill_(excluded, -torch.inf)
        mixed = torch.zeros_like(kernel)
        for share, likely in zip(shares.T, cells.T, strict=True):
            mixed += share[:, None] * F.softmax(kernel + self.potentials[likely], dim=1)
        return mixed

    def alone(self, seen: Seen, cells: Tensor) -> Tensor:
        """P (n, pool) of records that are known to belong to these cells."""
        kernel, excluded = self.log_kernel(seen), seen.excluded()
        if excluded is not None:
            kernel.masked_fill_(excluded, -torch.inf)
        return F.softmax(kernel.add_(self.potentials[cells]), dim=1)

    def _left(self, kernel: Tensor, cells: Tensor, excluded: Tensor) -> Tensor:
        """(n,) ln of the probability of all donors but the excluded ones, in these cells."""
        logits = kernel + self.potentials[cells]
        return logits.masked_fill(excluded, -torch.inf).logsumexp(dim=1) - logits.logsumexp(dim=1)
