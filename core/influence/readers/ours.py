"""Our boosted kinds as views: the samples held go down the trees held.

Leaf values of our kinds are rounded (to fixed point, or to a coarse grid on purpose), and those of `online-boosting`
are not -G / H of the present scores once it has been updated in place. So the view refits them: influence is that of
the model whose leaves are computed from the samples held, in float64, in the structures as they are.

F_0 follows the samples where it is a mean or log-odds. On a coarse grid, or where updates leave it alone, it stays.

The leaves that samples reach are numbers that begin with 0 in every tree. A *table* of all nodes is made first, so that
a step down takes no branch. All splits become one form,

    right = x > high or x < low or (x is missing and missing goes right)

Of a numeric split, low is minus infinity. Of a categorical one, both are the code that goes left, so that all other
codes go right. At a leaf the step leads to the leaf itself. Many samples go down a tree in step, as many levels as it
has, so that their waits for memory overlap. Where all splits are numeric and nothing is missing, `x > high` is enough.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Ints, Reals
from oubli.core.boosting.engine import BoostedEngine, ExactEngine
from oubli.core.boosting.parameters import SQUARED_ERROR
from oubli.core.boosting.presorted.derivatives import mark_validating
from oubli.core.boosting.state import LEAF, Trees
from oubli.core.data.schema import Schema
from oubli.core.data.values import ColumnType
from oubli.core.errors import EmptyModelError, InputError, UnavailableError
from oubli.core.influence.losses import Loss, StartRule, find_rule
from oubli.core.influence.readers.rows import held_labels
from oubli.core.influence.views import View, leaf_type
from oubli.core.jit.policy import kernel
from oubli.core.jit.targets import GRID
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Problem
from oubli.core.samples.store import SampleStore

ONLINE_NOTE = (
    "trees that were updated in place have leaves of their own history: this is the influence of refitting all leaves "
    "in the present structures; scrub first to have it of freshly trained trees"
)
QUANTISED_NOTE = (
    "leaf values lie on a grid, on purpose: this is the influence of refitting them as they are before rounding, in "
    "the present structures; what unlearning one sample changes, often nothing, is method='leave-one-out'"
)


def read(engine: BoostedEngine, store: SampleStore, schema: Schema) -> View:
    """Make the view of an engine over the samples of a store.

    Raises
    ------
    EmptyModelError, InputError
        When the model holds no samples, or one class: there are no trees.
    """
    settings, problem = engine.settings, store.problem()
    slots, data = store.slots(), problem.data
    if len(slots) == 0:
        raise EmptyModelError("the model holds no samples: there is nothing that could have influence")
    trees = engine.trees
    if trees.n_groups == 0:
        raise InputError("the model holds samples of one class: there are no trees, and no influence")
    if engine.statistics:
        raise InputError(
            "trees that read statistics of categories follow the labels by more than their leaves: use "
            "method='leave-one-out', or fit with category_statistics=None"
        )
    if settings.loss != SQUARED_ERROR or settings.monotone:
        raise UnavailableError(
            "influence through leaves is for squared error and log-loss without monotone constraints: use "
            "method='leave-one-out' of an exact model, or fit without them"
        )
    columns = store.categories.columns.copy()
    categorical = [i for i, column in enumerate(schema.columns) if column.type is ColumnType.CATEGORICAL]
    table = make_table(trees, data.category_hashes, columns)
    n_groups = trees.n_groups
    if engine.is_classification:
        loss = Loss.BINARY_LOG_LOSS if n_groups == 1 else Loss.SOFTMAX_LOG_LOSS
        y = problem.ranks[problem.class_codes[slots]].astype(np.float64)
    else:
        loss, y = Loss.SQUARED_ERROR, problem.y[slots]
    weights = _training_weights(settings, problem, slots)
    is_exact = isinstance(engine, ExactEngine)
    is_rounded = is_exact and settings.is_quantised  # on a coarse grid
    start_rule = StartRule.CONSTANT
    if is_exact and not is_rounded:
        rules = (StartRule.LOG_ODDS if engine.is_classification else StartRule.MEAN,)
        start_rule = find_rule(rules, trees.base, y, weights)

    def route_rows(X: Any) -> Array:
        cells, category_hashes = store.encode_queries(X)
        # Rows may have categories that are not held, under codes beyond those held.
        if category_hashes is data.category_hashes:
            return route(table, cells, np.arange(len(cells)))
        all_columns = _columns_of(columns, len(category_hashes), cells, categorical)
        return route(make_table(trees, category_hashes, all_columns), cells, np.arange(len(cells)))

    return View(
        leaves=route(table, data.cells, slots),
        offsets=table.offsets,
        values=table.values * (trees.unit / settings.learning_rate),
        n_groups=n_groups,
        loss=loss,
        learning_rate=settings.learning_rate,
        l2=np.full(int(table.offsets[-1]), float(settings.l2_regularization)),
        start=trees.base.astype(np.float64),
        start_rule=start_rule,
        y=y,
        weights=weights,
        ids=list(store.names(slots)),
        route=route_rows,
        read_labels=held_labels(schema, store.classes if engine.is_classification else None),
        factor=(n_groups - 1) / n_groups if n_groups > 1 else 1.0,
        refits=True,
        note="" if is_exact and not is_rounded else QUANTISED_NOTE if is_exact else ONLINE_NOTE,
    )


def _columns_of(
    held: npt.NDArray[np.int32], n_codes: int, cells: Array, categorical: list[int]
) -> npt.NDArray[np.int32]:
    """Columns by code: of those held, and of those that some rows have for categories that are not."""
    columns = np.full(n_codes, -1, np.int32)
    columns[: len(held)] = held
    for column in categorical:
        codes = cells[:, column]
        columns[codes[codes >= len(held)].astype(np.int64)] = column
    return columns


def _training_weights(settings: Any, problem: Problem, slots: Ints) -> Reals:
    """The weights of the samples that train, 0 for those that validate."""
    weights: Reals = problem.units[slots] / GRID if problem.has_weights else np.ones(len(slots))
    if getattr(settings, "patience", 0):
        validates = np.zeros(len(slots), np.bool_)
        mark_validating(problem.data.id_hashes, slots, np.uint64(settings.seed), settings.validation_limit, validates)
        if not validates.all():  # all train when all would validate
            weights[validates] = 0.0
    return weights


# -- leaves -----------------------------------------------------------------------------------------


_LANES = 256


class Table(NamedTuple):
    """All nodes, ready to be gone down."""

    high: npt.NDArray[np.float64]  # float64[n_nodes]
    low: npt.NDArray[np.float64]  # float64[n_nodes]
    missing_right: npt.NDArray[np.uint32]  # uint32[n_nodes]: 0 or 1
    feature: npt.NDArray[np.uint32]  # uint32[n_nodes]
    left: npt.NDArray[np.uint32]  # uint32[n_nodes]
    roots: npt.NDArray[np.int32]  # int32[T]
    depths: npt.NDArray[np.int64]  # int64[T]
    numbers: npt.NDArray[np.uint32]  # uint32[n_nodes]: number of a leaf in its tree
    offsets: npt.NDArray[np.int64]  # int64[T + 1]: where each tree's leaves begin among all
    values: npt.NDArray[np.float64]  # float64[offsets[-1]]: of the leaves, in units
    is_numeric: bool


@kernel
def _number_leaves(nodes, roots, stack, numbers, offsets, depths, values):
    """Number the leaves of each tree from left to right; returns how many there are in all."""
    total = 0
    for tree in range(roots.shape[0]):
        offsets[tree] = total
        stack[0, 0] = roots[tree]
        stack[0, 1] = 0
        size = 1
        while size > 0:
            size -= 1
            node = np.int64(stack[size, 0])
            depth = stack[size, 1]
            if nodes[node]["feature"] == LEAF:
                depths[tree] = max(depths[tree], np.int64(depth))
                numbers[node] = np.uint32(total - offsets[tree])
                values[total] = nodes[node]["value"]
                total += 1
                continue
            for side in range(2):
                stack[size + side, 0] = nodes[node]["left"] + 1 - side
                stack[size + side, 1] = depth + 1
            size += 2
    offsets[roots.shape[0]] = total
    return total


def make_table(trees: Trees, category_hashes: npt.NDArray[np.uint64], columns: npt.NDArray[np.int32]) -> Table:
    """Make the table.

    Parameters
    ----------
    trees
        As predictions read them.
    category_hashes
        Hashes by the codes that the samples to be routed have.
    columns
        Columns by code: the same value in two columns has one hash and two codes. -1: no sample has it.
    """
    nodes, n_trees = trees.nodes, len(trees.roots)
    n_nodes = len(nodes)
    numbers = np.zeros(n_nodes, np.uint32)
    offsets = np.zeros(n_trees + 1, np.int64)
    depths = np.zeros(n_trees, np.int64)
    values = np.zeros(n_nodes)
    stack = np.zeros((n_nodes + 2, 2), np.int32)
    n_leaves = _number_leaves(nodes, trees.roots, stack, numbers, offsets, depths, values)
    is_leaf = nodes["feature"] == LEAF
    is_categorical = (nodes["is_categorical"] != 0) & ~is_leaf
    high = np.where(is_leaf, np.inf, nodes["threshold"])
    low = np.full(n_nodes, -np.inf)
    missing_right = ((nodes["missing_left"] == 0) & ~is_leaf).astype(np.uint32)
    if is_categorical.any():
        wanted = nodes["category"][is_categorical]
        codes = _codes_of(wanted, nodes["feature"][is_categorical], category_hashes, columns)
        high[is_categorical] = low[is_categorical] = codes
        missing_right[is_categorical] = wanted != MISSING_CATEGORY
    return Table(
        high=high,
        low=low,
        missing_right=missing_right,
        feature=np.where(is_leaf, 0, nodes["feature"]).astype(np.uint32),
        left=np.where(is_leaf, np.arange(n_nodes), nodes["left"]).astype(np.uint32),
        roots=trees.roots,
        depths=depths,
        numbers=numbers,
        offsets=offsets,
        values=values[:n_leaves],
        is_numeric=not is_categorical.any(),
    )


def _codes_of(
    hashes: npt.NDArray[np.uint64],
    features: npt.NDArray[np.integer],
    category_hashes: npt.NDArray[np.uint64],
    columns: npt.NDArray[np.int32],
) -> npt.NDArray[np.float64]:
    """Codes with these hashes in these columns; -1, which no sample has, where there is none."""
    found = np.full(len(hashes), -1.0)
    for column in np.unique(features):
        codes = np.flatnonzero(columns == column)
        if len(codes) == 0:
            continue
        here = features == column
        codes = codes[np.argsort(category_hashes[codes], kind="stable")]
        places = np.minimum(np.searchsorted(category_hashes[codes], hashes[here]), len(codes) - 1)
        found[here] = np.where(category_hashes[codes[places]] == hashes[here], codes[places], -1)
    return found


@kernel
def _route_any(high, low, missing_right, feature, left, roots, depths, numbers, cells, slots, at, leaves):
    for first in range(0, slots.shape[0], _LANES):
        n_lanes = min(_LANES, slots.shape[0] - first)
        for tree in range(roots.shape[0]):
            for lane in range(n_lanes):
                at[lane] = roots[tree]
            for _ in range(depths[tree]):
                for lane in range(n_lanes):
                    node = np.uint64(at[lane])
                    x = np.float64(cells[np.uint64(slots[first + lane]), np.uint64(feature[node])])
                    right = np.uint32(x > high[node]) | np.uint32(x < low[node])
                    right |= np.uint32(x != x) & missing_right[node]
                    at[lane] = left[node] + right
            for lane in range(n_lanes):
                leaves[tree, first + lane] = numbers[np.uint64(at[lane])]


@kernel
def _route_present_numbers(high, feature, left, roots, depths, numbers, cells, slots, at, leaves):
    """The same where no split is categorical and no cell is missing; `high` is of the cells' type."""
    for first in range(0, slots.shape[0], _LANES):
        n_lanes = min(_LANES, slots.shape[0] - first)
        for tree in range(roots.shape[0]):
            for lane in range(n_lanes):
                at[lane] = roots[tree]
            for _ in range(depths[tree]):
                for lane in range(n_lanes):
                    node = np.uint64(at[lane])
                    x = cells[np.uint64(slots[first + lane]), np.uint64(feature[node])]
                    at[lane] = left[node] + np.uint32(x > high[node])
            for lane in range(n_lanes):
                leaves[tree, first + lane] = numbers[np.uint64(at[lane])]


def _rounded_down(thresholds: npt.NDArray[np.float64], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The largest numbers of a type that are not above the thresholds: the same cells are above them."""
    with np.errstate(over="ignore"):
        rounded = thresholds.astype(dtype)
    return np.where(rounded > thresholds, np.nextafter(rounded, dtype.type(-np.inf)), rounded)


def route(table: Table, cells: npt.NDArray[Any], slots: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the leaf of each row of `cells` named in `slots` in each tree, uint8/16/32[T, n]. O(n T depth)."""
    leaves = np.empty((len(table.roots), len(slots)), leaf_type(int(np.diff(table.offsets).max(initial=0))))
    at = np.zeros(_LANES, np.uint32)
    shared = (table.feature, table.left, table.roots, table.depths, table.numbers, cells, slots, at, leaves)
    if table.is_numeric and not np.isnan(cells[slots]).any():
        _route_present_numbers(_rounded_down(table.high, cells.dtype), *shared)
    else:
        _route_any(table.high, table.low, table.missing_right, *shared)
    return leaves
