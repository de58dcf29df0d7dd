"""Shapley values of predictions: what each column of a row adds to the answer, down from the expected one.

The game is that of TreeSHAP with the weights of the samples ("Consistent individualized feature attribution for tree
ensembles", Lundberg, Erion, Lee 2018): of a set S of columns, a way down a tree follows the row at splits on columns of
S, and both sides by their samples at others. A leaf adds value * (product over the columns i on its way of o_i if i is
in S, else z_i): o_i is 1 where the row follows all splits on i, else 0, and z_i is the share of the samples that do.

TreeSHAP takes O(depth^2) a leaf. Here it is O(1) a node, whatever the depth. A Shapley value is an integral over the
probability t by which each other column is in S (Owen 1972, "Multilinear extensions of games"):

    value * integral from 0 to 1 of (o_i - z_i) * product over j != i of (z_j (1 - t) + o_j t)

which is a polynomial in t. Linear TreeSHAP (Yu et al. 2022) keeps such polynomials at some points. Ours are the points
of a Gauss-Legendre quadrature, eight at a time, which integrates up to sixteen columns on a way exactly. The product is
kept on the way down, one factor replaced at each edge; sums over leaves are kept on the way up:

    down    path of a node  = path of its parent * (factor of its column now) / (factor that the column had above)
    up      sum of a node   = value * path at a leaf, else the children's sums
    edge    column i       += sum * ((o - z) / factor now - (o - z) / factor above)

All factors are positive or the way has no weight at all, so nothing cancels. An edge that the row does not follow has
the slope -1 / (1 - t), whatever its z. Rows go through a tree together, sixteen at a time, which share all but sides.
Where leaves answer for many classes, the weight of each column is found at the leaf, once for all classes.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Hashes, Ints, Reals
from oubli.core.concurrency.threads import is_long, run
from oubli.core.explanation.trees import Sizes, WeightedTrees
from oubli.core.jit.aligned import LANES, by_eight
from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, ONE_VS_REST, in_subset
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import MISSING_CATEGORY

ROWS = 16  # that go through a tree together
_ON, _OFF, _OFF_ABOVE = np.uint8(0), np.uint8(1), np.uint8(2)  # whether the row follows all splits on a column
_ADDING, _LISTING = 5e-9, 5e-8  # seconds of a row at a node, roughly; and where leaves answer for many classes
_POINTS = 4  # eights of a pass: t, 1 - t, -1 / (1 - t), and the weights of the points
# Eights of an edge: 1 / factor of its column where the row follows all splits on it, and the slope there;
_FACTORS = 2  # what paths are multiplied by, by state;
_SLOPES = 5  # what sums are multiplied by, by state
_EDGE = 8 * LANES


class Attributions(NamedTuple):
    """What each column of some rows adds to their answers; `shap.Explanation(**found._asdict())` takes it.

    Attributes
    ----------
    values : float64[n, d], or float64[n, d, outputs].
    base_values : float64[n], or float64[n, outputs]: the expected answer.
    data : object[n, d]: the rows; categories are text, missing values None.
    feature_names : of the columns.
    output_names : the classes, where there is an output for each; else None.
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
    shares: Reals  # float64[levels]: z
    last: Ints  # int64[d]: of the last edge on a column; 0: none
    sides: npt.NDArray[np.uint8]  # uint8[levels, rows]: where the split of the node sends rows
    states: npt.NDArray[np.uint8]  # uint8[levels, rows]: of the edge
    edges: Reals  # float64[levels * _EDGE]
    paths: Reals  # float64[levels * rows * lanes]
    sums: Reals  # float64[levels * rows * lanes]
    found: Reals  # float64[rows * d * lanes]: by row and column, before it is added up


