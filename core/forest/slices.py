"""What leaves said before a change that is made in slices, so that predictions between two slices are as they were.

A change of samples counts and tags, and leaves every split as it is. Of what a prediction without tags reads it changes
the leaves alone: how many samples they have, and of what targets. So when a slice is made, the leaves that it has
reached say again what they said before the change. A slice that reaches one of them again begins with what the slices
before have made of it:

    reach, change, hide | predictions | reach, change, hide | predictions | show
"""

from typing import NamedTuple

import numpy as np

from oubli.core.array_types import Array
from oubli.core.forest.state import Trees


class _Said(NamedTuple):
    """What leaves say."""

    n_samples: Array
    statistics: Array


class ReachedLeaves:
    """The leaves that a change has reached so far.

    Parameters
    ----------
    trees : whose nodes and statistics stay where they are during the change.
    n_most : leaves that may be reached.
    """

    def __init__(self, trees: Trees, n_most: int) -> None:
        self._nodes, self._statistics = trees.nodes, trees.statistics
        self._place = np.zeros(len(trees.nodes), np.int32)  # by the row of a leaf's node: one more than its place here
        self._rows, self._leaves = np.empty(n_most, np.int32), np.empty(n_most, np.int32)
        self._before, self._after = self._empty(n_most), self._empty(n_most)
        self._now: Array = self._rows[:0]  # the places of the leaves that this slice has reached
        self._n = 0

    def _empty(self, n_most: int) -> _Said:
        statistics = self._statistics
        return _Said(np.empty(n_most, np.int32), np.empty((n_most, statistics.shape[1]), statistics.dtype))

    def reach(self, ends: Array) -> None:
        """Begin a slice that changes leaves, given by the rows of their nodes."""
        rows = np.unique(ends)
        places = self._place[rows] - 1
        is_new = places < 0
        self._say(self._after, places[~is_new])
        fresh = rows[is_new]
        new = np.arange(self._n, self._n + len(fresh), dtype=np.int32)
        self._n += len(fresh)
        self._rows[new], self._leaves[new] = fresh, ~self._nodes["child"][fresh]
        self._place[fresh], places[is_new] = new + 1, new
        self._keep(self._before, new)
        self._now = places

    def hide(self) -> None:
        """End a slice: what it has changed says what it said before the first one."""
        self._keep(self._after, self._now)
        self._say(self._before, self._now)

    def show(self) -> None:
        """Have all leaves say what the slices have made of them, and overwrite what is kept: it counts samples."""
        self._say(self._after, np.arange(self._n))
        for array in (*self._before, *self._after):
            array[: self._n] = 0

    def _keep(self, said: _Said, places: Array) -> None:
        said.n_samples[places] = self._nodes["n_samples"][self._rows[places]]
        said.statistics[places] = self._statistics[self._leaves[places]]

    def _say(self, said: _Said, places: Array) -> None:
        self._nodes["n_samples"][self._rows[places]] = said.n_samples[places]
        self._statistics[self._leaves[places]] = said.statistics[places]
