"""Shapley values by their definition: slow, on trees as people read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


@dataclass
class Node:
    """A node: what a leaf says, or the column that is asked and who goes left; and the weight of its samples."""

    weight: float
    value: Reals | None = None
    column: int = -1
    goes_left: Callable[[Any], bool] = bool
    left: Node | None = None
    right: Node | None = None


def read(
    look: Any, goes_left: Callable[[Any, Any], bool], samples: Sequence[tuple[Any, float]], says: Callable[[int], Any]
) -> Node:
    """Copy a tree from a `TreeLook`, with the weights of samples as they go.

    goes_left : says of a split and a row where the row goes.
    says : what a leaf says, by its number; None when it has lost all samples: then it says what the node above does.
    """

    def copy(node: int, held: Sequence[tuple[Any, float]], above: Any) -> Node:
        weight, said, left = sum(one for _, one in held), says(node), look.left(node)
        said = above if said is None else said
        if left is None:
            return Node(weight, np.asarray(said, np.float64))
        split = look.split(node)

        def side(row: Any) -> bool:
            return goes_left(split, row)

        parts = [[one for one in held if side(one[0]) == is_left] for is_left in (True, False)]
        children = [copy(left + i, part, said) for i, part in enumerate(parts)]
        return Node(weight, None, split.feature, side, *children)

    return copy(look.root, samples, None)


def expected(node: Node, row: Any, known: frozenset[int]) -> Reals:
    """What a tree says when only some columns of a row are known: else both sides, by their weights."""
    if node.value is not None:
        return node.value
    assert node.left is not None
    assert node.right is not None
    if node.column in known:
        return expected(node.left if node.goes_left(row) else node.right, row, known)
    share = node.left.weight / node.weight if node.weight else 0.5
    return share * expected(node.left, row, known) + (1 - share) * expected(node.right, row, known)


def attributions(trees: Sequence[Node], row: Any, d: int) -> tuple[Reals, Reals]:
    """The Shapley value of each column, and what is expected when none is known, of the sum of some trees."""

    def game(known: Sequence[int]) -> Reals:
        return np.sum([expected(tree, row, frozenset(known)) for tree in trees], axis=0)

    values = []
    for column in range(d):
        others = [other for other in range(d) if other != column]
        total = np.zeros_like(game(()))
        for size in range(d):
            share = factorial(size) * factorial(d - size - 1) / factorial(d)
            for known in combinations(others, size):
                total = total + share * (game((*known, column)) - game(known))
        values.append(total)
    return np.array(values), game(())
