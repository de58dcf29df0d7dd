"""How many trees there are, and whether their nodes can be numbered."""

from oubli.core.errors import CapacityError
from oubli.core.samples.arrays import Problem


def n_groups(problem: Problem, n_samples: int) -> int:
    """Trees an iteration: one for a regression and for two classes, one a class for more, none without a choice."""
    if n_samples == 0 or problem.n_classes == 1:
        return 0
    return problem.n_classes if problem.n_classes > 2 else 1


MAX_NODES = 2**31 - 1  # rows of nodes are int32


def check_size(n_estimators: int, groups: int, nodes_a_tree: int) -> None:
    """CapacityError when the nodes of all trees cannot be numbered."""
    if n_estimators * groups * nodes_a_tree > MAX_NODES:
        raise CapacityError(
            f"{n_estimators} iterations of {groups} trees with up to {nodes_a_tree} nodes each exceed {MAX_NODES} "
            "nodes: lower `n_estimators` or the size of the trees, or put classes together"
        )
