"""The samples held, as boosting reads them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.errors import CapacityError
from oubli.core.samples.arrays import Data


class Problem(NamedTuple):
    """Samples with their labels, by slot; engines only read them."""

    data: Data  # `targets`: class codes; not read in a regression
    ranks: npt.NDArray[np.int32]  # int32[n_codes]: place of a class code in the order of the classes; -1: not held
    n_classes: int  # classes held; 0 in a regression
    y: npt.NDArray[np.float64]  # float64[n_slots]: targets of a regression; empty otherwise


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
