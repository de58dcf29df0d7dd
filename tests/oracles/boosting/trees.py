"""Samples and trees of the oracles of boosting: nested nodes, what they answer, and their canonical form."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from tests.oracles.boosting.loss import sigmoid, softmax
from tests.oracles.common import Column, cell, hash_bytes
from tests.oracles.splits import Split


class Sample(NamedTuple):
    """What the trees see of a sample."""

    cells: tuple[Any, ...]
    label: Any  # a class as (type name, value), which is their order; or a number
    id_hash: int
    weight: float = 1.0  # in 256ths

    def weighed(self, value: int, offset: int = 0) -> int:
        """An integer times the weight, rounded down with some 256ths added."""
        return (value * round(self.weight * 256) + offset) >> 8


def sample_of(
    name: str, features: Sequence[Any], label: Any, columns: Sequence[Column], task: str, weight: float = 1.0
) -> Sample:
    """A sample from what a user gives."""
    cells = tuple(cell(value, column) for value, column in zip(features, columns, strict=True))
    target = (type(label).__name__, label) if task == "classification" else float(label)
    return Sample(cells, target, hash_bytes(name.encode()), math.floor(256 * weight + 0.5) / 256)


class Sums(NamedTuple):
    """Of derivatives."""

    g: int
    h: int


@dataclass
class Node:
    """A leaf with a value, or an inner node with a split and two children."""

    value: float = 0.0
    split: Split | None = None
    left: Node | None = None
    right: Node | None = None

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
    read: Callable[[Sequence[Any]], Sequence[Any]] = tuple  # what trees read of a row's cells

    def scores(self, cells: Sequence[Any]) -> list[float]:
        """Raw scores: the leaves' values summed in the order of the iterations, then scaled, then the base."""
        result, cells = [], self.read(cells)
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
