"""Trees node by node, of every kind, and the ways of rows through them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from oubli.core.array_types import Array, Bools, Hashes, Ints
from oubli.core.data.schema import Schema
from oubli.core.data.values import Task
from oubli.core.engine import Engine, Split, TreeFacts, TreeLook
from oubli.core.errors import InputError
from oubli.core.samples.hashing import hashes_of


class ReadModel(Protocol):
    """What exports read of a model; `samples_` is its `SampleStore`."""

    kind: ClassVar[str]
    task: ClassVar[Task]
    is_boosted: ClassVar[bool]
    engine_: Engine
    schema_: Schema
    samples_: Any

    @property
    def guarantee(self) -> str: ...  # noqa: D102

    @property
    def disclosure_(self) -> str: ...  # noqa: D102

    @property
    def is_usable(self) -> bool: ...  # noqa: D102


@dataclass(slots=True)
class Node:
    """A node of a tree in path order: a node, its left subtree, its right subtree.

    Attributes
    ----------
    parent, left, right : numbers of nodes; -1 where there is none. Below a split without children they are not shown.
    depth : of the node; the root's is 0.
    split : what an inner node asks; None at a leaf.
    n_samples : samples held that come through.
    counts : samples of each class held, by weight; None where a tree has no classes.
    value : the mean of the targets, or what a leaf adds to a raw score; None where there is none.
    """

    parent: int
    depth: int
    split: Split | None
    n_samples: int
    counts: list[float] | None
    value: float | None
    left: int = -1
    right: int = -1


def nodes_of(look: TreeLook, max_depth: int | None = None, *, inner_says: bool = True) -> list[Node]:
    """Read a tree, or its nodes down to a depth.

    inner_says : also ask inner nodes what they say, which takes a walk to the leaves below each.
    """
    nodes: list[Node] = []
    waiting = [(look.root, -1, 0)]
    while waiting:
        row, parent, depth = waiting.pop()
        number, left = len(nodes), look.left(row)
        if parent >= 0:
            setattr(nodes[parent], "left" if number == parent + 1 else "right", number)
        counts, value = look.says(row) if left is None or inner_says else (None, None)
        split = None if left is None else look.split(row)
        nodes.append(Node(parent, depth, split, look.n_samples(row), counts, value))
        if left is not None and (max_depth is None or depth < max_depth):
            waiting += [(left + 1, number, depth + 1), (left, number, depth + 1)]
    return nodes


def trees_of(model: ReadModel, *, inner_says: bool = True) -> Iterator[tuple[TreeFacts, list[Node]]]:
    """Read all trees of a model without tags."""
    problem = model.samples_.problem()
    for tree in range(model.engine_.n_drawn_trees):
        look = model.engine_.look(tree, problem)
        yield look.facts, nodes_of(look, inner_says=inner_says)


def look_at(model: ReadModel, tree: Any) -> TreeLook:
    """Return one tree of a model without tags, to be read; InputError when there is no such tree."""
    n_trees = model.engine_.n_drawn_trees
    if type(tree) is not int or not 0 <= tree < n_trees:
        raise InputError(f"must be the number of one of the model's {n_trees} trees, from 0 on", field="tree")
    return model.engine_.look(tree, model.samples_.problem())


class Ways:
    """Which way rows go at splits.

    Parameters
    ----------
    engine : that the splits are of.
    cells, category_hashes : the rows, as the store encodes queries.
    """

    def __init__(self, engine: Engine, cells: Array, category_hashes: Hashes) -> None:
        self.cells, self.hashes = engine.read_queries(cells, category_hashes)

    def are_left(self, split: Split, rows: Any = slice(None)) -> Bools:
        """Whether some of the rows go left at a split."""
        values = self.cells[rows, split.feature if split.column is None else split.column]
        if split.threshold is not None:
            return np.where(np.isnan(values), split.missing_left, values <= np.float64(split.threshold))
        hashed = hashes_of(values, self.hashes)
        if split.goes_left is None:
            return np.asarray(hashed == np.uint64(split.category or 0))
        distinct, places = np.unique(hashed, return_inverse=True)
        return np.array([split.goes_left(one) for one in distinct.tolist()], np.bool_)[places]

    def passed(self, nodes: list[Node]) -> Iterator[tuple[int, Ints]]:
        """Yield the nodes of a tree that rows pass, each with the numbers of these rows."""
        waiting = [(0, np.arange(len(self.cells)))]
        while waiting:
            number, rows = waiting.pop()
            yield number, rows
            node = nodes[number]
            if node.split is not None:
                are_left = self.are_left(node.split, rows)
                sides = (node.left, rows[are_left]), (node.right, rows[~are_left])
                waiting += [(child, some) for child, some in sides if len(some)]


class HeldCategories:
    """The categories held of one column, and which way splits send them.

    Parameters
    ----------
    model : whose splits are asked about.
    column : which.

    Attributes
    ----------
    texts : the categories, sorted.
    hashes : uint64[n + 1] that trees read of these, and of missing values.
    """

    def __init__(self, model: ReadModel, column: int) -> None:
        table, schema = model.samples_.categories, model.schema_
        codes = table.codes[column]
        self.texts = sorted(codes)
        cells = np.full((len(codes) + 1, schema.n_features), np.nan, schema.cell_dtype)
        cells[:-1, column] = [codes[text] for text in self.texts]
        self._ways = Ways(model.engine_, cells, table.hashes)
        self.hashes = hashes_of(self._ways.cells[:, column], self._ways.hashes)
        self._each: list[int] = self.hashes.tolist()

    def sides(self, split: Split) -> tuple[Bools, bool]:
        """Whether each category goes left, and whether missing values do."""
        if split.goes_left is not None:  # of many splits: without looking for equal ones
            found = np.fromiter(map(split.goes_left, self._each), np.bool_, len(self._each))
        else:
            found = self._ways.are_left(split)
        return found[:-1], bool(found[-1])


def held_categories(model: ReadModel) -> dict[int, HeldCategories]:
    """Return the categories held of each categorical column."""
    return {column: HeldCategories(model, column) for column in np.flatnonzero(model.schema_.categorical_mask).tolist()}
