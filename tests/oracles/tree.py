"""The fully dynamic decision tree, slowly: what `oubli.core.tree` must equal node by node, in plain Python and NumPy.

Paper: "Fully-Dynamic Decision Trees" (Bressan, Damay, Sozio, 2022). Two things, which share nothing with `core` and
little with each other:

* `Tree`: BUILD by trying every split, and UPDATE with s(v), c(v) and the proactive rule, word by word;
* `violations`: whether a tree, wherever it comes from, is feasible for some samples (Definition 3.1).

Where the paper leaves something open:

a) Gini is 1 - sum of squared class shares: Definition 2.1 for two classes, and the usual one for more.
b) A missing value of a numeric column goes left or right, both are tried; so is "known left, missing right".
   A category goes left, all others right; a missing value is a category.
c) Among equally good splits the first column wins, then the lower threshold, then missing right; among
   categories the missing one, then the lower hash.
d) No split has an empty side. What cannot be split is a leaf, where the paper's BUILD would continue with splits of
   gain 0 and all samples on one side. After a few updates such a leaf could be split; as long as nearly all its samples
   are alike the checker asks of it what condition 2 asks of a split of gain 0: that no split gains more than beta.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tests.oracles.common import MISSING_CATEGORY, Column, cell, threshold_type
from tests.oracles.splits import Split, midpoint, sides

DEEPEST = 64  # "no limit"


class Sample(NamedTuple):
    """What a tree sees of a sample: floats (None: missing) and hashes of categories; and its class."""

    cells: tuple[Any, ...]
    label: tuple[str, Any]  # with its type, which tells True from 1; classes are in the order of these pairs


@dataclass(frozen=True)
class Parameters:
    """What decides the tree: pruning thresholds h and k, alpha, beta and epsilon, and when a rebuild happens."""

    h: int | None = 10
    k: int = 1
    alpha: float = 0.0
    beta: float = 0.0
    epsilon: float = 0.1
    lazy: bool = False

    @property
    def depth_limit(self) -> int:
        """The depth at which a node is a leaf."""
        return DEEPEST if self.h is None else self.h


@dataclass
class Node:
    """A node; an inner one has a split and two children, the others hold samples by id."""

    depth: int
    s: int
    c: int = 0
    split: Split | None = None
    children: tuple[Node, Node] | None = None
    samples: dict[str, Sample] = field(default_factory=dict)
    tagged: bool = False

    def walk(self) -> Iterator[Node]:
        """This node and all below, left before right."""
        yield self
        for child in self.children or ():
            yield from child.walk()

    def held(self) -> dict[str, Sample]:
        """All samples below."""
        return {i: sample for node in self.walk() for i, sample in node.samples.items()}

    def child_of(self, cells: Sequence[Any]) -> Node:
        """The child that a row goes to."""
        assert self.split is not None
        assert self.children is not None
        return self.children[0 if self.split.goes_left(cells) else 1]

    def path(self, cells: Sequence[Any]) -> list[Node]:
        """The nodes that a row meets, from this one to a leaf."""
        nodes = [self]
        while nodes[-1].children is not None:
            nodes.append(nodes[-1].child_of(cells))
        return nodes


def sample_of(features: Sequence[Any], label: Any, columns: Sequence[Column]) -> Sample:
    """A sample from what a user gives."""
    return Sample(tuple(cell(value, column) for value, column in zip(features, columns, strict=True)), class_of(label))


def class_of(label: Any) -> tuple[str, Any]:
    """The class of a label."""
    return type(label).__name__, label


# --- all splits of some samples -------------------------------------------------------------------


def splits_of(samples: Sequence[Sample], columns: Sequence[Column]) -> list[Split]:
    """Every split that parts the samples, in the order in which they are preferred."""
    kind = threshold_type(columns)
    return [
        split
        for j, column in enumerate(columns)
        for split in (
            category_splits(j, {sample.cells[j] for sample in samples})
            if column.type == "categorical"
            else threshold_splits(j, {sample.cells[j] for sample in samples}, kind)
        )
    ]


def threshold_splits(feature: int, values: set[float | None], kind: type[Any]) -> list[Split]:
    """Those of a numeric column with these values."""
    known = sorted(value for value in values if value is not None)
    found = []
    for low, high in pairwise(known):
        threshold = midpoint(low, high, kind)
        found.append(Split(feature, threshold, missing_left=False))
        if None in values:
            found.append(Split(feature, threshold, missing_left=True))
    if known and None in values:
        found.append(Split(feature, math.inf, missing_left=False))
    return found


def category_splits(feature: int, values: set[int]) -> list[Split]:
    """Those of a categorical column with these hashes."""
    if len(values) < 2:
        return []
    return [Split(feature, category=x) for x in sorted(values, key=lambda x: (x != MISSING_CATEGORY, x))]


def counts_of(labels: Sequence[Any], lefts: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Class counts left and right of each split: int64[splits, classes] twice."""
    classes = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    one_hot = np.zeros((len(labels), len(classes)), np.int64)
    one_hot[np.arange(len(labels)), [classes[label] for label in labels]] = 1
    left = lefts.astype(np.int64) @ one_hot
    return left, one_hot.sum(axis=0) - left


