"""The base of the engines of boosting: their trees are read alike, however they are kept up to date.

The canonical form of a tree is 64-bit little-endian words in path order (a node, its left subtree, its right subtree),
exactly what prediction reads and nothing of the history:

    inner node    1, feature, 0 or 1 for a category, missing direction, threshold bits or category hash
    leaf          0, bits of the value
"""

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np

from oubli.core.array_types import Array, Hashes, Ints, Reals, Slots
from oubli.core.boosting.loss import KINDS, POISSON, losses_at, means_of, sigmoids, softmaxes
from oubli.core.boosting.predict import answer_one, raw_scores, staged_scores
from oubli.core.boosting.rows import cut, n_blocks
from oubli.core.boosting.state import LEAF, Trees, are_right, goes_right
from oubli.core.boosting.weights import units_at, units_of
from oubli.core.concurrency.threads import run
from oubli.core.engine import Counterpart, Engine, Progress, Split, TreeFacts, TreeLook
from oubli.core.errors import CapacityError, ensure
from oubli.core.explanation.trees import NODE, Leaves, WeightedTrees, kept_in
from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, ONE_VS_REST
from oubli.core.jit.policy import kernel
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Problem

_WORDS_A_NODE = 5

MAX_SAMPLES = 2**24 - 1  # what sums in fixed point have room for
_LARGEST = float(np.finfo(np.float64).max)
_HUGE = 2.0**900  # units from which on, of a regression on the largest numbers, a sum of leaves may overflow
_LEAST = 1e-15  # a probability, as in `core/influence/losses.py`
_CELLS_A_SECOND = 200_000_000  # of a sample in a tree, summed and divided by training, roughly
_READ_A_SECOND = 1_000_000  # cells read one by one
_CELLS_A_TREE = 10  # that a row's way through a tree is worth, in cells that training sums


