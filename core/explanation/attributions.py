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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Hashes, Ints, Reals
from oubli.core.concurrency.threads import is_long, run
from oubli.core.explanation.trees import Sizes, WeightedTrees
from oubli.core.jit.aligned import LANES, dot, multiply_add
from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, ONE_VS_REST, in_subset
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.rng import MISSING_CATEGORY

ROWS = 16  # that go through a tree together
_ON, _OFF, _OFF_ABOVE = np.uint8(0), np.uint8(1), np.uint8(2)  # whether the row follows all splits on a column
_STATES = 3
_ADDING, _LISTING = 5e-9, 5e-8  # seconds of a row at a node, roughly; and where leaves answer for many classes
_T, _REST, _INVERSE, _WEIGHT = range(4)  # of a point: t, 1 - t, 1 / (1 - t), and what it counts for
_CONSTANTS = np.repeat([0.0, 1.0], LANES)  # where a product or a sum is wanted alone
_ZERO, _ONE = 0, LANES


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
    paths: Reals  # float64[levels * rows * lanes]
    sums: Reals  # float64[levels * rows * lanes]
    slopes: Reals  # float64[levels * states * lanes]: what an edge's sum is multiplied by
    factors: Reals  # float64[(states + 1) * lanes]: what paths are multiplied by at an edge; and a leaf's value
    found: Reals  # float64[rows * d * lanes]: by row and column, before it is added up


