"""Checks of everything that the tree keeps: `check_invariants` for tests, the others for `verify`.

`check_invariants` walks the tree in plain Python, slow on purpose. What a file is checked for, and `compare` compares,
it does not check again, nor whether the splits are good ones.

`find_broken_promises` checks that a tree is (alpha, beta)-feasible for the samples held (Definition 3.1). It uses
nothing that the tree has counted, and none of the kernels that build it: samples are sent down the splits, and at each
node the gain of every split is computed again, in array operations. O(samples x columns x depth), with a sort of each
column at each node. Samples count by their weights, but as one each for the pruning size. Condition 3, that a leaf
answers with a majority label, holds because answers are made from the class counts.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Bools, Ints
from oubli.core.engine import nodes_below, wrong_numbers
from oubli.core.errors import ensure
from oubli.core.jit.nodes import FREE, MISSING_LEFT, N_FREE, NIL, ONE_VS_REST
from oubli.core.jit.targets import values_of
from oubli.core.samples.arrays import Data
from oubli.core.samples.hashing import hashes_of
from oubli.core.tree import state as n
from oubli.core.tree.parameters import TreeParameters, TreeSettings
from oubli.core.tree.state import TreeArrays

_ROUNDING = 1e-12  # of gains, which are computed in float64
_FIELD_BITS = 40  # of a target below its weight, see `core/jit/targets.py`


def check_invariants(tree: TreeArrays, settings: TreeSettings, slots: Ints) -> None:
    """Check the links, lists and tags of a tree whose counters and depths are those of the samples of `slots`.

    Raises
    ------
    AssertionError
        Naming the node or slot and the rule that is broken. O(model), interpreted.
    """
    reached: set[int] = set()
    members: set[int] = set()
    n_tags = 0
    waiting = [n.ROOT]
    while waiting:
        node = waiting.pop()
        ensure(node not in reached, f"node {node} must have one parent")
        reached.add(node)
        record = tree.nodes[node]
        is_tagged = bool(record["flags"] & n.TAGGED)
        n_tags += is_tagged
        if not is_tagged:
            limit = settings.epsilon * record["built"]
            ensure(record["touched"] <= limit, f"node {node} must have been rebuilt")
        if record["child"] == NIL:
            _check_list(tree, node, members)
            continue
        ensure(record["head"] == NIL and record["tail"] == NIL, f"inner node {node} must list no samples")
        waiting += [int(record["child"]), int(record["child"]) + 1]
    ensure(sorted(members) == sorted(slots.tolist()), "the leaves must list the samples held")
    ensure(n_tags == tree.meta[n.N_TAGS], "the tags must be counted")
    _check_unused(tree, reached, members)


def _check_list(tree: TreeArrays, node: int, members: set[int]) -> None:
    """Check a leaf's list, and note its samples."""
    previous, slot = NIL, int(tree.nodes["head"][node])
    while slot != NIL:
        ensure(slot not in members, f"slot {slot} must be listed once")
        members.add(slot)
        ensure(tree.links[slot, n.PREVIOUS] == previous, f"slot {slot} must know the one before it")
        previous, slot = slot, int(tree.links[slot, n.NEXT])
    ensure(tree.nodes["tail"][node] == previous, f"leaf {node} must know its last sample")


def _check_unused(tree: TreeArrays, reached: set[int], members: set[int]) -> None:
    """Every node is in the tree or on the free list, and whatever is unused is zeroed."""
    free: set[int] = set()
    pair = int(tree.meta[n.PAIRS + FREE])
    while pair != NIL:
        ensure(not {pair, pair + 1} & (free | reached), f"free node {pair} is in use or listed twice")
        free |= {pair, pair + 1}
        pair = int(tree.nodes["child"][pair])
    ensure(len(free) == 2 * tree.meta[n.PAIRS + N_FREE], "the free pairs must be counted")
    ensure(reached | free | {n.ROOT + 1} == set(range(int(tree.meta[n.PAIRS]))), "every node is in use or free")
    blank = n.zeroed_nodes(1)[0]
    for node in [*free, n.ROOT + 1, *range(int(tree.meta[n.PAIRS]), len(tree.nodes))]:
        record = tree.nodes[node].copy()
        record["child"] = NIL
        ensure(record == blank and not tree.counts[node].any(), f"unused node {node} must be blank")
    unused = np.ones(len(tree.links), np.bool_)
    unused[list(members)] = False
    ensure((tree.links[unused] == NIL).all(), "slots that hold no sample must have no neighbours")