class BoostedLook(TreeLook):
    """Reads a tree. How many samples come through a node is counted for those that are looked at.

    Parameters
    ----------
    trees : as predictions read them.
    tree : number of the tree.
    problem : the samples held, with the cells that trees read.
    sources : of columns that are statistics, the column held that they are of; None: all columns are held.
    """

    def __init__(self, trees: Trees, tree: int, problem: Problem, sources: Ints | None = None) -> None:
        self._sources = sources
        groups = trees.n_groups
        self._nodes, self._unit, self._data = trees.nodes, trees.unit, problem.data
        self.facts = TreeFacts("score", tree // groups, tree % groups if groups > 1 else None)
        self.root = int(trees.roots[tree])
        self._members: dict[int, Ints] = {self.root: problem.slots()}

    def left(self, node: int) -> int | None:
        record = self._nodes[node]
        if int(record["feature"]) == LEAF:
            return None
        left = int(record["left"])
        if left not in self._members:
            members = self._members[node]
            goes_right = are_right(record, self._data, members)
            self._members[left], self._members[left + 1] = members[~goes_right], members[goes_right]
        return left

    def split(self, node: int) -> Split:
        record = self._nodes[node]
        feature = int(record["feature"])
        if self._sources is not None and int(self._sources[feature]) != feature:
            source = int(self._sources[feature])
            number = feature - int(np.flatnonzero(self._sources[: feature + 1] == source)[1])
            return Split(source, float(record["threshold"]), statistic=number, column=feature)
        if record["is_categorical"]:
            return Split(feature, category=int(record["category"]))
        return Split(feature, float(record["threshold"]), bool(record["missing_left"]))

    def n_samples(self, node: int) -> int:
        return len(self._members[node])

    def says(self, node: int) -> tuple[list[float] | None, float | None]:
        record = self._nodes[node]
        return None, float(record["value"]) * self._unit if int(record["feature"]) == LEAF else None


@kernel
def write_tree(nodes, value_bits, root, stack, words):
    """Write the words of the tree at a root; returns their number.

    value_bits  uint64[nodes], the values' bits
    stack       int64[nodes + 1], working space
    words       uint64[5 * nodes], written
    """
    stack[0] = root
    n_waiting = 1
    size = 0
    while n_waiting > 0:
        n_waiting -= 1
        node = stack[n_waiting]
        if nodes[node]["feature"] == LEAF:
            words[size] = np.uint64(0)
            words[size + 1] = value_bits[node]
            size += 2
            continue
        words[size] = np.uint64(1)
        words[size + 1] = np.uint64(nodes[node]["feature"])
        words[size + 2] = np.uint64(nodes[node]["is_categorical"])
        words[size + 3] = np.uint64(nodes[node]["missing_left"])
        words[size + 4] = nodes[node]["category"]
        size += _WORDS_A_NODE
        left = np.int64(nodes[node]["left"])
        stack[n_waiting] = left + 1
        stack[n_waiting + 1] = left
        n_waiting += 2
    return size


def tree_digests(trees: Trees) -> list[str]:
    """SHA-256 of each tree, hexadecimal, in order. O(nodes)."""
    nodes = trees.nodes
    value_bits = nodes["value"].astype("<f8").view("<u8")
    stack = np.zeros(len(nodes) + 1, np.int64)
    words = np.zeros(_WORDS_A_NODE * len(nodes), np.uint64)
    digests = []
    for root in trees.roots.tolist():
        size = write_tree(nodes, value_bits, root, stack, words)
        digests.append(hashlib.sha256(words[:size].astype("<u8").tobytes()).hexdigest())
    return digests


@kernel
def add_covers(nodes, roots, data, units, slots, covers):
    """Add the weight of each sample, in units, to int64[nodes] of the nodes that it comes through; O(n T depth)."""
    for tree in range(roots.shape[0]):
        for i in range(slots.shape[0]):
            slot, node = slots[i], np.int64(roots[tree])
            covers[node] += units_at(units, slot)
            while nodes[node]["feature"] != LEAF:
                side = goes_right(nodes, node, data.cells, slot, data.category_hashes, MISSING_CATEGORY)
                node = np.int64(nodes[node]["left"]) + side
                covers[node] += units_at(units, slot)


class BoostedEngine(Engine):
    """Boosted trees over the samples of some slots; every tree depends on those before it."""

    prefix = "boosting."
    format = 1
    statistics: Any = ()  # of the labels by category, where trees read them; they move with the samples

    @property
    @abstractmethod
    def trees(self) -> Trees:
        """What predictions read."""

    @property
    @abstractmethod
    def n_trees(self) -> int:
        """Trees held, those that predictions leave out included."""

    @property
    def start_scores(self) -> list[float]:
        base: list[float] = self.trees.base.tolist()
        return base

    def read_queries(self, cells: Array, category_hashes: Hashes) -> tuple[Array, Hashes]:
        return self.statistics.read_queries(cells, category_hashes) if self.statistics else (cells, category_hashes)

    @property
    def kind(self) -> int | None:
        """The loss, if it is another one of numbers than squared error."""
        return KINDS.get(self.settings.loss)

    def loss_level(self, problem: Problem) -> float:
        """The quantile of a regression, or Huber's delta, as it is in force on the samples held."""
        return float(self.settings.level)

    @property
    def sources(self) -> Ints:
        """The column held that each column that trees read is of."""
        return self.statistics.sources if self.statistics else np.arange(self.n_features)

    def as_read(self, problem: Problem) -> Problem:
        """The problem with the cells that trees read."""
        return problem

    def counts_kept(self) -> Reals | None:
        """Samples that come through the nodes of `trees`, float64[nodes], where the engine keeps them."""
        return None

    @abstractmethod
    def gains(self) -> Reals:
        """Sum of the gains of all splits by feature, float64[d]."""

    @abstractmethod
    def find_differences(self, problem: Problem, slots: Slots) -> list[str]:
        """Name the counters kept that the samples of `slots`, which are all, do not confirm."""

    @staticmethod
    def check_capacity(settings: Any, n_samples: int, n_slots: int = 0) -> None:
        if n_samples > MAX_SAMPLES:
            raise CapacityError(f"a boosted model holds at most {MAX_SAMPLES} samples")

    # -- learning -------------------------------------------------------------------------------

    @abstractmethod
    def forget(self) -> None:
        """Hold no samples and no trees."""

    @abstractmethod
    def train_on(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        """Train on the samples of some slots, in an engine that holds nothing."""

    def in_threads(self, make: Callable[..., Any], *parts: Any) -> Any:
        """The training in threads; None where that does not pay, or memory is short."""
        if self.n_threads > 1:
            with suppress(MemoryError):
                training = make(*parts, self.n_threads)
                return training if training.pays else None
        return None

    def become(self, other: Self) -> None:
        self.changes.undo = None
        super().become(other)

    def fit(self, problem: Problem, slots: Slots, progress: Progress | None = None) -> None:
        """Forget everything and train on the samples of some slots: a function of the set of them.

        progress : called after each tree with how many are done, and how many there will be.
        """
        other = self.aside()
        other.forget()
        other.n_mutations = 0
        other.train_on(problem, slots, progress)
        with self.changes:
            self.become(other)

    def refit(self, problem: Problem, slots: Slots) -> None:
        """Fit as a part of a change, which is counted all the same."""
        n_mutations = self.n_mutations
        self.fit(problem, slots)
        self.n_mutations = n_mutations

    @abstractmethod
    def join(self, problem: Problem, slots: Slots) -> None:
        """Learn samples that have just joined the others."""

    @abstractmethod
    def leave(self, problem: Problem, slots: Slots) -> None:
        """Unlearn samples that are about to leave."""

    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        self.join(problem, slots)
        self.n_mutations += len(slots)

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        self.leave(problem, slots)
        self.n_mutations += len(slots)

    # -- reading --------------------------------------------------------------------------------

    def predict(
        self, cells: Array, category_hashes: Hashes, class_order: Ints, problem: Callable[[], Problem], frozen: bool
    ) -> Reals:
        trees, is_regression = self.trees, not self.is_classification
        answers = np.ones((len(cells), 1 if is_regression else len(class_order)))
        if trees.n_groups and len(cells) == 1 and trees.unit < _HUGE and self.kind != POISSON:
            read = self.read_queries(cells, category_hashes)
            answer_one(trees.nodes, trees.roots, trees.base, trees.unit, *read, is_regression, answers[0])
        elif trees.n_groups:
            answers = self.answers_of(self.raw_scores(cells, category_hashes))
        return answers[:, 0] if is_regression else answers

    def raw_scores(self, cells: Array, category_hashes: Hashes) -> Reals:
        """Raw scores F of each row, float64[n, groups]."""
        trees = self.trees
        cells, category_hashes = self.read_queries(cells, category_hashes)
        scores = np.empty((len(cells), trees.n_groups))
        if trees.n_groups:

            def read(begin: int, end: int) -> None:
                some = cells[begin:end]
                raw_scores(trees.nodes, trees.roots, trees.base, trees.unit, some, category_hashes, scores[begin:end])

            n = n_blocks(len(cells), len(trees.roots) * _CELLS_A_TREE, self.n_threads)
            run([partial(read, begin, end) for begin, end in pairwise(cut(len(cells), n))], n)
        return scores if trees.unit < _HUGE else np.clip(scores, -_LARGEST, _LARGEST, out=scores)

    def answers_of(self, scores: Reals) -> Reals:
        """What raw scores mean: probabilities float64[n, classes], or numbers float64[n, 1] in their place."""
        if self.is_classification:
            answers = np.empty((len(scores), max(scores.shape[1], 2)))
            (sigmoids if scores.shape[1] == 1 else softmaxes)(scores, answers)
            return answers
        if self.kind == POISSON:
            means_of(scores, scores)
        return scores

    def mean_losses(self, problem: Problem, slots: Slots) -> Reals:
        """Mean loss of the samples in some slots after each iteration, by their weights, float64[iterations]."""
        cells, hashes = self.read_queries(problem.data.cells[slots], problem.data.category_hashes)
        units, losses, found = units_of(problem.units, slots), np.empty(len(slots)), []
        shares, level = units / units.sum(), 0.0 if self.kind is None else self.loss_level(problem)
        for scores in staged_scores(self.trees, cells, hashes):
            if self.is_classification:
                columns = problem.ranks[problem.class_codes[slots]]
                losses = -np.log(np.maximum(self.answers_of(scores)[np.arange(len(slots)), columns], _LEAST))
            elif self.kind is None:
                losses = (scores[:, 0] - problem.y[slots]) ** 2
            else:
                losses_at(self.kind, level, scores[:, 0], problem.y[slots], losses)
            # Rounded once, so that the order of the samples, which is history, does not matter.
            found.append(math.fsum((losses * shares).tolist()))
        return np.array(found)

    def weighted_trees(self, problem: Problem, class_order: Ints) -> WeightedTrees:
        trees = self.trees
        nodes, n = trees.nodes, len(trees.nodes)
        covers, leaves = kept_in(self.changes.derived, partial(self._weigh, problem))
        is_leaf, shown = nodes["feature"] == LEAF, np.zeros(max(n, 2), NODE)  # of one row views would be contiguous
        shown["category"][:n], shown["attribute"][:n] = nodes["category"], nodes["feature"]
        shown["child"][:n] = np.where(is_leaf, ~np.arange(n), nodes["left"])
        by_number = np.where(nodes["missing_left"], MISSING_LEFT, MISSING_RIGHT)
        shown["kind"][:n] = np.where(nodes["is_categorical"], ONE_VS_REST, by_number)
        roots, groups = trees.roots.astype(np.int64), np.arange(len(trees.roots)) % max(trees.n_groups, 1)
        return WeightedTrees(shown, covers, leaves, roots, groups, self.sources, trees.base, 1.0)

    def _weigh(self, problem: Problem) -> tuple[Reals, Leaves]:
        """What the samples at each node count for, and what leaves say."""
        trees, leaves = self.trees, Leaves(self.trees.nodes["value"] * self.trees.unit)
        if (counts := None if problem.has_weights else self.counts_kept()) is not None:
            return counts, leaves
        read = self.as_read(problem)
        slots = read.slots()
        covers, n = np.zeros(len(trees.nodes), np.int64), len(trees.roots)

        def count(first: int, end: int) -> None:
            add_covers(trees.nodes, trees.roots[first:end], read.data, read.units, slots, covers)

        n_pieces = min(n, n_blocks(len(slots), n * _CELLS_A_TREE, self.n_threads))
        run([partial(count, first, end) for first, end in pairwise(cut(n, max(n_pieces, 1)))], n_pieces)
        return covers.astype(np.float64), leaves

    def importances(self) -> Reals:
        gains = self.gains()
        total = gains.sum()
        return gains / total if total > 0 else gains

    @property
    def n_drawn_trees(self) -> int:
        return len(self.trees.roots)

    def look(self, tree: int, problem: Problem) -> BoostedLook:
        return BoostedLook(self.trees, tree, problem)

    def header(self) -> dict[str, Any]:
        trees = self.trees
        # Hexadecimal text tells any two values apart.
        return {**self.settings.to_dict(), "base": [x.hex() for x in trees.base.tolist()], "unit": trees.unit.hex()}

    def digests(self, class_order: Ints) -> list[str]:
        return tree_digests(self.trees)

    # -- what it costs --------------------------------------------------------------------------

    def seconds_to_fit(self, problem: Problem) -> float:
        """How long it takes to train from nothing, roughly."""
        n_trees: int = self.settings.n_estimators * (problem.n_classes if problem.n_classes > 2 else 1)
        return problem.n_samples * self.n_features * n_trees / _CELLS_A_SECOND

    def seconds_to_verify(self, problem: Problem) -> float:
        return problem.n_samples * self.n_features / _READ_A_SECOND + 10 * self.seconds_to_fit(problem)

    def seconds_to_change(self, n_changed: int, problem: Problem) -> float:
        # Mostly a small part of it, but how far a change reaches is not known before it is made.
        return self.seconds_to_fit(problem)

    # -- checking -------------------------------------------------------------------------------

    def recount(self, problem: Problem, slots: Slots, fresh: Counterpart | None = None) -> list[str]:
        """Name the counters kept that the samples do not confirm, and what is no number."""
        wrong, trees = self.find_differences(problem, slots), self.trees
        if not all(np.isfinite(values).all() for values in (trees.base, trees.unit, trees.nodes["value"])):
            wrong.append("a leaf, or where boosting starts, is not a finite number")
        return wrong


class ExactEngine(BoostedEngine):
    """Boosted trees that are those of a fresh fit at all times; they are refitted when a class comes or goes."""

    def add(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        if self.n_trees == 0 or problem.changes_classes(slots):
            self.fit(problem, problem.slots())
        else:
            super().add(problem, slots)

    def delete(self, problem: Problem, slots: Slots, *, lazy: bool = False) -> None:
        if self.n_trees == 0 or len(slots) == problem.n_samples or problem.changes_classes(slots):
            self.fit(*problem.without(slots))
        else:
            super().delete(problem, slots)

    @abstractmethod
    def find_unsound(self, problem: Problem, slots: Slots) -> list[str]:
        """Name what is not sound in itself."""

    def check_invariants(self, problem: Problem, slots: Slots) -> None:
        wrong = self.find_differences(problem, slots) or self.find_unsound(problem, slots)
        ensure(not wrong, "; ".join(wrong))
