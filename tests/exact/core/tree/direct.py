"""Trees without an estimator: random samples as kernels read them, and the tree as the oracle's nodes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.jit.nodes import MISSING_LEFT, NIL, ONE_VS_REST
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Data, Problem
from oubli.core.tree.engine import TreeEngine
from oubli.core.tree.parameters import TreeParameters, TreeSettings
from oubli.core.tree.state import NEXT, ROOT, TAGGED, empty_tree
from oubli.core.tree.update import list_samples
from tests.oracles.common import Column
from tests.oracles.splits import Split
from tests.oracles.tree import Node, Sample

Slots = npt.NDArray[np.int64]

ORDER = np.arange(8)


def make_data(
    seed: int,
    n: int,
    *,
    n_numeric: int = 3,
    n_categories: tuple[int, ...] = (),
    n_classes: int = 2,
    n_values: int | None = 12,
    missing: float = 0.0,
    cell_dtype: Any = np.float32,
) -> Data:
    """Random samples, of which some features say something about the class; the last columns are categorical."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, n_classes, n)
    numeric = rng.normal(size=(n, n_numeric)) + 0.7 * targets[:, np.newaxis] * rng.integers(0, 2, n_numeric)
    if n_values is not None:
        numeric = np.round(numeric * n_values / 6)
    cells = np.zeros((n, n_numeric + len(n_categories)), cell_dtype)
    cells[:, :n_numeric] = numeric + 0.0
    first = 0
    for column, size in enumerate(n_categories, n_numeric):
        cells[:, column] = first + np.where(rng.random(n) < 0.5, targets, rng.integers(0, size, n)) % size
        first += size
    cells[rng.random(cells.shape) < missing] = np.nan
    hashes = rng.integers(1, 2**63, first + 1).astype(np.uint64) * np.uint64(2)
    mask = np.arange(cells.shape[1]) >= n_numeric
    return Data(cells, targets, np.zeros(n, np.uint64), hashes, mask)


class Tree(TreeEngine):
    """An engine that is told which samples there are, every time."""

    def problem(self, data: Data, slots: Slots = ORDER[:0]) -> Problem:
        held = np.zeros(len(data.targets), np.bool_)
        held[slots] = True
        counts = np.bincount(data.targets[slots], minlength=self.width)
        ranks = np.arange(self.width, dtype=np.int32)
        return Problem(data, ranks, self.width, np.zeros(0), held, len(slots), counts)

    def build(self, data: Data, slots: Slots) -> None:
        self.tree = empty_tree(self.width, n_slots=len(data.targets))
        list_samples(self.tree, data.targets, slots)
        shortage = self.run(data, ORDER[:0], 0, False, ROOT)
        if shortage is not None:
            raise shortage

    def learn(self, data: Data, slots: Slots, *, lazy: bool = False) -> None:
        self._reserve_slots(data)
        self.run(data, slots, len(slots), lazy, NIL)

    def unlearn(self, data: Data, slots: Slots, *, lazy: bool = False) -> None:
        self.run(data, slots, 0, lazy, NIL)

    def resolve_some(self, data: Data, max_tags: int | None = None) -> int:
        return self.resolve(self.problem(data), max_tags)

    def count(self, data: Data, cells: Any, *, frozen: bool = False) -> Any:
        order = np.arange(self.width)
        return self.counts(cells, data.category_hashes, order, lambda: self.problem(data), frozen)

    def digest(self, order: Any) -> str:
        return self.digests(order)[0]

    def check(self, data: Data, slots: Slots) -> None:
        self.check_invariants(self.problem(data, slots), slots)

    def taken_over(self, arrays: Any, data: Data, slots: Slots) -> Tree:
        again = self.counterpart()
        again.take_over({**arrays, "class_counts": np.zeros(self.width)}, self.problem(data, slots), slots)
        return again


def make_tree(data: Data, n_classes: int, **settings: Any) -> Tree:
    chosen = TreeSettings(**{"max_depth": 10, "pruning_size": 1, "alpha": 0.0, "epsilon": 0.1, **settings})
    parameters = TreeParameters(chosen, beta=0.0, window=None, seed=0)
    tree = Tree(parameters, data.cells.shape[1], data.cells.dtype, data.categorical, True)
    if n_classes > tree.width:
        tree._widen(n_classes)
    return tree


def columns_of(data: Data) -> list[Column]:
    dtype = str(data.cells.dtype)
    return [Column("categorical") if mask else Column("numeric", dtype) for mask in data.categorical]


def sample_at(data: Data, slot: int) -> Sample:
    cells: list[Any] = []
    for x, is_category in zip(data.cells[slot].tolist(), data.categorical, strict=True):
        if is_category:
            cells.append(int(MISSING_CATEGORY) if math.isnan(x) else int(data.category_hashes[int(x)]))
        else:
            cells.append(None if math.isnan(x) else x)
    return Sample(tuple(cells), ("int", int(data.targets[slot])))


def read(tree: Tree, data: Data, row: int = ROOT) -> Node:
    """The tree as the oracle's nodes."""
    record = tree.tree.nodes[row]
    node = Node(
        int(record["depth"]), int(record["built"]), int(record["touched"]), tagged=bool(record["flags"] & TAGGED)
    )
    child = int(record["child"])
    if child == NIL:
        slot = int(record["head"])
        while slot != NIL:
            node.samples[str(slot)] = sample_at(data, slot)
            slot = int(tree.tree.links[slot, NEXT])
        return node
    attribute = int(record["attribute"])
    if record["kind"] == ONE_VS_REST:
        node.split = Split(attribute, category=int(record["category"]))
    else:
        node.split = Split(attribute, float(record["threshold"]), missing_left=bool(record["kind"] == MISSING_LEFT))
    node.children = (read(tree, data, child), read(tree, data, child + 1))
    return node


def plain(node: Node) -> list[Any]:
    """All of a tree as nested lists, without s and c where there is a tag."""
    counters = () if node.tagged else (node.s, node.c)
    children = [plain(child) for child in node.children or ()]
    return [node.depth, counters, node.tagged, node.split, sorted(node.samples), children]


KINDS: dict[str, dict[str, Any]] = {
    "two classes": {},
    "few values": {"n_values": 3},
    "distinct values": {"n_values": None},
    "float64": {"n_values": None, "cell_dtype": np.float64},
    "five classes": {"n_classes": 5},
    "missing values": {"missing": 0.2},
    "missing values, three classes": {"missing": 0.3, "n_classes": 3, "n_values": 4},
    "only categories": {"n_numeric": 0, "n_categories": (3, 8, 40), "missing": 0.05},
    "mixed": {"n_numeric": 2, "n_categories": (2, 30), "missing": 0.1, "n_classes": 3},
}
