"""What the estimators ask of an engine: whoever grows the trees and keeps them up to date."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.problem import Problem
from oubli.core.boosting.state import Trees
from oubli.core.changes import Changes

Arrays = dict[str, npt.NDArray[Any]]
Slots = npt.NDArray[np.int64]


class Shape(NamedTuple):
    """How much a file says that there is, before anything is made of it.

    Attributes
    ----------
    n_slots : one more than the largest slot.
    n_samples : samples held.
    groups : trees an iteration, if there are any.
    categorical : bool[d], which columns are.
    is_classification : whether classes are predicted.
    """

    n_slots: int
    n_samples: int
    groups: int
    categorical: npt.NDArray[np.bool_]
    is_classification: bool


class Engine(Protocol):
    """Boosted trees over the samples of some slots; knows nothing of ids, labels and categories.

    Whatever is raised before `add` or `delete` sets `changes.undo` to None has changed nothing, and `grow` changes
    nothing before it has come to its end.
    """

    changes: Changes  # those of the samples' store, or its own

    @property
    def trees(self) -> Trees:
        """What predictions read."""
        ...

    @staticmethod
    def bytes_asked(settings: Any, shape: Shape, arrays: Arrays) -> int:
        """Bytes of the engine that is made of the arrays of a file, roughly; of a new one when there are no arrays."""
        ...

    @property
    def n_trees(self) -> int:
        """Trees held, those that predictions leave out included."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, working space included."""
        ...

    def grow(self, problem: Problem, slots: Slots, progress: Callable[[int, int], None] | None = None) -> None:
        """Forget everything and train on the samples of some slots."""
        ...

    def add(self, problem: Problem, slots: Slots) -> None:
        """Learn samples that have just joined the others."""
        ...

    def delete(self, problem: Problem, slots: Slots) -> None:
        """Unlearn samples that are about to leave; their cells and labels are still in place."""
        ...

    def importances(self) -> npt.NDArray[np.float64]:
        """Sum of the gains of all splits by feature, float64[d]."""
        ...

    def copy(self) -> Self:
        """An independent copy; O(size)."""
        ...

    def shred(self) -> None:
        """Overwrite the arrays that no copy shares; the trees cannot be used afterwards."""
        ...

    def wipe(self) -> None:
        """Overwrite the working space, so that it holds nothing of any sample."""
        ...

    def arrays(self) -> Arrays:
        """The trees as arrays for a file; nothing of unused capacity or of samples that have left."""
        ...

    def recount(self, problem: Problem, slots: Slots) -> list[str]:
        """Name the counters kept that the samples of `slots`, which are all, do not confirm."""
        ...

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        """Check everything kept for internal soundness; AssertionError names what is broken."""
        ...
