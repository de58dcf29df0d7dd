"""What the last update did."""

from dataclasses import dataclass

from oubli.core.array_types import Ints
from oubli.core.boosting.quantised import state as s


@dataclass(frozen=True)
class LastUpdate:
    """What the last update did.

    Attributes
    ----------
    nothing_changed : no split, no leaf's value; only sums.
    first_tree : the first tree that changed; -1 when none did.
    n_touched : samples held whose derivatives changed, over all trees.
    n_trees_rebuilt : trees that changed.
    n_nodes_rebuilt : nodes below which everything was grown anew.
    n_members : samples in these.
    grown_from : the iteration from which on all was grown anew; -1 when none was.
    """

    nothing_changed: bool = False
    first_tree: int = 0
    n_touched: int = 0
    n_trees_rebuilt: int = 0
    n_nodes_rebuilt: int = 0
    n_members: int = 0
    grown_from: int = 0


def read_report(report: Ints, groups: int, grown_from: int) -> LastUpdate:
    """Read what the kernels reported; grown_from: the iteration from which on all was grown anew, or -1."""
    first = int(report[s.FIRST_TREE])
    if first < 0 and grown_from >= 0:
        first = grown_from * groups
    return LastUpdate(
        nothing_changed=first < 0,
        first_tree=first,
        n_touched=int(report[s.N_TOUCHED]),
        n_trees_rebuilt=int(report[s.N_TREES]),
        n_nodes_rebuilt=int(report[s.N_NODES]),
        n_members=int(report[s.N_MEMBERS]),
        grown_from=grown_from,
    )