# -- for `verify` ---------------------------------------------------------------------------------


def compare(ours: TreeArrays, theirs: TreeArrays) -> list[str]:
    """List what differs between a tree and one with the same links whose counts were made from the samples again."""
    mine, its = (nodes_below(tree.nodes["child"], np.array([n.ROOT])) for tree in (ours, theirs))
    wrong = []
    for field, what in (("n_samples", "samples"), ("depth", "depth")):
        wrong += wrong_numbers(f"the {what} of nodes", ours.nodes[field][mine], theirs.nodes[field][its], node=mine)
    counts = ours.counts[mine], theirs.counts[its]
    return wrong + wrong_numbers("the class counts of nodes", *counts, node=mine, code=None)


def check_updates(tree: TreeArrays, epsilon: float) -> list[str]:
    """Check the counters of Algorithm 1, which only an update reads: Lemma 3.4, and that no rebuild is overdue."""
    rows = nodes_below(tree.nodes["child"], np.array([n.ROOT]))
    built, touched = tree.nodes["built"][rows].astype(np.int64), tree.nodes["touched"][rows]
    n_overdue = int((touched > epsilon * built).sum())
    n_impossible = int((abs(tree.counts[rows].sum(axis=1) - built) > touched).sum())
    found = []
    if n_overdue:
        found.append(f"the updates of {n_overdue} nodes that should have been rebuilt")
    if n_impossible:
        found.append(f"the updates of {n_impossible} nodes that have seen more samples come and go")
    return found


# -- what the guarantee promises -------------------------------------------------------------------


def find_broken_promises(tree: TreeArrays, parameters: TreeParameters, data: Data, slots: Ints) -> list[str]:
    """List the nodes for which a condition of Definition 3.1 does not hold; the tree has no tags.

    A leaf whose samples could not be told apart when it was built is right, although condition 1 knows no such
    exception, because the paper's splits may have an empty side. It becomes wrong as such a split does: when
    another gains more than beta.
    """
    found: list[str] = []
    waiting = [(n.ROOT, 0, slots)]
    while waiting:
        node, depth, rows = waiting.pop()
        found += _check_node(tree, parameters, data, node, depth, rows)
        child = int(tree.nodes["child"][node])
        if child != NIL:
            right = _are_right(tree, node, data, rows)
            waiting += [(child + 1, depth + 1, rows[right]), (child, depth + 1, rows[~right])]
    return found


def _check_node(
    tree: TreeArrays, parameters: TreeParameters, data: Data, node: int, depth: int, rows: Ints
) -> Iterator[str]:
    settings = parameters.tree
    where = f"at depth {depth}, with {len(rows)} samples"
    labels = _labels(data, rows)
    impurity = 1.0 - labels.concentration()
    must_be_leaf = len(rows) <= settings.pruning_size or impurity == 0.0 or depth == settings.max_depth
    is_leaf = tree.nodes["child"][node] == NIL
    if must_be_leaf and is_leaf:
        return
    if must_be_leaf:
        yield f"a node {where} is split and must be a leaf"
    best = max((gain for column in range(data.cells.shape[1]) for gain in _gains(data, column, rows)), default=0.0)
    if is_leaf:
        is_excused = best <= parameters.beta + _ROUNDING and _were_alike(data, rows, settings.epsilon)
        if impurity >= settings.alpha and not is_excused:
            yield f"a leaf {where} must be split: its impurity is {impurity}, and {best} can be gained"
        return
    gained = labels.gain(_are_right(tree, node, data, rows))
    if gained < best - parameters.beta - _ROUNDING:
        yield f"the split of a node {where} gains {gained}, and the best one {best}"


def _were_alike(data: Data, rows: Ints, epsilon: float) -> bool:
    """Whether all samples of a node can have been alike when it was built, at most epsilon s(v) updates ago."""
    cells = np.ascontiguousarray(data.cells[rows])
    _, kinds = np.unique(cells.view(np.dtype((np.void, cells.itemsize * cells.shape[1]))), return_inverse=True)
    labels = _labels(data, rows)
    alike = np.bincount(kinds.ravel(), labels.amounts).max(initial=0)
    return epsilon >= 1 or bool(labels.total - alike <= epsilon / (1 - epsilon) * labels.total)


