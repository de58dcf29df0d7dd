"""A tree of the oracle: nested nodes, what they answer, and their canonical form."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from tests.oracles.boosting.loss import sigmoid, softmax


@dataclass(frozen=True)
class Split:
    """A test: `x <= threshold`, or, where a category is given, `hash(x) == category`; what passes it goes left."""

    feature: int
    threshold: float | None = None
    missing_left: bool = False
    category: int | None = None

    def goes_left(self, cells: Sequence[Any]) -> bool:
        """The side of a row: floats (None: missing), hashes of categories."""
        x = cells[self.feature]
        if self.category is not None:
            return bool(x == self.category)
        if x is None:
            return self.missing_left
        assert self.threshold is not None
        return bool(x <= self.threshold)


@dataclass
class Node:
    """A leaf with a value, or an inner node with a split and two children."""

    value: float = 0.0
    split: Split | None = None
    left: Node | None = None
    right: Node | None = None
    notes: dict[str, Any] = field(default_factory=dict, compare=False)  # what an oracle keeps beside

    def leaf_of(self, cells: Sequence[Any]) -> Node:
        """The leaf that a row comes to."""
        node = self
        while node.split is not None:
            below = node.left if node.split.goes_left(cells) else node.right
            assert below is not None
            node = below
        return node

    def walk(self) -> Iterator[Node]:
        """This node, its left subtree, its right subtree."""
        yield self
        for child in (self.left, self.right):
            if child is not None:
                yield from child.walk()

    def leaves(self) -> list[Node]:
        """All leaves, from left to right."""
        return [node for node in self.walk() if node.split is None]


@dataclass(frozen=True)
class Ensemble:
    """Trees of all iterations, one a group and iteration, and what goes with them."""

    iterations: list[list[Node]]
    base: list[float]
    unit: float = 1.0

    def scores(self, cells: Sequence[Any]) -> list[float]:
        """Raw scores: the leaves' values summed in the order of the iterations, then scaled, then the base."""
        result = []
        for k, base in enumerate(self.base):
            total = 0.0
            for trees in self.iterations:
                total += trees[k].leaf_of(cells).value
            result.append(base + self.unit * total)
        return result

    def probabilities(self, cells: Sequence[Any]) -> list[float]:
        """Of each class in order."""
        scores = self.scores(cells)
        if not scores:
            return [1.0]
        if len(scores) == 1:
            return [1.0 - sigmoid(scores[0]), sigmoid(scores[0])]
        return softmax(scores)

    def trees(self) -> list[Node]:
        """Iteration by iteration."""
        return [tree for trees in self.iterations for tree in trees]


def sides(splits: Sequence[Split], rows: Sequence[Sequence[Any]]) -> np.ndarray[Any, Any]:
    """Whether each row goes left at each split, by `Split.goes_left` on whole columns: bool[splits, rows]."""
    result = np.zeros((len(splits), len(rows)), np.bool_)
    for feature in {split.feature for split in splits}:
        here = [i for i, split in enumerate(splits) if split.feature == feature]
        cells = [row[feature] for row in rows]
        if splits[here[0]].category is not None:
            wanted = np.array([splits[i].category for i in here], np.uint64)
            result[here] = np.array(cells, np.uint64) == wanted[:, np.newaxis]
        else:
            x = np.array([np.nan if value is None else value for value in cells], np.float64)
            thresholds = np.array([splits[i].threshold for i in here], np.float64)
            missing_left = np.array([splits[i].missing_left for i in here])
            # A comparison with NaN is never true.
            result[here] = (x <= thresholds[:, np.newaxis]) | (np.isnan(x) & missing_left[:, np.newaxis])
    return result


# --- the canonical form ---------------------------------------------------------------------------


def bits(value: float) -> int:
    """The 64 bits of a float."""
    word: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return word


def node_words(node: Node) -> list[int]:
    """One node as 64-bit words."""
    split = node.split
    if split is None:
        return [0, bits(node.value)]
    if split.category is not None:
        return [1, split.feature, 1, 0, split.category]
    assert split.threshold is not None
    return [1, split.feature, 0, int(split.missing_left), bits(split.threshold)]


def tree_digest(tree: Node) -> str:
    """SHA-256 of a tree's words in path order, little-endian."""
    words = [word for node in tree.walk() for word in node_words(node)]
    return sha256(struct.pack(f"<{len(words)}Q", *words)).hexdigest()


def difference(one: Node | None, other: Node | None, path: str = "root") -> str | None:
    """Where two trees differ first, and in what; None where they are the same bit for bit."""
    if one is None or other is None:
        return None if one is other else f"{path}: {one} against {other}"
    if node_words(one) != node_words(other):
        return f"{path}: {one.split or one.value!r} against {other.split or other.value!r}"
    return difference(one.left, other.left, f"{path}, left") or difference(one.right, other.right, f"{path}, right")
