"""The engine of the fully dynamic decision tree (FuDyADT): a tree, the order of arrival, and what is promised."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Hashes, Ints, Reals, Slots
from oubli.core.changes import Changes
from oubli.core.engine import Counterpart, Engine, Progress, Shape
from oubli.core.errors import CapacityError
from oubli.core.samples.arrays import Problem
from oubli.core.tree import check
from oubli.core.tree.feasibility import find_broken_promises
from oubli.core.tree.parameters import MAX_SAMPLES, TreeParameters
from oubli.core.tree.state import N_TAGS
from oubli.core.tree.tree import Tree
from oubli.core.tree.window import Window

# A batch that is larger than both, in samples and as a share of those held, costs more to take in or out one by
# one than to build the tree anew.
_REBUILD_SHARE = 0.1
_REBUILD_SIZE = 1000
_CELLS_OF_READING = 20  # what reading a cell of a sample from Python takes, in such
_CELLS_A_SECOND = 10_000_000  # sorted and divided by a build, roughly: numeric columns, half the speed of some machine


class TreeEngine(Engine):
    """A tree that depends on its history within the bounds of its guarantee, until it is built anew."""

    prefix = check.PREFIX
    format = 1

    settings: TreeParameters

    def __init__(self, settings: TreeParameters, *columns: Any) -> None:
        self.tree = Tree(settings.tree, columns[0], 2, *columns[1:3])
        super().__init__(settings, *columns)
        self.keeps_order = settings.window is not None
        self.window: Window | None = None if settings.window is None else Window(settings.window)

    @property
    def changes(self) -> Changes:
        """Those of the tree, which opens a section of its own when it is built anew for a query."""
        return self.tree.changes

    @changes.setter
    def changes(self, changes: Changes) -> None:
        self.tree.changes = changes

    # -- learning -------------------------------------------------------------------------------

    @staticmethod
    def check_capacity(settings: TreeParameters, n_samples: int, n_slots: int = 0) -> None:
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a tree holds at most {MAX_SAMPLES} samples")

    def enqueue(self, slots: Slots) -> Slots:
        size = self.settings.window
        if size is None:
            return slots[:0]
        self.window = Window(size, slots[-size:].tolist())
        return slots[:-size]

    def leaving(self, n_new: int, slots: Sequence[int] = ()) -> list[int]:
        return [] if self.window is None else self.window.leaving(n_new, slots)

    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        tree = self.tree.built(problem.data, slots, len(problem.ranks))
        # One statement: no exception comes between its parts.
        self.tree, self.n_mutations = tree, 0
        if progress is not None:
            progress(1, 1)

    def _is_built_anew(self, n_changed: int, n_samples: int) -> bool:
        """Whether the tree is built anew when so many of the samples held have come, or will go.

        With an epsilon of 0 that comes to the same as learning them one by one, each of which builds the tree anew.
        """
        is_large = n_changed > _REBUILD_SIZE and n_changed > _REBUILD_SHARE * n_samples
        return is_large or self.settings.tree.epsilon == 0.0

    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        tree, window, data, planted = self.tree, self.window, problem.data, None
        if len(problem.ranks) > tree.arrays_.counts.shape[1]:
            tree.widen(len(problem.ranks))
        n = len(slots)
        if n > 1 and self._is_built_anew(n, problem.n_samples):
            planted = self._planted_without(problem, self.leaving(n, slots.tolist()))
        elif len(data.targets) > len(tree.arrays_.links):
            tree.reserve_slots(data)
        tree.changes.undo = None
        if window is not None:
            n += self._slide(window, problem, slots, lazy, is_planted=planted is not None)
        elif planted is None:
            tree.exchange(data, slots, n, lazy=lazy)
        if planted is not None:
            self.tree = planted
        self.n_mutations += n

    def _slide(self, window: Window, problem: Problem, slots: Slots, lazy: bool, *, is_planted: bool) -> int:
        """Take in samples one by one, each in the place of the oldest if the window is full; returns how many left."""
        n_left = 0
        for slot in slots.tolist():
            oldest = window.append(slot)
            n_left += oldest is not None
            if not is_planted:
                moved = [slot] if oldest is None else [slot, oldest]
                self.tree.exchange(problem.data, np.array(moved, np.int64), 1, lazy=lazy)
        return n_left

    def _planted_without(self, problem: Problem, leaving: Any) -> Tree:
        stays = problem.held.copy()
        stays[leaving] = False
        return self.tree.planted(problem.data, np.flatnonzero(stays))

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        tree, n, planted = self.tree, len(slots), None
        if n > 1 and self._is_built_anew(n, problem.n_samples):
            planted = self._planted_without(problem, slots)
        tree.changes.undo = None
        if self.window is not None:
            self.window.remove(slots.tolist())
        if planted is None:
            tree.exchange(problem.data, slots, 0, lazy=lazy)
        else:
            self.tree = planted
        self.n_mutations += n

    @property
    def n_tags(self) -> int:
        n_tags: int = self.tree.arrays_.meta.item(N_TAGS)
        return n_tags

    def resolve(self, problem: Problem, max_tags: int | None = None) -> int:
        """Build the subtrees of all tags and return how many there were; or those of `max_tags` at most."""
        return self.tree.resolve(problem.data, max_tags)

    # -- reading --------------------------------------------------------------------------------

    def counts(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> npt.NDArray[np.integer[Any]]:
        """Class counts of each row's leaf in the order of the classes, int[n, n_classes]; int[n_classes] for one row.

        Arrays of one dimension are so much faster that a single row is worth the exception.
        """
        tree = self.tree
        if len(cells) == 1 and not (frozen and tree.n_tags):
            return tree.count_one(lambda: problem().data, cells, category_hashes)[class_order]
        counts = tree.counts(problem().data, cells, category_hashes, frozen=frozen)
        return counts[0, class_order] if len(cells) == 1 else counts.take(class_order, axis=1)

    def predict(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> Reals:
        counts = self.counts(cells, category_hashes, class_order, problem, frozen)
        shares: Reals
        if counts.ndim == 1:
            shares = (counts / counts.sum())[np.newaxis]
        else:
            shares = counts / counts.sum(axis=1, keepdims=True)
        return shares

    def importances(self) -> Reals:
        return self.tree.importances()

    def header(self) -> dict[str, Any]:
        return dict(vars(self.settings.tree))

    def digests(self, class_order: Ints) -> list[str]:
        return [self.tree.digest(class_order)]

    @property
    def nbytes(self) -> int:
        return self.tree.nbytes

    def seconds_to_verify(self, problem: Problem) -> float:
        depth = min(self.settings.tree.max_depth, 32)
        return problem.n_samples * self.n_features * (depth + _CELLS_OF_READING) / _CELLS_A_SECOND

    def takes_long(
        self, n_changed: int, row: Callable[[], tuple[Array, Hashes]], problem: Callable[[], Problem], seconds: float
    ) -> bool:
        n_rows = int(seconds * _CELLS_A_SECOND / self.n_features)
        if 2 * self.tree.n_samples <= n_rows:
            return False
        n_updates = n_changed if self.window is None else 2 * n_changed
        if self.tree.n_short_updates(n_rows) >= max(n_updates, 1):
            return False
        return n_updates != 1 or self.tree.n_built_by(*row()) > n_rows

    # -- keeping --------------------------------------------------------------------------------

    def copy(self) -> Self:
        other = self.counterpart()
        other.tree, other.n_mutations = self.tree.copy(), self.n_mutations
        if self.window is not None:
            other.window = Window(self.window.size, self.window.slots())
        return other

    def wipe(self) -> None:
        """Overwrite the working space.

        What a sample leaves in slots, tables, leaves and pools is overwritten when it goes; splits that were chosen
        with it stay, until the tree is built anew.
        """
        self.tree.wipe_working_space()

    def shred(self) -> None:
        self.tree.shred()

    def arrays(self) -> Arrays:
        """The tree, see `serialise.py`, and what is known from the samples.

        held          bool[slots]: which slots hold samples
        class_counts  int64[classes]: samples by class code

        They say how much room a tree takes, and make a file that asks for more room than it has samples for as large as
        that.
        """
        arrays = self.tree.arrays()
        members = arrays["members"]
        held = np.zeros(int(members.max()) + 1 if len(members) else 0, np.bool_)
        held[members] = True
        return {**arrays, "held": held, "class_counts": self.tree.class_counts()}

    def take_over(self, arrays: Arrays, problem: Problem, slots: Slots) -> None:
        width = len(arrays["class_counts"])
        self.tree = Tree.from_arrays(self.settings.tree, width, arrays, problem.data, slots)

    @staticmethod
    def bytes_asked(settings: TreeParameters, shape: Shape, arrays: Arrays) -> int:
        """Bytes of the tree that is made of a file, roughly: each node counts all classes that there is room for."""
        if not arrays:
            return 0
        n_nodes, width = len(arrays["child"]), len(arrays["class_counts"])
        return 2 * n_nodes * (4 * width + 64) + 32 * width + 32 * shape.n_codes

    @classmethod
    def check_file(cls, document: Mapping[str, Any], arrays: Arrays, *, with_trees: bool) -> None:
        check.check_description(document, arrays, with_trees=with_trees)

    # -- checking -------------------------------------------------------------------------------

    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        """Name the counters that differ when they are counted anew on the samples."""
        tree, wrong = self.tree, []
        try:
            recounted = Tree.from_arrays(tree.settings, tree.width, tree.arrays(), problem.data, slots)
        except ValueError as error:
            wrong = [str(error)]
        else:
            wrong = check.compare(tree.arrays_, recounted.arrays_)
        return wrong + check.check_updates(tree.arrays_, tree.settings.epsilon)

    def broken_promises(self, problem: Problem, slots: Slots) -> list[str]:
        if not self.settings.is_feasible:
            return []
        return find_broken_promises(self.tree.arrays_, self.settings, problem.data, slots)

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        self.tree.check_invariants(problem.data, slots)
        if self.window is not None and self.window.slots() != slots.tolist():
            raise AssertionError("the window has other samples, or in another order, than the store")
