"""How much may come or go at once before all trees are grown anew, and what the last update did."""

from dataclasses import dataclass

from oubli.core.array_types import Slots


@dataclass
class LastUpdate:
    """What the last addition or deletion did.

    Attributes
    ----------
    nodes_checked : nodes that were asked whether their split still has its place.
    nodes_retrained : subtrees that were trained anew.
    samples_retrained : the samples in them, added up.
    grown : whether all trees were grown anew: the number of classes became 3, or was; the samples are more than twice
        as many as when they were grown last; too many samples came or went at once; a target of a regression is out
        of reach.
    """

    nodes_checked: int = 0
    nodes_retrained: int = 0
    samples_retrained: int = 0
    grown: bool = False


# A batch of more than one in so many samples held is too much: growing all anew takes no longer.
MOST_CHANGED = 5
# So is one of more than one in so many, when these are many. Growing anew takes some four times as long as an update in
# place; but leaves that are behind by 4 % remember what was deleted, such as a trigger that all deleted samples had.
MOST_OF_MANY = 60
MANY = 100


def is_too_much(n_moved: int, n_held: int) -> bool:
    """Whether all trees are grown anew when so many samples come or go; n_held: afterwards."""
    return MOST_CHANGED * n_moved > n_held or (n_moved > MANY and MOST_OF_MANY * n_moved > n_held)


def room_for(slots: Slots) -> int:
    """Slots to make room for: some more than there are, so that adding one seldom moves everything."""
    n_slots = int(slots.max()) + 1 if len(slots) else 0
    return n_slots + n_slots // 16 + 16
