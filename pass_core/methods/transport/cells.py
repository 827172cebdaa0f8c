"""Cells: records of one private class that agree in all that the recipient knows; and which of them must have equal donors."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from pass_core.channel.entanglement import joint_entropy
from pass_core.data import Attribute, IntArray, Records, combinations, with_role

FEWEST_RECORDS = 20  # on average of a known and a private class together: of fewer no distribution over donors is known
MOST_SHARED = 1e-3  # nats between a useful attribute and the private ones: what few records show by chance
NO_PART = -1  # in a cell's row: the attribute is neither private nor known


@dataclass(frozen=True, slots=True, kw_only=True)
class Hiding:
    """Whether a private attribute can be hidden from people who know another attribute."""

    known: str
    jointly: tuple[str, ...]  # the attributes, where it is several together
    settled: tuple[int, ...]  # classes of which all training records have the same private class: nothing can hide it there
    problem: str | None  # why this attribute makes no cells


def what_can_be_hidden(
    labels: Mapping[str, IntArray], attributes: tuple[Attribute, ...], known: tuple[str, ...]
) -> tuple[Hiding, ...]:
    """For every known attribute, and then for those together from which it can: for all, or where these have too few records in
    common, for the general ones. Identities make no cells, since they settle the private classes."""
    private = combinations([labels[a.name] for a in with_role(attributes, "private")])
    single = [_hiding(a, labels[a.name], private) for a in attributes if a.name in known and a.role != "private"]
    hideable = [a for a in attributes if any(each.known == a.name and not each.problem for each in single)]
    together = _together(hideable, labels, private)
    if together and together[0].problem:
        together = _together(with_role(tuple(hideable), "general"), labels, private) or together
    return (*single, *together)


def cell_attributes(
    labels: Mapping[str, IntArray], attributes: tuple[Attribute, ...], known: tuple[str, ...]
) -> tuple[Attribute, ...]:
    """The known attributes from whose knowers the private ones can be hidden."""
    found = {each.known for each in what_can_be_hidden(labels, attributes, known) if not (each.problem or each.jointly)}
    return tuple(a for a in attributes if a.name in found)


def _together(attributes: Sequence[Attribute], labels: Mapping[str, IntArray], private: IntArray) -> tuple[Hiding, ...]:
    """For their combination; empty where they are fewer than two."""
    names = tuple(a.name for a in attributes)
    if len(names) < 2:
        return ()
    found = _hiding(Attribute(" and ".join(names), (), "general"), combinations([labels[name] for name in names]), private)
    return (replace(found, jointly=names),)


def _hiding(attribute: Attribute, known: IntArray, private: IntArray) -> Hiding:
    pairs = np.unique(np.stack([known, private]), axis=1)
    classes, private_classes = np.unique(pairs[0], return_counts=True)
    settled = tuple(classes[private_classes == 1].tolist())
    shared = joint_entropy([known]) + joint_entropy([private]) - joint_entropy([known, private])
    problem = None
    if len(settled) == len(classes):
        problem = "each of its classes has one private class only"
    elif len(known) < FEWEST_RECORDS * pairs.shape[1]:
        problem = f"it has fewer than {FEWEST_RECORDS} records for each of its classes and private class"
    elif attribute.role == "useful" and shared > MOST_SHARED:
        # P(X'|S) = Σ_u P(u|S) P(X'|u) is the same for every S only where P(X'|u) is, so that nothing of u is left.
        problem = (
            f"it is useful and shares {shared:.3f} nats with the private ones; hiding those from people who know it, and from "
            "people who do not, would remove it"
        )
    return Hiding(known=attribute.name, jointly=(), settled=settled, problem=problem)


@dataclass(frozen=True, slots=True)
class Constraint:
    """Within every class of a known attribute, or of several together, all private classes have one distribution over donors."""

    known: str | None  # None: within all records
    groups: Tensor  # (cells,) number of the cell's pair of private and known class
    classes: tuple[Tensor, ...]  # the groups of each known class that has several private ones; the others stay as they are


@dataclass(frozen=True)
class Cells:
    """The cells that occur in training, by the classes of their attributes."""

    table: IntArray  # (cells, attributes)
    attributes: tuple[Attribute, ...]

    @classmethod
    def of(cls, data: Records, attributes: tuple[Attribute, ...], known: tuple[str, ...]) -> tuple[Self, IntArray]:
        """The cells of these records, and the number of every record's cell."""
        absent = np.full(len(data), NO_PART)
        parts = [data.labels[a.name] if a.role == "private" or a.name in known else absent for a in attributes]
        table, numbers = np.unique(np.stack(parts), axis=1, return_inverse=True)
        return cls(table.T.astype(np.int64), attributes), numbers.reshape(-1).astype(np.int64)

    def __len__(self) -> int:
        return len(self.table)

    def classes(self, name: str) -> IntArray:
        """(cells,) an attribute's class."""
        return self.table[:, [a.name for a in self.attributes].index(name)]

    def known(self) -> tuple[Attribute, ...]:
        """The known attributes that cells are made of."""
        return tuple(a for a in self.attributes if a.role != "private" and (self.classes(a.name) != NO_PART).all())

    @functools.cached_property
    def hidden(self) -> IntArray:
        """(cells,) the combination of private and known general classes: what p(cell|x) needs beside p(U|x)."""
        return combinations([self.classes(a.name) for a in self.attributes if a.role != "useful"])

    @property
    def n_hidden(self) -> int:
        """How many such combinations there are."""
        return int(self.hidden.max()) + 1

    def constraints(self, device: torch.device, *, jointly: tuple[str, ...]) -> tuple[Constraint, ...]:
        """First that of all records, then one for every known attribute, and one for several together if these are named."""
        private = combinations([self.classes(a.name) for a in with_role(self.attributes, "private")])
        known = {a.name: self.classes(a.name) for a in self.known()}
        within = [(None, np.zeros_like(private)), *known.items()]
        if jointly:
            within.append((" and ".join(jointly), combinations([known[name] for name in jointly])))
        return tuple(_constraint(name, private, classes, device) for name, classes in within)


def _constraint(name: str | None, private: IntArray, known: IntArray, device: torch.device) -> Constraint:
    groups = combinations([private, known])
    members = [np.unique(groups[known == label]) for label in np.unique(known)]
    hideable = tuple(torch.from_numpy(groups_).to(device) for groups_ in members if len(groups_) > 1)
    return Constraint(name, torch.from_numpy(groups).to(device), hideable)
