"""Shapley values of predictions: what each column of a row adds to the answer, down from the expected one.

The game is that of TreeSHAP with the weights of the samples ("Consistent individualized feature attribution for tree
ensembles", Lundberg, Erion, Lee 2018): of a set S of columns, a way down a tree follows the row at splits on columns of
S, and both sides by their samples at others. A leaf adds value * (product over the columns i on its way of o_i if i is
in S, else z_i): o_i is 1 where the row follows all splits on i, else 0, and z_i is the share of the samples that do.

TreeSHAP takes O(depth^2) a leaf. Here it is O(1) a node, whatever the depth. A Shapley value is an integral over the
probability t by which each other column is in S (Owen 1972, "Multilinear extensions of games"):

    value * integral from 0 to 1 of (o_i - z_i) * product over j != i of (z_j (1 - t) + o_j t)

which is a polynomial in t. Linear TreeSHAP (Yu et al. 2022) keeps such polynomials at some points. Ours are the points
of a Gauss-Legendre quadrature, half as many as there are columns on a way, which integrates it exactly. The product is
kept on the way down, one factor replaced at each edge; sums over leaves are kept on the way up:

    down    path of a node  = path of its parent * (factor of its column now) / (factor that the column had above)
    up      sum of a node   = value * path at a leaf, else the children's sums
    edge    column i       += sum * ((o - z) / factor now - (o - z) / factor above)

All factors are positive or the way has no weight at all, so nothing cancels. An edge that the row does not follow has
the slope -1 / (1 - t), whatever its z. Rows go through a tree together, sixteen at a time, which share all but sides.
Where leaves answer for many classes, the weight of each column is found at the leaf, once for all classes.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Hashes, Ints, Reals
from oubli.core.concurrency.threads import is_long, run
from oubli.core.explanation.trees import Sizes, WeightedTrees
from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, ONE_VS_REST, in_subset
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import MISSING_CATEGORY

ROWS = 16  # that go through a tree together
_ON, _OFF, _OFF_ABOVE = np.uint8(0), np.uint8(1), np.uint8(2)  # whether the row follows all splits on a column
_T, _REST, _OFF_SLOPE, _WEIGHT = range(4)  # of a point: t, 1 - t, -1 / (1 - t), and what it counts for
_ADDING, _LISTING = 1e-9, 1e-8  # seconds of a row at a node and a point; and where leaves answer for many classes
_LEAST_POINTS = 3


class Attributions(NamedTuple):
    """What each column of some rows adds to their answers; `shap.Explanation(**found._asdict())` takes it.

    Attributes
    ----------
    values : float64[n, d], or float64[n, d, outputs].
    base_values : float64[n], or float64[n, outputs]: the expected answer.
    data : object[n, d]: the rows; categories are text, missing values None.
    feature_names : of the columns.
    output_names : the classes, where there is an output for each; else None.

    Examples
    --------
    >>> from oubli import DynamicForestRegressor
    >>> X, y = [[0.0, 5.0], [1.0, 5.0], [2.0, 5.0]], [1.0, 2.0, 3.0]
    >>> forest = DynamicForestRegressor(n_estimators=5, random_state=0).fit(X, y)
    >>> found = forest.shap_values([[2.0, 5.0]])
    >>> found.feature_names, float(found.values[0, 1])
    (['x0', 'x1'], 0.0)
    """

    values: Reals
    base_values: Reals
    data: Array
    feature_names: list[str]
    output_names: list[str] | None


class Space(NamedTuple):
    """Working space of a thread; levels are those of the way to the node at hand, and each edge has that of its end."""

    nodes: Ints  # int64[levels]
    columns: Ints  # int64[levels]: that the edge's split belongs to
    owners: Ints  # int64[levels]: of the edge above on the same column; 0: none
    last: Ints  # int64[d]: of the last edge on a column; 0: none
    shares: Reals  # float64[levels]: z
    sides: npt.NDArray[np.uint8]  # uint8[levels, rows]: where the split of the node sends rows
    states: npt.NDArray[np.uint8]  # uint8[levels, rows]: of the edge
    slopes: Reals  # float64[levels, 2, points]: (o - z) / factor where the row is on and where it is off
    factors: Reals  # float64[3, points]: what paths are multiplied by at an edge, by state
    paths: Reals  # float64[levels, rows, points]
    sums: Reals  # float64[levels, rows, points]
    found: Reals  # float64[rows, d, points]: by row and column, before it is added up


def _make_space(n_levels: int, n_columns: int, n_points: int) -> Space:
    shapes = (n_levels, 2), (3,), (n_levels, ROWS), (n_levels, ROWS), (ROWS, n_columns)
    return Space._make(
        [
            *(np.zeros(n, np.int64) for n in (n_levels, n_levels, n_levels, n_columns)),
            np.ones(n_levels),
            *(np.zeros((n_levels, ROWS), np.uint8) for _ in range(2)),
            *(np.zeros((*shape, n_points)) for shape in shapes),
        ]
    )


@pasted
def goes_right(nodes, node, cells, row, category_hashes):
    """Side of a row at an inner node, 0 left and 1 right; a code of -1 is the last one."""
    kind, x = nodes[node]["kind"], cells[row, np.int64(nodes[node]["attribute"])]
    if kind <= MISSING_LEFT:
        return np.uint8((x > nodes[node]["threshold"]) | ((x != x) & (kind == MISSING_RIGHT)))
    hashed = MISSING_CATEGORY if x != x else category_hashes[np.int64(x)]
    if kind == ONE_VS_REST:
        return np.uint8(hashed != nodes[node]["category"])
    return np.uint8(not in_subset(nodes[node]["category"], hashed))


@inner
def _enter(trees, points, space, level, n_rows):
    """Go down the edge to space.nodes[level]."""
    node, parent, factors = space.nodes[level], space.nodes[level - 1], space.factors
    column = trees.sources[trees.nodes[parent]["attribute"]]
    owner, cover = space.last[column], trees.covers[parent]
    before = space.shares[owner]
    share = before * (trees.covers[node] / cover if cover > 0.0 else 0.5)
    space.columns[level], space.owners[level], space.shares[level], space.last[column] = column, owner, share, level
    slopes, ratio = space.slopes[level], share / before if before > 0.0 else 0.0
    for q in range(points.shape[1]):
        t, rest = points[_T, q], points[_REST, q]
        now, inverse = share * rest + t, 1.0 / (before * rest + t)
        factors[_ON, q], factors[_OFF, q], factors[_OFF_ABOVE, q] = now * inverse, share * rest * inverse, ratio
        slopes[_ON, q], slopes[_OFF, q] = (1.0 - share) / now, points[_OFF_SLOPE, q]
    side = np.uint8(node != np.int64(trees.nodes[parent]["child"]))
    for row in range(n_rows):
        is_off = np.uint8(space.sides[level - 1, row] != side)
        state = is_off if space.states[owner, row] == _ON else _OFF_ABOVE
        space.states[level, row] = state
        path, above, sums = space.paths[level, row], space.paths[level - 1, row], space.sums[level, row]
        for q in range(points.shape[1]):
            path[q] = above[q] * factors[state, q]
            sums[q] = 0.0


@inner
def _leave(space, level, n_rows):
    """Go up the edge to space.nodes[level], after all leaves below."""
    column, owner = space.columns[level], space.owners[level]
    for row in range(n_rows):
        state, sums, above = space.states[level, row], space.sums[level, row], space.sums[level - 1, row]
        for q in range(sums.shape[0]):
            above[q] += sums[q]
        if state != _OFF_ABOVE:
            slope, before, found = space.slopes[level, state], space.slopes[owner, _ON], space.found[row, column]
            for q in range(sums.shape[0]):
                found[q] += sums[q] * (slope[q] - before[q])


@inner
def _add_listed(trees, space, level, leaf, first, n_rows, values):
    """Add what a leaf with several outputs gives to each column on the way to it."""
    leaves = trees.leaves
    for edge in range(1, level + 1):
        column = space.columns[edge]
        if space.last[column] != edge:
            continue
        for row in range(n_rows):
            state, weight = min(space.states[edge, row], _OFF), 0.0
            for q in range(space.factors.shape[1]):
                weight += space.paths[level, row, q] * space.slopes[edge, state, q]
            for place in range(leaves.starts[leaf], leaves.starts[leaf + 1]):
                values[first + row, column, leaves.outputs[place]] += weight * leaves.values[place]


@inner
def _go_through(trees, root, points, cells, category_hashes, space, first, n_rows, values):
    """Go through a tree, with the rows from `first` on."""
    level = 0
    space.nodes[0] = root
    while True:
        node = space.nodes[level]
        child = np.int64(trees.nodes[node]["child"])
        if level > 0:
            _enter(trees, points, space, level, n_rows)
        if child >= 0:
            for row in range(n_rows):
                space.sides[level, row] = goes_right(trees.nodes, node, cells, first + row, category_hashes)
            level += 1
            space.nodes[level] = child
            continue
        if trees.leaves.starts.shape[0] > 0:
            _add_listed(trees, space, level, ~child, first, n_rows, values)
        else:
            for row in range(n_rows):
                sums, path, value = space.sums[level, row], space.paths[level, row], trees.leaves.values[~child]
                for q in range(sums.shape[0]):
                    sums[q] = path[q] * value
        is_right = True
        while level > 0 and is_right:
            _leave(space, level, n_rows)
            space.last[space.columns[level]] = space.owners[level]
            is_right = space.nodes[level] != np.int64(trees.nodes[space.nodes[level - 1]]["child"])
            level -= is_right
        if level == 0:
            return
        space.nodes[level] += 1


@kernel
def attribute(trees, points, cells, category_hashes, space, values):
    """Add what each column gives to each output to float64[n, d, outputs]; without the factor of the trees.

    points  float64[4, points], see `quadrature`
    cells   float32/64[n, columns read]

    A row has the same bits alone and among others. O(n nodes points).
    """
    for first in range(0, cells.shape[0], ROWS):
        n_rows = min(ROWS, cells.shape[0] - first)
        for row in range(n_rows):
            for q in range(points.shape[1]):
                space.paths[0, row, q] = points[_WEIGHT, q]
        for output in range(values.shape[2]):
            for tree in range(trees.roots.shape[0]):
                if trees.groups[tree] == output:
                    root = trees.roots[tree]
                    _go_through(trees, root, points, cells, category_hashes, space, first, n_rows, values)
            for row in range(n_rows):
                for column in range(values.shape[1]):
                    for q in range(points.shape[1]):
                        values[first + row, column, output] += space.found[row, column, q]
                        space.found[row, column, q] = 0.0


def quadrature(n_columns: int) -> Reals:
    """Points that integrate the polynomials of so many columns on a way exactly; float64[4, points]."""
    points, weights = np.polynomial.legendre.leggauss(max((n_columns + 1) // 2, 1))
    return np.stack([(1.0 + points) / 2.0, (1.0 - points) / 2.0, -2.0 / (1.0 - points), weights / 2.0])


def seconds_to_attribute(trees: WeightedTrees, sizes: Sizes, n_rows: int) -> float:
    """How long the attributions of so many rows take on one thread, roughly."""
    by_point = _LISTING if len(trees.leaves.starts) else _ADDING
    return by_point * n_rows * sizes.n_nodes * (_LEAST_POINTS + sizes.n_columns // 2)


def attribute_rows(
    trees: WeightedTrees, sizes: Sizes, n_features: int, cells: Array, category_hashes: Hashes, n_threads: int
) -> Reals:
    """What each column gives to each output, float64[n, n_features, outputs]."""
    values, points = np.zeros((len(cells), n_features, len(trees.base))), quadrature(sizes.n_columns)
    n = n_threads if is_long(seconds_to_attribute(trees, sizes, len(cells))) else 1
    step = ROWS * max(1, -(-len(cells) // (ROWS * n)))

    def work(begin: int) -> None:
        space, some = _make_space(max(sizes.n_levels, 1), n_features, points.shape[1]), slice(begin, begin + step)
        attribute(trees, points, cells[some], category_hashes, space, values[some])

    run([partial(work, begin) for begin in range(0, len(cells), step)], n)
    values *= trees.factor
    return values