def _make_space(n_levels: int, n_columns: int) -> Space:
    by_row = n_levels * ROWS * LANES
    return Space(
        *(np.zeros(n_levels, np.int64) for _ in range(3)),
        shares=np.ones(n_levels),
        last=np.zeros(n_columns, np.int64),
        sides=np.zeros((n_levels, ROWS), np.uint8),
        states=np.zeros((n_levels, ROWS), np.uint8),
        edges=np.repeat([1.0, 0.0], [LANES, n_levels * _EDGE - LANES]),
        paths=np.zeros(by_row),
        sums=np.zeros(by_row),
        found=np.zeros(ROWS * n_columns * LANES),
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


def _edge_formula(inverse_above: Any, slope_above: Any, t: Any, rest: Any, off: Any, share: Any, ratio: Any) -> Any:
    now = rest * share + t
    inverse = 1.0 / now
    slope = inverse * (1.0 - share)
    factors = now * inverse_above, rest * share * inverse_above, ratio
    return inverse, slope, *factors, slope - slope_above, off - slope_above, 0.0


def _leaf_formula(found: Any, above: Any, path: Any, factor: Any, slope: Any, value: Any) -> Any:
    part = path * factor * value
    return found + part * slope, above + part


_make_edge = by_eight(_edge_formula, (8,), (2, 3), 2)
_go_down = by_eight(lambda path, factor: (path * factor, 0.0), (1, 1), (1, 1))
_go_up = by_eight(lambda found, above, sums, slope: (found + sums * slope, above + sums), (1, 1), (1, 1, 1, 1))
_go_to_leaf = by_eight(_leaf_formula, (1, 1), (1, 1, 1, 1, 1), 1)
_multiply = by_eight(lambda path, slope: (path * slope,), (1,), (1, 1))


@inner
def _enter(trees, points, space, level, n_rows):
    """Make the edge to space.nodes[level], and say of each row whether it follows all splits on its column."""
    node, parent = space.nodes[level], space.nodes[level - 1]
    column = trees.sources[trees.nodes[parent]["attribute"]]
    owner, cover = space.last[column], trees.covers[parent]
    before = space.shares[owner]
    share = before * (trees.covers[node] / cover if cover > 0.0 else 0.5)
    space.columns[level], space.owners[level], space.shares[level], space.last[column] = column, owner, share, level
    ratio = share / before if before > 0.0 else 0.0
    _make_edge(space.edges, level * _EDGE, space.edges, owner * _EDGE, points, np.int64(0), share, ratio)
    side = np.uint8(node != np.int64(trees.nodes[parent]["child"]))
    for row in range(n_rows):
        is_off = np.uint8(space.sides[level - 1, row] != side)
        space.states[level, row] = is_off if space.states[owner, row] == _ON else _OFF_ABOVE


@inner
def _pass_leaf(space, level, n_rows, value):
    """Add what a leaf says to the sums above, and to the column of its edge."""
    column, n_columns = space.columns[level], space.last.shape[0]
    for row in range(n_rows):
        above, found = ((level - 1) * ROWS + row) * LANES, (row * n_columns + column) * LANES
        factor = level * _EDGE + (_FACTORS + np.int64(space.states[level, row])) * LANES
        slope = factor + (_SLOPES - _FACTORS) * LANES
        _go_to_leaf(
            space.found, found, space.sums, above,
            space.found, found, space.sums, above, space.paths, above, space.edges, factor, space.edges, slope, value,
        )  # fmt: skip


@inner
def _descend(space, level, n_rows):
    """Take the paths of rows to space.nodes[level]."""
    for row in range(n_rows):
        here, above = (level * ROWS + row) * LANES, ((level - 1) * ROWS + row) * LANES
        factor = level * _EDGE + (_FACTORS + np.int64(space.states[level, row])) * LANES
        _go_down(space.paths, here, space.sums, here, space.paths, above, space.edges, factor)


@inner
def _ascend(space, level, n_rows):
    """Take the sums of rows to the node above, and add them to the column of the edge."""
    column, n_columns = space.columns[level], space.last.shape[0]
    for row in range(n_rows):
        here, above = (level * ROWS + row) * LANES, ((level - 1) * ROWS + row) * LANES
        found = (row * n_columns + column) * LANES
        slope = level * _EDGE + (_SLOPES + np.int64(space.states[level, row])) * LANES
        _go_up(
            space.found, found, space.sums, above,
            space.found, found, space.sums, above, space.sums, here, space.edges, slope,
        )  # fmt: skip


@inner
def _add_listed(trees, points, space, level, leaf, first, n_rows, values):
    """Add what a leaf with several outputs gives to each column on the way to it."""
    leaves, products = trees.leaves, space.found
    for edge in range(1, level + 1):
        column = space.columns[edge]
        if space.last[column] != edge:
            continue
        for row in range(n_rows):
            path = (level * ROWS + row) * LANES
            if space.states[edge, row] == _ON:
                _multiply(products, np.int64(0), space.paths, path, space.edges, edge * _EDGE + LANES)
            else:
                _multiply(products, np.int64(0), space.paths, path, points, np.int64(2 * LANES))
            weight = 0.0
            for q in range(LANES):
                weight += products[q]
            for place in range(leaves.starts[leaf], leaves.starts[leaf + 1]):
                values[first + row, column, leaves.outputs[place]] += weight * leaves.values[place]
    for q in range(LANES):
        products[q] = 0.0


@inner
def _go_through(trees, root, points, cells, category_hashes, space, first, n_rows, values):
    """Go through a tree, with the rows from `first` on."""
    is_listed = trees.leaves.starts.shape[0] > 0
    level = 0
    space.nodes[0] = root
    while True:
        node = space.nodes[level]
        child = np.int64(trees.nodes[node]["child"])
        if level > 0:
            _enter(trees, points, space, level, n_rows)
        if child >= 0:
            if level > 0:
                _descend(space, level, n_rows)
            for row in range(n_rows):
                space.sides[level, row] = goes_right(trees.nodes, node, cells, first + row, category_hashes)
            level += 1
            space.nodes[level] = child
            continue
        if level == 0:
            return  # a tree of one leaf says nothing of any column
        if is_listed:
            _descend(space, level, n_rows)
            _add_listed(trees, points, space, level, ~child, first, n_rows, values)
        else:
            _pass_leaf(space, level, n_rows, trees.leaves.values[~child])
        space.last[space.columns[level]] = space.owners[level]
        while space.nodes[level] != np.int64(trees.nodes[space.nodes[level - 1]]["child"]):
            level -= 1  # both children are done
            if level == 0:
                return
            if not is_listed:
                _ascend(space, level, n_rows)
            space.last[space.columns[level]] = space.owners[level]
        space.nodes[level] += 1


@kernel
def attribute(trees, points, cells, category_hashes, space, values):
    """Add what each column gives to each output to float64[n, d, outputs]; without the factor of the trees.

    points  float64[passes, 4 * lanes], see `quadrature`
    cells   float32/64[n, columns read]

    A row has the same bits alone and among others. O(n nodes passes).
    """
    n_columns = values.shape[1]
    for first in range(0, cells.shape[0], ROWS):
        n_rows = min(ROWS, cells.shape[0] - first)
        for piece in range(points.shape[0]):
            for row in range(n_rows):
                for q in range(LANES):
                    space.paths[row * LANES + q] = points[piece, (_POINTS - 1) * LANES + q]
            for output in range(values.shape[2]):
                for i in range(n_rows * n_columns * LANES):
                    space.found[i] = 0.0
                for tree in range(trees.roots.shape[0]):
                    if trees.groups[tree] == output:
                        root, some = trees.roots[tree], points[piece]
                        _go_through(trees, root, some, cells, category_hashes, space, first, n_rows, values)
                for row in range(n_rows):
                    for column in range(n_columns):
                        for q in range(LANES):
                            values[first + row, column, output] += space.found[(row * n_columns + column) * LANES + q]


def quadrature(n_columns: int) -> Reals:
    """Points that integrate the polynomials of so many columns on a way exactly; float64[passes, 4 * lanes]."""
    n_passes = max(1, -(-n_columns // (2 * LANES)))
    points, weights = np.polynomial.legendre.leggauss(n_passes * LANES)
    t, rest = (1.0 + points) / 2.0, (1.0 - points) / 2.0
    eights = np.stack([t, rest, -1.0 / rest, weights / 2.0]).reshape(_POINTS, n_passes, LANES)
    return np.ascontiguousarray(eights.transpose(1, 0, 2)).reshape(n_passes, _POINTS * LANES)


def seconds_to_attribute(trees: WeightedTrees, sizes: Sizes, n_rows: int) -> float:
    """How long the attributions of so many rows take on one thread, roughly."""
    by_node = _LISTING if len(trees.leaves.starts) else _ADDING
    return by_node * n_rows * sizes.n_nodes * len(quadrature(sizes.n_columns))


def attribute_rows(
    trees: WeightedTrees, sizes: Sizes, n_features: int, cells: Array, category_hashes: Hashes, n_threads: int
) -> Reals:
    """What each column gives to each output, float64[n, n_features, outputs]."""
    values, points = np.zeros((len(cells), n_features, len(trees.base))), quadrature(sizes.n_columns)
    n = min(n_threads, -(-len(cells) // ROWS)) if is_long(seconds_to_attribute(trees, sizes, len(cells))) else 1
    ends = [min(len(cells), ROWS * (i * -(-len(cells) // ROWS) // n)) for i in range(n)] + [len(cells)]

    def work(begin: int, end: int) -> None:
        space = _make_space(max(sizes.n_levels, 1), n_features)
        attribute(trees, points, cells[begin:end], category_hashes, space, values[begin:end])

    run([partial(work, begin, end) for begin, end in pairwise(ends)], n)
    values *= trees.factor
    return values