def _are_right(tree: TreeArrays, node: int, data: Data, rows: Ints) -> Bools:
    """Sides of samples at an inner node."""
    record = tree.nodes[node]
    values = data.cells[rows, record["attribute"]]
    if record["kind"] == ONE_VS_REST:
        return np.asarray(hashes_of(values, data.category_hashes) != record["category"])
    return np.where(np.isnan(values), bool(record["kind"] != MISSING_LEFT), values > float(record["threshold"]))


class _Labels(NamedTuple):
    """The classes of samples, and what they count for; both int64[n]."""

    classes: Ints
    amounts: Ints

    @property
    def total(self) -> int:
        """What all of them count for."""
        return int(self.amounts.sum())

    def at(self, places: Any) -> "_Labels":
        """Those of some samples."""
        return _Labels(self.classes[places], self.amounts[places])

    def squares(self) -> int:
        """Sum of the squared class counts."""
        counts = np.bincount(self.classes, self.amounts).astype(np.int64)
        return int((counts * counts).sum())

    def concentration(self) -> float:
        """Sum of the squared class shares, which is 1 minus the Gini index."""
        return self.squares() / self.total**2 if self.total else 1.0

    def gain(self, is_right: Bools) -> float:
        """The Gini gain of one split, 0 when a side is empty."""
        sides = (self.at(~is_right), self.at(is_right))
        return sum(side.squares() / side.total for side in sides if side.total) / self.total - self.concentration()

    def growing_squares(self) -> Ints:
        """The sums of squares of the first sample, of the first two, and so on."""
        order = np.argsort(self.classes, kind="stable")
        sums = np.cumsum(self.amounts[order])
        starts = np.append(0, sums)[np.searchsorted(self.classes[order], self.classes[order])]
        counts = np.empty(len(order), np.int64)
        counts[order] = sums - starts  # of the class of each, with this one
        return np.cumsum(self.amounts * (2 * counts - self.amounts))


def _labels(data: Data, rows: Ints) -> _Labels:
    targets = data.targets[rows]
    classes = values_of(targets)
    fields = (targets - classes) >> _FIELD_BITS
    return _Labels(classes, np.where(fields < 0, -fields, fields + 1))


def _gains(data: Data, column: int, rows: Ints) -> Iterator[float]:
    """The largest gains of the splits of a column; nothing when no split parts the samples."""
    values, labels = data.cells[rows, column], _labels(data, rows)
    is_missing = np.isnan(values)
    if data.categorical[column]:
        yield from _category_gains(np.where(is_missing, -1, values).astype(np.int64), labels)
        return
    present, missing = np.flatnonzero(~is_missing), np.flatnonzero(is_missing)
    present = present[np.argsort(values[present], kind="stable")]
    ordered = values[present]
    is_end = np.append(ordered[1:] != ordered[:-1], True)[: len(ordered)]  # of equal values
    # With missing ones on the right, all others may go left.
    yield from _cut_gains(labels.at(np.concatenate([present, missing])), np.flatnonzero(is_end) + 1)
    if len(missing):
        yield from _cut_gains(labels.at(np.concatenate([missing, present])), np.flatnonzero(is_end) + 1 + len(missing))


def _cut_gains(labels: _Labels, cuts: Ints) -> Iterator[float]:
    """The largest gain of splits into the first `cut` samples and the others."""
    n, amounts = len(labels.classes), np.cumsum(labels.amounts)
    cuts = cuts[cuts < n]
    if len(cuts) == 0:
        return
    left = labels.growing_squares()[cuts - 1]
    right = labels.at(slice(None, None, -1)).growing_squares()[n - cuts - 1]
    n_left, total = amounts[cuts - 1], labels.total
    yield float((left / n_left + right / (total - n_left)).max()) / total - labels.concentration()


def _category_gains(categories: Ints, labels: _Labels) -> Iterator[float]:
    """The largest gain of a category against all others."""
    _, numbers = np.unique(categories, return_inverse=True)
    total, n_left = labels.total, np.bincount(numbers, labels.amounts)
    if len(n_left) < 2:
        return
    totals = np.bincount(labels.classes, labels.amounts)
    pairs, places = np.unique(numbers * len(totals) + labels.classes, return_inverse=True)
    owners, classes, counts = pairs // len(totals), pairs % len(totals), np.bincount(places, labels.amounts)
    left = np.bincount(owners, counts * counts)
    right = left + labels.squares() - 2 * np.bincount(owners, counts * totals[classes])
    yield float((left / n_left + right / (total - n_left)).max()) / total - labels.concentration()
