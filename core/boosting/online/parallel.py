"""Growing all trees in threads, with the result that `grow.grow_tree` has in one.

Trees of several classes are grown side by side, if there are as many as threads; else the samples are cut into blocks
of rows, and all threads grow one tree together, see `blocks.py`.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from oubli.core import threads
from oubli.core.array_types import Slots
from oubli.core.boosting import rows as cutting
from oubli.core.boosting.crews import lead
from oubli.core.boosting.online.blocks import begin_in_blocks, grow_in_blocks, help_out, make_blocks
from oubli.core.boosting.online.candidates import Candidates
from oubli.core.boosting.online.discretise import Bins
from oubli.core.boosting.online.grow import Space, grow_tree
from oubli.core.boosting.online.state import Forest, Labels, Rules
from oubli.core.boosting.online.workspace import Layout, Rows
from oubli.core.jit.crew import make_crew


class ThreadedGrowing:
    """All trees, grown in threads on the samples of some slots.

    rows : these samples at hand.
    new_space : makes working space for so many samples.
    """

    def __init__(
        self,
        forest: Forest,
        bins: Bins,
        candidates: Candidates,
        layout: Layout,
        rules: Rules,
        labels: Labels,
        rows: Rows,
        codes: npt.NDArray[np.uint16],
        slots: Slots,
        new_space: Callable[[int], Space],
        n_threads: int,
    ) -> None:
        groups, n, width = len(labels.base), len(slots), codes.shape[1]
        n_blocks = cutting.n_blocks(n, width, n_threads)
        self._by_tree = groups > 1 and (groups >= n_threads or n_blocks == 1)
        self.pays = n_blocks > 1 or (self._by_tree and cutting.n_blocks(n * groups, width, n_threads) > 1)
        if not self.pays:
            return
        self._n_threads, self._groups = n_threads, groups
        self._most_alone = cutting.most_alone(width, n_threads)
        self._blocks = make_blocks(n, n_blocks, forest.values.shape[1], candidates.n_bins, groups)
        self._space, self._sums = new_space(n), np.zeros((groups, n))
        self._trees = forest, bins, candidates, layout, rules
        self._parts = *self._trees, labels, rows, codes, slots, self._sums, self._space, self._blocks
        self._crew = make_crew(n_blocks)
        self._own = [
            (new_space(n), rows._replace(packed=np.zeros_like(rows.packed)))
            for _ in range(min(n_threads, groups) if self._by_tree else 0)
        ]

    def erase(self) -> None:
        """Overwrite what samples have left."""
        spaces = [self._space, *(space for space, _ in self._own)]
        packed = [rows.packed for _, rows in self._own]
        for array in (*self._blocks, self._sums, *packed, *(array for space in spaces for array in space)):
            array.fill(0)

    def grow_iterations(self, begin: int, end: int) -> None:
        """Grow the trees of some iterations, whose turn it is."""
        if not self._by_tree:
            self._lead(partial(grow_in_blocks, self._crew, begin, end, self._most_alone))
            return
        for iteration in range(begin, end):
            self._lead(partial(begin_in_blocks, self._crew, iteration))
            trees = range(iteration * self._groups, (iteration + 1) * self._groups)
            threads.run([partial(self._grow_one, iteration, tree) for tree in trees], self._n_threads)

    def _lead(self, work: Callable[..., None]) -> None:
        """Do something with the crew."""
        lead(self._crew, partial(work, *self._parts), partial(help_out, self._crew, *self._parts))

    def _grow_one(self, iteration: int, tree: int) -> None:
        """Grow a tree alone; derivatives are its own, the bins of the samples everyone's."""
        space, rows = self._own.pop()
        *_, codes, slots, _, _, _ = self._parts
        grow_tree(*self._trees, rows, codes, slots, space, iteration, tree, True)
        self._own.append((space, rows))