def scores(splits: Sequence[Split], samples: Sequence[Sample]) -> np.ndarray[Any, Any]:
    """Sum of squared class counts over the size, of both sides: what is left of the gain when S is the same for all."""
    left, right = counts_of([sample.label for sample in samples], sides(splits, [sample.cells for sample in samples]))
    n_left, n_right = left.sum(axis=1), right.sum(axis=1)
    assert n_left.all()
    assert n_right.all()
    return (left * left).sum(axis=1) / n_left + (right * right).sum(axis=1) / n_right


def squares_of(labels: Sequence[Any]) -> int:
    """The sum of squared class counts."""
    return sum(list(labels).count(label) ** 2 for label in set(labels))


def gini(labels: Sequence[Any]) -> float:
    """The Gini index; 0 of nothing."""
    return 1.0 - squares_of(labels) / len(labels) ** 2 if labels else 0.0


# --- Algorithms 1 and 2 ---------------------------------------------------------------------------


def build(samples: Mapping[str, Sample], depth: int, parameters: Parameters, columns: Sequence[Column]) -> Node:
    """Algorithm 2."""
    node = Node(depth, len(samples))
    rows = list(samples.values())
    split = best_split(rows, columns) if may_split(rows, depth, parameters) else None
    if split is None:
        node.samples = dict(samples)
        return node
    left = {i: sample for i, sample in samples.items() if split.goes_left(sample.cells)}
    right = {i: sample for i, sample in samples.items() if i not in left}
    node.split = split
    node.children = (build(left, depth + 1, parameters, columns), build(right, depth + 1, parameters, columns))
    return node


def may_split(rows: Sequence[Sample], depth: int, parameters: Parameters) -> bool:
    """Line 3: more than k samples, above depth h, and g(S) > alpha / 2."""
    if len(rows) <= parameters.k or depth == parameters.depth_limit:
        return False
    square = len(rows) ** 2
    return square - squares_of([row.label for row in rows]) > parameters.alpha / 2 * square


def best_split(rows: Sequence[Sample], columns: Sequence[Column]) -> Split | None:
    """Line 9: the first of the best splits, None when nothing parts the samples."""
    splits = splits_of(rows, columns)
    return splits[int(np.argmax(scores(splits, rows)))] if splits else None


class Tree:
    """A tree and its UPDATE (Algorithm 1).

    With `lazy` a rebuild leaves a tag: a leaf with all samples of the subtree, which is built when a query comes to it
    or everything is resolved. An update that comes to a tag ends there.
    """

    def __init__(self, samples: Mapping[str, Sample], parameters: Parameters, columns: Sequence[Column]) -> None:
        self.parameters = parameters
        self.columns = tuple(columns)
        self.root = self.built(samples, 0)

    def built(self, samples: Mapping[str, Sample], depth: int) -> Node:
        """The subtree of these samples."""
        return build(samples, depth, self.parameters, self.columns)

    def insert(self, name: str, sample: Sample) -> None:
        """INS."""
        path = self.root.path(sample.cells)
        path[-1].samples[name] = sample
        self.count(path)

    def delete(self, name: str, sample: Sample) -> None:
        """DEL."""
        path = self.root.path(sample.cells)
        del path[-1].samples[name]
        self.count(path)

    def count(self, path: list[Node]) -> None:
        """Lines 5 to 12."""
        for node in path:
            if node.tagged:
                return
            node.c += 1
            if node.c > self.parameters.epsilon * node.s:
                bound = 2 ** math.ceil(math.log2(node.s)) if node.s else 0
                self.rebuild(next(higher for higher in path if higher.s <= bound))
                return

    def rebuild(self, node: Node) -> None:
        """Lines 10 and 11, at once or later."""
        samples = node.held()
        if self.parameters.lazy:
            replace(node, Node(node.depth, node.s, samples=samples, tagged=True))
        else:
            replace(node, self.built(samples, node.depth))

    def query(self, cells: Sequence[Any]) -> list[Node]:
        """The nodes that a row meets; a tag on its way is resolved."""
        last = self.root.path(cells)[-1]
        if last.tagged:
            replace(last, self.built(last.samples, last.depth))
        return self.root.path(cells)

    def copy(self) -> Tree:
        """An independent copy."""
        return deepcopy(self)

    def resolve(self) -> None:
        """Clear every tag."""
        for node in list(self.root.walk()):
            if node.tagged:
                replace(node, self.built(node.samples, node.depth))


def replace(node: Node, by: Node) -> None:
    """Put a subtree in the place of another."""
    vars(node).update(vars(by))


