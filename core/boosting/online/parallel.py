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
from oubli.core.boosting.online.blocks import (
    count_block,
    derive_block,
    grow_on,
    label_block,
    make_blocks,
    split_block,
)
from oubli.core.boosting.online.candidates import Candidates
from oubli.core.boosting.online.discretise import Bins
from oubli.core.boosting.online.grow import Space, grow_tree
from oubli.core.boosting.online.state import Forest, Labels, Rules
from oubli.core.boosting.online.workspace import Layout, Rows


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
        self._forest, self._bins, self._candidates, self._layout, self._rules = forest, bins, candidates, layout, rules
        self._labels, self._rows, self._codes, self._slots = labels, rows, codes, slots
        self._n_threads = n_threads
        groups, n, width = len(labels.base), len(slots), codes.shape[1]
        n_blocks = cutting.n_blocks(n, width, n_threads)
        self._by_tree = groups > 1 and (groups >= n_threads or n_blocks == 1)
        self.pays = n_blocks > 1 or (self._by_tree and cutting.n_blocks(n * groups, width, n_threads) > 1)
        if not self.pays:
            return
        n_leaves = forest.values.shape[1]
        self._blocks = make_blocks(n, n_blocks, n_leaves, candidates.n_bins, groups)
        self._sums = np.zeros((groups, n))
        self._most_alone = cutting.most_alone(width, n_threads)
        self._space = new_space(n)
        self._own: list[tuple[Space, Rows]] = []
        if self._by_tree:
            self._own = [
                (new_space(n), rows._replace(packed=np.zeros_like(rows.packed))) for _ in range(min(n_threads, groups))
            ]

    def erase(self) -> None:
        """Overwrite what samples have left."""
        spaces = [self._space, *(space for space, _ in self._own)]
        packed = [rows.packed for _, rows in self._own]
        for array in (*self._blocks, self._sums, *packed, *(array for space in spaces for array in space)):
            array.fill(0)

    def grow_iteration(self, iteration: int) -> None:
        """Grow the trees of an iteration, whose turn it is."""
        groups = len(self._labels.base)
        self._run(self._begin, iteration)
        first_tree = iteration * groups
        if self._by_tree:
            trees = [partial(self._grow_one, iteration, first_tree + k) for k in range(groups)]
            threads.run(trees, self._n_threads)
            return
        for k in range(groups):
            if k > 0:
                self._run(self._count, iteration, first_tree + k)
            self._grow_together(iteration, first_tree + k)
            self._run(self._label, first_tree + k)

    def _run(self, work: Callable[..., None], *arguments: int) -> None:
        """Have all blocks do something."""
        threads.run([partial(work, block, *arguments) for block in range(self._blocks.number)], self._n_threads)

    def _begin(self, block: int, iteration: int) -> None:
        derive_block(self._forest, self._labels, self._sums, self._slots, self._blocks, block, iteration)
        self._count_rows(block, iteration, iteration * len(self._labels.base), are_placed=False)

    def _count(self, block: int, iteration: int, tree: int) -> None:
        self._count_rows(block, iteration, tree, are_placed=True)

    def _count_rows(self, block: int, iteration: int, tree: int, *, are_placed: bool) -> None:
        count_block(
            self._forest, self._bins, self._candidates, self._layout, self._rules, self._rows, self._codes,
            self._slots, self._space, self._blocks, block, iteration, tree, are_placed,
        )  # fmt: skip

    def _label(self, block: int, tree: int) -> None:
        label_block(self._forest, self._slots, self._space, self._blocks, block, tree)

    def _split(self, block: int, iteration: int) -> None:
        split_block(
            self._bins, self._candidates, self._layout, self._rows, self._codes, self._slots, self._space,
            self._blocks, block, iteration,
        )  # fmt: skip

    def _grow_together(self, iteration: int, tree: int) -> None:
        begins = True
        while grow_on(
            self._forest, self._bins, self._candidates, self._layout, self._rules, self._rows, self._codes,
            self._slots, self._space, self._blocks, iteration, tree, self._most_alone, begins,
        ):  # fmt: skip
            begins = False
            self._run(self._split, iteration)

    def _grow_one(self, iteration: int, tree: int) -> None:
        """Grow a tree alone; derivatives are its own, the bins of the samples everyone's."""
        space, rows = self._own.pop()
        grow_tree(
            self._forest, self._bins, self._candidates, self._layout, self._rules, rows, self._codes, self._slots,
            space, iteration, tree, True,
        )  # fmt: skip
        self._own.append((space, rows))
