"""Checks of everything kept, in plain Python: sums against a recount, members against the splits."""

import numpy as np

from oubli.core.array_types import Array, Bools, Slots
from oubli.core.boosting.online.state import NIL, Forest
from oubli.core.boosting.state import LEAF, are_right
from oubli.core.engine import wrong_numbers
from oubli.core.errors import ensure
from oubli.core.samples.arrays import Problem


def _paths(forest: Forest, tree: int) -> list[tuple[int, list[int]]]:
    """All places of a tree, parents first, each with its ancestors."""
    found, waiting = [], [(0, [])]  # type: ignore[var-annotated]
    while waiting:
        place, above = waiting.pop()
        found.append((place, above))
        row = tree * forest.n_places + place
        if forest.nodes["feature"][row] != LEAF:
            left = int(forest.nodes["left"][row]) - tree * forest.n_places
            ensure(0 < left < forest.n_places and left % 2 == 1, f"tree {tree}: node {place} must have a pair")
            waiting += [(left + side, [*above, place]) for side in (0, 1)]
        ensure(len(found) <= forest.n_places, f"tree {tree} must have no cycle")
    return found


def compare(forest: Forest, counted: Forest) -> list[str]:
    """Name what is kept and was counted differently."""
    wrong = wrong_numbers("leaf_of", forest.leaf_of, counted.leaf_of, by_sample=True, tree=None)
    for name, kept, found in (
        ("stats", forest.stats, counted.stats),
        ("values", forest.values, counted.values),
        ("sums", forest.states["sums"], counted.states["sums"]),
        ("values of nodes", forest.nodes["value"], counted.nodes["value"]),
    ):
        shape = forest.n_trees, len(kept) // forest.n_trees, *kept.shape[1:]
        wrong += wrong_numbers(name, kept.reshape(shape), found.reshape(shape), tree=None, place=None)
    return wrong


def check_invariants(forest: Forest, codes: Array, held: Bools, problem: Problem, slots: Slots) -> None:
    """Check that the trees hold the samples of `slots` and nothing else, and are sound; `compare` has found nothing.

    Parameters
    ----------
    codes : uint16[S, d]
    held : bool[S], which slots hold samples.

    Raises
    ------
    AssertionError
        Naming the tree, node or slot and the rule that is broken. O(model), interpreted.
    """
    ensure(not codes[~held].any(), "slots that hold no sample must have no codes")
    for tree in range(forest.n_trees):
        _check_tree(forest, problem, slots, tree)
        ensure(not forest.gh[tree, ~held].any(), f"tree {tree} must know nothing of samples not held")
        ensure(not forest.leaf_of[tree, ~held].any(), f"tree {tree} must know nothing of samples not held")


def _check_tree(forest: Forest, problem: Problem, slots: Slots, tree: int) -> None:
    """Check the structure of a tree, its values, and that its splits lead every sample to its leaf."""
    start = tree * forest.n_places
    nodes, states = forest.nodes[start:], forest.states[start : start + forest.n_places]
    paths = _paths(forest, tree)
    in_use = np.zeros(forest.n_places, np.int64)
    values = np.zeros(forest.values.shape[1])
    for place, above in paths:
        in_use[place] = 1
        parent = above[-1] if above else NIL
        ensure(states["parent"][place] == parent, f"tree {tree}: node {place} must know its parent")
        expected = 0 if not above else (place // 2 if place % 2 == 0 else int(states["leaf"][parent]))
        ensure(states["leaf"][place] == expected, f"tree {tree}: node {place} must have leaf number {expected}")
        if nodes["feature"][place] == LEAF:
            values[states["leaf"][place]] = nodes["value"][place]
        else:
            left = int(nodes["left"][place]) - start
            total = states["sums"][left] + states["sums"][left + 1]
            ensure(total == states["sums"][place], f"tree {tree}: node {place} must sum up its children")
    ensure(np.array_equal(in_use, states["in_use"]), f"tree {tree} must know which places are in use")
    ensure(np.array_equal(values, forest.values[tree]), f"tree {tree} must list the values of its leaves")
    for pair in range(forest.stats.shape[1]):
        if not in_use[1 + 2 * pair]:
            ensure(not forest.stats[tree, pair].any(), f"tree {tree}: unused pair {pair} must have no sums")
            for place in (1 + 2 * pair, 2 + 2 * pair):
                blank = nodes["feature"][place] == LEAF and nodes["left"][place] == 0 and states["sums"][place] == 0
                ensure(blank, f"tree {tree}: unused node {place} must be blank")
    for slot in slots.tolist():
        place = 0
        while nodes["feature"][place] != LEAF:
            side = int(are_right(nodes[place], problem.data, np.array([slot]))[0])
            place = int(nodes["left"][place]) - start + side
        ensure(forest.leaf_of[tree, slot] == states["leaf"][place], f"tree {tree}: slot {slot} is in another leaf")