def shares(path: Sequence[Node], classes: Sequence[Any]) -> list[float]:
    """Class shares of a leaf, or of the nearest node above it that holds a sample."""
    held = next(held for held in (node.held() for node in reversed(path)) if held)
    labels = [sample.label for sample in held.values()]
    return [labels.count(label) / len(labels) for label in classes]


def classes_of(samples: Mapping[str, Sample]) -> tuple[Any, ...]:
    """The classes held, in their order."""
    return tuple(sorted({sample.label for sample in samples.values()}))


# --- Definition 3.1 and Lemma 3.4 ---------------------------------------------------------------------

ROUNDING = 1e-12


def violations(
    root: Node, samples: Mapping[str, Sample], parameters: Parameters, columns: Sequence[Column]
) -> list[str]:
    """What of Definition 3.1, conditions 1 and 2, does not hold of a tree's splits for these samples.

    Of the tree only splits, children and tags are read: who is where is found again. Nothing is asked of a node with a
    tag, which no query has passed.
    """
    found: list[str] = []

    def check(node: Node, rows: list[Sample], depth: int) -> None:
        where = f"at depth {depth}, {len(rows)} samples"
        if node.tagged:
            return
        impurity = gini([row.label for row in rows])
        must_be_leaf = len(rows) <= parameters.k or impurity == 0.0 or depth == parameters.depth_limit
        best = best_gain(rows, columns)
        if node.split is None:
            excused = are_alike(rows, parameters.epsilon) and best <= parameters.beta + ROUNDING
            if not must_be_leaf and impurity >= parameters.alpha and not excused:
                found.append(f"condition 1: a leaf {where}, gini {impurity}, where {best} can be gained")
            return
        if must_be_leaf:
            found.append(f"condition 1: an inner node {where}, gini {impurity}")
        gained = gain(node.split, rows)
        if gained < best - parameters.beta - ROUNDING:
            found.append(f"condition 2: {where}, {node.split} gains {gained}, the best {best}")
        assert node.children is not None
        for child, is_left in zip(node.children, (True, False), strict=True):
            check(child, [row for row in rows if node.split.goes_left(row.cells) is is_left], depth + 1)

    check(root, list(samples.values()), 0)
    return found


def are_alike(rows: Sequence[Sample], epsilon: float) -> bool:
    """Whether they can have been all alike when the node was built, at most epsilon s(v) updates ago."""
    most = max(Counter(row.cells for row in rows).values(), default=0)
    return len(rows) - most <= epsilon / (1 - epsilon) * len(rows) if epsilon < 1 else True


def gain(split: Split, rows: Sequence[Sample]) -> float:
    """The Gini gain (1) of any split, one with an empty side included."""
    labels = [row.label for row in rows]
    left = [row.label for row in rows if split.goes_left(row.cells)]
    right = [row.label for row in rows if not split.goes_left(row.cells)]
    if not rows:
        return 0.0
    return gini(labels) - (len(left) * gini(left) + len(right) * gini(right)) / len(rows)


def best_gain(rows: Sequence[Sample], columns: Sequence[Column]) -> float:
    """The largest Gini gain over all splits; 0 where nothing parts the samples."""
    splits = splits_of(rows, columns)
    if not splits:
        return 0.0
    n = len(rows)
    # g(S) - (|L| g(L) + |R| g(R)) / |S|, where |L| g(L) = |L| - sum of squares / |L|
    return float(scores(splits, rows).max()) / n - squares_of([row.label for row in rows]) / n**2


def wrong_labels(
    root: Node, queries: Sequence[Sequence[Any]], answers: Sequence[Any], held: Mapping[str, Sample]
) -> list[str]:
    """Condition 3: answers that are no majority label of the samples in the leaf that the query comes to."""
    leaves: dict[int, list[Any]] = {}
    for sample in held.values():
        leaves.setdefault(id(root.path(sample.cells)[-1]), []).append(sample.label)
    found = []
    for cells, answer in zip(queries, answers, strict=True):
        leaf = root.path(cells)[-1]
        labels = leaves.get(id(leaf), [])
        if leaf.tagged:
            found.append(f"condition 3: a query passed a tag, {cells}")
        elif labels and labels.count(answer) < max(labels.count(label) for label in labels):
            found.append(f"condition 3: {answer!r} is no majority label of {labels}")
    return found


def wrong_sizes(root: Node, held: Mapping[str, Sample], epsilon: float) -> list[str]:
    """Lemma 3.4: nodes whose samples have become more or fewer than s(v) times 1 +- epsilon."""
    sizes: dict[int, int] = {}
    for sample in held.values():
        for node in root.path(sample.cells):
            sizes[id(node)] = sizes.get(id(node), 0) + 1
    return [
        f"{sizes.get(id(node), 0)} samples, built on {node.s}"
        for node in root.walk()
        if not node.tagged and abs(sizes.get(id(node), 0) - node.s) > epsilon * node.s
    ]
