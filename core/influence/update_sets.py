"""Which samples' changes a step takes into account (section 3.1.3 of the paper).

A tree is made of the derivatives at the scores that the trees before it give. When a sample goes, all those scores
change; the *update set* of a tree says whose changes its leaves see. Scores themselves are always kept up to date.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oubli.core.errors import InputError

ALL = -1  # as the kernels know it: otherwise the number of leaves


@dataclass(frozen=True)
class SinglePoint:
    """No changes: only the sample itself leaves its leaves, as in a forest."""

    n_leaves: ClassVar[int] = 0  # for the kernels


@dataclass(frozen=True)
class TopKLeaves:
    """The changes of the samples in the k leaves of the tree that have seen most of it, sum |change| (equation 3).

    Of several scores a sample (softmax), the changes of all are summed.
    """

    k: int

    @property
    def n_leaves(self) -> int:
        """For the kernels."""
        return self.k


@dataclass(frozen=True)
class AllPoints:
    """All changes: no approximation."""

    n_leaves: ClassVar[int] = ALL


UpdateSet = SinglePoint | TopKLeaves | AllPoints


def read_update_set(value: Any) -> UpdateSet:
    """Read "all", "single", or a number k of leaves.

    Raises
    ------
    InputError
        For anything else.
    """
    if isinstance(value, (SinglePoint, TopKLeaves, AllPoints)):
        return value
    if isinstance(value, str) and value == "all":
        return AllPoints()
    if isinstance(value, str) and value == "single":
        return SinglePoint()
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1:
        return TopKLeaves(int(value))
    raise InputError(f'update_set={value!r} must be "all", "single" or a number of leaves of at least 1')
