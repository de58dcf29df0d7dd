"""The nearest change of one or two columns of a row that changes its answer, found in the trees.

As a function of some columns an answer is constant between the thresholds of the splits on them. So only values next
to such thresholds are tried, of splits that the row can come to when no more columns change, and categories held:

    number      the largest value that goes left at a threshold below, the smallest that goes right at one above;
                a whole number where all samples have whole numbers; in standard deviations of the samples held
    category    each other one that is held; counts 1. So does a truth value, and a number where none is known

Changes are tried from the nearest on, and single ones all. Of two columns the nearest `MOST` pairs are tried, by the
sum of both parts, each of which alone brings the answer closer to the other one than all nearer values of its column on
the same side. Nothing is made missing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from oubli.core.array_types import Array, Bools, Hashes, Reals
from oubli.core.data.values import Column, ColumnType, shortest
from oubli.core.explanation.attributions import goes_right
from oubli.core.explanation.trees import WeightedTrees
from oubli.core.jit.policy import kernel
from oubli.core.samples.store import SampleStore

MOST = 20_000
_BATCH = 256  # rows that are predicted at once


class NearestChange(NamedTuple):
    """A change of a row that changes its answer.

    Attributes
    ----------
    features : names of the columns that change, in their order.
    before, after : their values.
    distance : how far that is: numbers in standard deviations of the samples held; categories, truth values and what
        was missing count 1.
    answer : what is predicted then.
    row : the changed row.

    Examples
    --------
    >>> from oubli import DynamicForestClassifier
    >>> X, y = [["red"], ["red"], ["blue"], ["blue"]], ["stop", "stop", "go", "go"]
    >>> forest = DynamicForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> change = forest.nearest_change(["red"])
    >>> change.features, change.before, change.after, change.answer
    (['x0'], ['red'], ['blue'], 'go')
    """

    features: list[str]
    before: list[Any]
    after: list[Any]
    distance: float
    answer: Any
    row: list[Any]


class Step(NamedTuple):
    """A column and its new cell, and how far that is."""

    distance: float
    column: int
    order: int  # among equally far ones of the column
    cell: float


@kernel
def mark_near(nodes, roots, sources, cells, category_hashes, most, stack, is_met):
    """Mark the splits that a row, cells[:1], can come to and that may send it elsewhere when `most` columns change.

    stack   int64[levels + 1, 3], working space: nodes, and the columns that have changed above, -1: none
    is_met  bool[nodes], written
    """
    for tree in range(roots.shape[0]):
        stack[0, 0], stack[0, 1], stack[0, 2] = roots[tree], -1, -1
        size = 1
        while size > 0:
            size -= 1
            node, one, other = stack[size, 0], stack[size, 1], stack[size, 2]
            child = np.int64(nodes[node]["child"])
            if child < 0:
                continue
            column = sources[nodes[node]["attribute"]]
            side = np.int64(goes_right(nodes, node, cells, 0, category_hashes))
            stack[size, 0] = child + side
            size += 1
            if column != one and column != other:
                if one < 0:
                    one = column
                elif other < 0 and most == 2:
                    other = column
                else:
                    continue
            is_met[node] = True
            stack[size, 0], stack[size, 1], stack[size, 2] = child + 1 - side, one, other
            size += 1


Judge = Callable[[Array], tuple[Bools, Reals]]
"""Says of rows of cells whether they are answered otherwise, and how close to that they are: more is closer."""


def flipping_changes(
    trees: WeightedTrees, n_levels: int, store: SampleStore, cells: Array, read: tuple[Array, Hashes], most: int,
    columns: Sequence[int], judge: Judge,
) -> Iterator[tuple[float, list[int], Array]]:  # fmt: skip
    """Yield distance, columns and cells, float32/64[d], of the changes that flip the answer for a row, nearest first.

    Parameters
    ----------
    trees, n_levels : without tags.
    store : the samples held.
    cells : the row, float32/64[1, d].
    read : what trees read of it.
    most : how many columns may change, 1 or 2.
    columns : that may.
    judge : see `Judge`.
    """
    is_met = np.zeros(len(trees.nodes), np.bool_)
    mark_near(trees.nodes, trees.roots, trees.sources, *read, most, np.zeros((n_levels + 1, 3), np.int64), is_met)
    steps = sorted(_steps(trees, is_met, store, cells[0], columns))
    if most == 1:
        yield from (flip[:3] for flip in _tried([(step,) for step in steps], cells, judge) if flip[3])
        return
    singles = list(_tried([(step,) for step in steps], cells, judge))
    flips = [flip[:3] for flip in singles if flip[3]]
    limit = flips[0][0] if flips else np.inf
    now, best = float(judge(cells)[1][0]), dict[tuple[int, bool], float]()
    kept = []
    for step, (_, _, _, _, closeness) in zip(steps, singles, strict=True):
        side = step.column, step.cell > cells[0, step.column]
        if step.distance < limit and closeness > best.get(side, now):
            best[side] = closeness
            kept.append(step)
    far, column = np.array([step.distance for step in kept]), np.array([step.column for step in kept])
    one, other = np.triu_indices(len(kept), 1)
    total = far[one] + far[other] if kept else far
    chosen = np.flatnonzero((column[one] != column[other]) & (total < limit)) if kept else one
    chosen = chosen[np.argsort(total[chosen], kind="stable")[:MOST]]
    pairs = [(kept[i], kept[j]) for i, j in zip(one[chosen].tolist(), other[chosen].tolist(), strict=True)]
    yield from (flip[:3] for flip in _tried(pairs, cells, judge) if flip[3])
    yield from flips


def _tried(
    changes: Sequence[tuple[Step, ...]], cells: Array, judge: Judge
) -> Iterator[tuple[float, list[int], Array, bool, float]]:
    """Yield distance, columns and cells of changes, whether they flip the answer, and how close they come to that."""
    for begin in range(0, len(changes), _BATCH):
        batch = changes[begin : begin + _BATCH]
        rows = np.repeat(cells, len(batch), axis=0)
        for row, steps in zip(rows, batch, strict=True):
            for step in steps:
                row[step.column] = step.cell
        for steps, row, is_flipped, closeness in zip(batch, rows, *judge(rows), strict=True):
            changed = sorted(step.column for step in steps)
            yield sum(step.distance for step in steps), changed, row, bool(is_flipped), float(closeness)


def shown(value: Any, column: Column) -> Any:
    """A value of a row as short as it can be said."""
    return shortest(value, column.dtype) if column.type is ColumnType.NUMERIC and value is not None else value


def _steps(
    trees: WeightedTrees, is_met: Bools, store: SampleStore, row: Array, columns: Sequence[int]
) -> Iterator[Step]:
    met = trees.nodes[is_met]
    read, slots, table = trees.sources[met["attribute"]], store.slots(), store.categories
    for column in sorted(set(read.tolist()).intersection(columns)):
        declared, x = store.schema.columns[column], float(row[column])
        if declared.type is ColumnType.NUMERIC:
            held = np.sort(store.cells[slots, column]).astype(np.float64)  # in an order that is no history
            held = held[~np.isnan(held)]
            is_whole = bool((held == np.floor(held)).all())
            cells = _crossings(np.unique(met["threshold"][read == column]), x, declared.dtype, is_whole=is_whole)
            spread = float(held.std()) if len(held) else 0.0
            far = np.abs(cells - x) / spread if spread > 0.0 and x == x else np.ones(len(cells))
        else:
            known = [0.0, 1.0]
            if declared.type is ColumnType.CATEGORICAL:
                codes = table.codes[column]
                known = [code for _, _, code in sorted((-int(table.counts[codes[t]]), t, codes[t]) for t in codes)]
            cells = np.array([cell for cell in known if cell != x], np.float64)
            far = np.ones(len(cells))
        for order, (distance, cell) in enumerate(zip(far.tolist(), cells.tolist(), strict=True)):
            yield Step(distance, column, order, cell)


def _crossings(thresholds: Reals, x: float, dtype: str, *, is_whole: bool) -> Reals:
    """The values next to thresholds, on the other side of each than x; on both when x is not known."""
    finite, number = thresholds[np.isfinite(thresholds)], np.dtype(dtype).type
    below: Any = (np.floor(finite) if is_whole else finite).astype(number)
    below = np.where(below > finite, np.nextafter(below, number(-np.inf)), below)
    above = below + number(1) if is_whole else np.nextafter(below, number(np.inf))
    found: Reals = np.unique(np.concatenate([below[~(finite >= x)], above[~(finite < x)]]).astype(np.float64))
    return found[np.isfinite(found)]
