"""More room in the pools of a forest; nothing in them changes."""

from oubli.core.errors import CapacityError
from oubli.core.forest.parameters import MAX_ENTRIES
from oubli.core.forest.state import N_LEAVES, N_MEMBERS, N_NODES, Trees
from oubli.core.jit import aligned


def with_entries(trees: Trees, needed: int) -> Trees:
    """Make room for so many entries, a sample having one for each of its trees."""
    capacity = len(trees.places)
    if needed <= capacity:
        return trees
    return trees._replace(places=aligned.enlarged(trees.places, max(needed, capacity + capacity // 4)))


def with_members(trees: Trees, n_members: int) -> Trees:
    """Make sure that so many places for entries have never been taken; CapacityError when there cannot be so many."""
    needed = int(trees.meta[N_MEMBERS]) + n_members
    capacity = len(trees.members)
    if needed <= capacity:
        return trees
    if needed > MAX_ENTRIES:
        raise CapacityError(
            f"the lists of leaves would exceed {MAX_ENTRIES} places: fit anew, or lower `occurrence` or `n_estimators`"
        )
    return trees._replace(
        members=aligned.enlarged(
            trees.members, min(max(needed, capacity + capacity // 8), MAX_ENTRIES), trees.meta.item(N_MEMBERS)
        )
    )


def with_nodes(trees: Trees, n_nodes: int, n_leaves: int) -> Trees:
    """Make room for so many nodes and leaves."""
    if n_nodes > len(trees.nodes):
        trees = trees._replace(nodes=aligned.enlarged(trees.nodes, n_nodes, trees.meta.item(N_NODES)))
    if n_leaves > len(trees.starts):
        n_used = trees.meta.item(N_LEAVES)
        names = "starts", "rooms", "statistics"
        trees = trees._replace(**{name: aligned.enlarged(getattr(trees, name), n_leaves, n_used) for name in names})
    return trees