def _make_space(n_levels: int, n_columns: int) -> Space:
    by_row = n_levels * ROWS * LANES
    return Space(
        *(np.zeros(n_levels, np.int64) for _ in range(3)),
        shares=np.ones(n_levels),
        last=np.zeros(n_columns, np.int64),
        sides=np.zeros((n_levels, ROWS), np.uint8),
        states=np.zeros((n_levels, ROWS), np.uint8),
        paths=np.zeros(by_row),
        sums=np.zeros(by_row),
        slopes=np.zeros(n_levels * _STATES * LANES),
        factors=np.zeros((_STATES + 1) * LANES),
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


@inner
def _enter(trees, points, space, level, n_rows, is_listed):
    """Go down the edge to space.nodes[level]."""
    node, parent = space.nodes[level], space.nodes[level - 1]
    column = trees.sources[trees.nodes[parent]["attribute"]]
    owner, cover = space.last[column], trees.covers[parent]
    before = space.shares[owner]
    share = before * (trees.covers[node] / cover if cover > 0.0 else 0.5)
    space.columns[level], space.owners[level], space.shares[level], space.last[column] = column, owner, share, level
    factors, slopes, first = space.factors, space.slopes, level * _STATES * LANES
    for q in range(LANES):
        t, rest = points[_T, q], points[_REST, q]
        now, inverse = share * rest + t, 1.0 / (before * rest + t)
        above = 0.0 if is_listed else (1.0 - before) * inverse  # what the column has at leaves is found there
        factors[q] = now * inverse
        factors[LANES + q] = share * rest * inverse
        factors[2 * LANES + q] = share / before if before > 0.0 else 0.0
        slopes[first + q] = (1.0 - share) / now - above
        slopes[first + LANES + q] = -points[_INVERSE, q] - above
        slopes[first + 2 * LANES + q] = -points[_INVERSE, q] if is_listed else 0.0
    side = np.uint8(node != np.int64(trees.nodes[parent]["child"]))
    for row in range(n_rows):
        is_off = np.uint8(space.sides[level - 1, row] != side)
        state = is_off if space.states[owner, row] == _ON else _OFF_ABOVE
        space.states[level, row] = state
        here, above = (level * ROWS + row) * LANES, ((level - 1) * ROWS + row) * LANES
        multiply_add(space.paths, here, space.paths, above, factors, np.int64(state) * LANES, _CONSTANTS, _ZERO)


@inner
def _leave(space, level, n_rows, is_left):
    """Go up the edge to space.nodes[level], after all leaves below."""
    column, n_columns, sums = space.columns[level], space.last.shape[0], space.sums
    space.last[column] = space.owners[level]
    for row in range(n_rows):
        here, above = (level * ROWS + row) * LANES, ((level - 1) * ROWS + row) * LANES
        found, state = (row * n_columns + column) * LANES, np.int64(space.states[level, row])
        multiply_add(space.found, found, sums, here, space.slopes, (level * _STATES + state) * LANES, space.found, found)
        if is_left:
            multiply_add(sums, above, sums, here, _CONSTANTS, _ONE, _CONSTANTS, _ZERO)
        else:
            multiply_add(sums, above, sums, here, _CONSTANTS, _ONE, sums, above)


@inner
def _add_listed(trees, space, level, leaf, first, n_rows, values):
    """Add what a leaf with several outputs gives to each column on the way to it."""
    leaves = trees.leaves
    for edge in range(1, level + 1):
        column = space.columns[edge]
        if space.last[column] != edge:
            continue
        for row in range(n_rows):
            slope = (edge * _STATES + np.int64(space.states[edge, row])) * LANES
            weight = dot(space.paths, (level * ROWS + row) * LANES, space.slopes, slope)
            for place in range(leaves.starts[leaf], leaves.starts[leaf + 1]):
                values[first + row, column, leaves.outputs[place]] += weight * leaves.values[place]


@inner
def _go_through(trees, root, points, cells, category_hashes, space, first, n_rows, values):
    """Go through a tree, with the rows from `first` on."""
    is_listed = trees.leaves.starts.shape[0] > 0
    level = 0
    space.nodes[0] = root
    while True:
        node = space.nodes[level]
        child = np.int64(trees.nodes[node]["child"])
        if child >= 0:
            for row in range(n_rows):
                space.sides[level, row] = goes_right(trees.nodes, node, cells, first + row, category_hashes)
            level += 1
            space.nodes[level] = child
            _enter(trees, points, space, level, n_rows, is_listed)
            continue
        if is_listed:
            _add_listed(trees, space, level, ~child, first, n_rows, values)
        else:
            for q in range(LANES):
                space.factors[_STATES * LANES + q] = trees.leaves.values[~child]
            for row in range(n_rows):
                here = (level * ROWS + row) * LANES
                multiply_add(
                    space.sums, here, space.paths, here, space.factors, _STATES * LANES, _CONSTANTS, _ZERO
                )  # fmt: skip
        while level > 0:
            is_left = space.nodes[level] == np.int64(trees.nodes[space.nodes[level - 1]]["child"])
            if is_listed:
                space.last[space.columns[level]] = space.owners[level]
            else:
                _leave(space, level, n_rows, is_left)
            if is_left:
                space.nodes[level] += 1
                _enter(trees, points, space, level, n_rows, is_listed)
                break
            level -= 1
        if level == 0:
            return


@kernel
def attribute(trees, points, cells, category_hashes, space, values):
    """Add what each column gives to each output to float64[n, d, outputs]; without the factor of the trees.

    points  float64[passes, 4, lanes], see `quadrature`
    cells   float32/64[n, columns read]

    A row has the same bits alone and among others. O(n nodes passes).
    """
    n_columns = values.shape[1]
    for first in range(0, cells.shape[0], ROWS):
        n_rows = min(ROWS, cells.shape[0] - first)
        for piece in range(points.shape[0]):
            for row in range(n_rows):
                for q in range(LANES):
                    space.paths[row * LANES + q] = points[piece, _WEIGHT, q]
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
    """Points that integrate the polynomials of so many columns on a way exactly; float64[passes, 4, lanes]."""
    n_passes = max(1, -(-n_columns // (2 * LANES)))
    points, weights = np.polynomial.legendre.leggauss(n_passes * LANES)
    t = (points + 1.0) / 2.0
    rest = (1.0 - points) / 2.0
    return np.stack([t, rest, 1.0 / rest, weights / 2.0]).reshape(4, n_passes, LANES).transpose(1, 0, 2).copy()


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
