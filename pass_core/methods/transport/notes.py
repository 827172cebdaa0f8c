"""What transport leaves visible, in sentences for the training report; no record's class is in them."""

from collections.abc import Mapping, Sequence

from pass_core.data import Attribute, IntArray, shown_classes, with_role
from pass_core.methods.transport.cells import Constraint, what_can_be_hidden
from pass_core.methods.transport.projections import Projection


def not_hidden(
    labels: Mapping[str, IntArray], attributes: tuple[Attribute, ...], known: tuple[str, ...], persons: Sequence[str]
) -> tuple[str, ...]:
    """What no training can hide from people who know an attribute; `persons` say whose each record is."""
    notes, classes = [], {a.name: a.classes for a in attributes}
    for hiding in what_can_be_hidden(labels, attributes, known):
        whose = f"the private attributes from people who know {hiding.known}{' together' if hiding.jointly else ''}"
        if hiding.problem:
            notes.append(f"training does not hide {whose}: {hiding.problem}")
        elif hiding.settled and hiding.jointly:  # a combination may be one person's: they are counted, not named
            notes.append(
                f"nothing can hide {whose} in {len(hiding.settled)} combinations where all records have one private class"
            )
        elif hiding.settled:
            shown = shown_classes(classes[hiding.known], labels[hiding.known], persons)
            settled = ", ".join(shown[k] for k in hiding.settled)
            notes.append(f"nothing can hide {whose} in classes where all records have the same private class: {settled}")
    return tuple(notes)


def left_over(
    constraints: Sequence[Constraint], found: Sequence[Projection], attributes: tuple[Attribute, ...], limit: float, rounds: int
) -> tuple[str, ...]:
    """The constraints of which more nats are left after the last round than the limit allows."""
    private = " and ".join(a.name for a in with_role(attributes, "private"))
    return tuple(
        f"after {rounds} rounds, {'anybody' if constraint.known is None else f'who knows {constraint.known}'} still learns "
        f"{each.information:.4f} nats of {private} from training records, above the limit of {limit:g}: raise rounds or epsilon"
        for constraint, each in zip(constraints, found, strict=True)
        if each.information > limit
    )
