"""The trees as plain arrays for a file, and back, checked.

A file holds the places in use only, tree by tree, and for every sample, in the order of the slots, what it
contributes to each tree. Everything else is computed when the file is read: candidates are drawn, codes and leaves
looked up, sums and values counted. So nothing in a file can silently contradict the samples.

    n_grown, scale, limit, ranks                        the header, see `Header`
    curve                                               float64[3], its rest: of other losses than squared error
    first, edges, hashes, n_inner, n_outer, n_taken     the bins, see `bins.py`
    sizes                                               int32[T]: places in use of each tree
    place, parent, feature, bin, missing_left           by place in use, parents before children
    gh                                                  int16/32[T, n]
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Bools
from oubli.core.boosting.online.bins import MOST_CODES, Bins
from oubli.core.boosting.online.derivatives import MOST_GRADIENT, MOST_GROWTH, NO_SCALE, Scale
from oubli.core.boosting.online.parameters import MAX_SAMPLES, OnlineSettings
from oubli.core.boosting.online.split import FEW, MANY_CATEGORIES, Candidates
from oubli.core.boosting.online.state import G_SCALE, NIL, SHIFT_OF_CLASSES, STATE, Forest
from oubli.core.boosting.parameters import n_groups
from oubli.core.boosting.state import LEAF, NODE
from oubli.core.engine import Shape
from oubli.core.errors import expect
from oubli.core.samples.arrays import Problem

_ROOM = 17 / 16  # of the slots, see `engine.py`
_BYTE = 8
_CANDIDATE_BYTES = 24  # of a code in an iteration while its candidates are drawn

_NODE_FIELDS: dict[str, Any] = {
    "place": np.int32,
    "parent": np.int32,
    "feature": np.int32,
    "bin": np.int32,
    "missing_left": np.uint8,
}
_BINS: dict[str, Any] = {
    "first": np.uint32,
    "edges": np.float64,
    "hashes": np.uint64,
    "n_inner": np.int64,
    "n_outer": np.int64,
    "n_taken": np.int64,
}


class Header(NamedTuple):
    """What is decided when all trees are grown.

    Attributes
    ----------
    n_grown : size of the samples held then (`weights.py`): their number, where all weights are 1.
    scale : of the derivatives of a regression.
    ranks : number of each class code among the trees of an iteration.
    """

    n_grown: int
    scale: Scale
    ranks: npt.NDArray[np.int32]


def bytes_asked(settings: OnlineSettings, shape: Shape, arrays: Arrays) -> int:
    """Bytes of the trees that `unpack` makes of arrays, roughly; of those that training makes when there are none."""
    d, m, n_slots = len(shape.categorical), settings.n_estimators, _ROOM * shape.n_slots + 16
    if arrays:
        n_inner, n_outer = (_take(arrays, name, np.int64, (d,)) if name in arrays else np.zeros(d, np.int64)
                            for name in ("n_inner", "n_outer"))  # fmt: skip
    else:
        n_inner, n_outer = np.full(d, min(settings.max_bins, shape.n_samples)), np.zeros(d, np.int64)
    most = 2.0**20  # a feature has fewer codes, what says otherwise is refused later
    n_inner, n_outer = np.clip(n_inner, 0, most), np.clip(n_outer, 0, most)
    few = np.where(shape.categorical, MANY_CATEGORIES, FEW)
    n_codes = float((n_inner + 2 * n_outer + 2).sum())
    n_bins = float(
        (np.maximum(settings.split_sampling * n_inner + 1, np.minimum(n_inner, few)) + 2 * n_outer + 2).sum()
    )
    n_leaves, n_trees = settings.max_leaf_nodes, m * shape.groups
    sample_bytes = 3 if shape.is_classification else 5
    of_a_tree = 2 * n_leaves * (NODE.itemsize + STATE.itemsize) + n_leaves * 8 * (n_bins + 1) + n_slots * sample_bytes
    return int(n_trees * of_a_tree + m * n_codes * _CANDIDATE_BYTES + n_slots * 2 * d)


def _in_order(forest: Forest, tree: int) -> list[int]:
    """Places in use of a tree: a node, then its left subtree, then the right one."""
    found, waiting = [], [0]
    start = tree * forest.n_places
    features, lefts = forest.nodes["feature"], forest.nodes["left"]
    while waiting:
        place = waiting.pop()
        found.append(place)
        if features[start + place] != LEAF:
            left = int(lefts[start + place]) - start
            waiting += [left + 1, left]
    return found


def pack(header: Header, forest: Forest, bins: Bins, held: Bools) -> Arrays:
    """Return the trees as arrays by name; held: bool[S], which slots hold samples."""
    scale = header.scale
    arrays: Arrays = {
        "n_grown": np.array([header.n_grown], np.int64),
        "scale": np.array([scale.base, scale.reach, scale.scale, scale.unit]),
        "limit": np.array([scale.limit], np.int64),
        "ranks": header.ranks,
    }
    if scale.band:
        arrays["curve"] = np.array([scale.level, scale.band, scale.curvature])
    if forest.n_trees == 0:
        return arrays
    arrays |= {name: getattr(bins, name) for name in _BINS}
    places = [_in_order(forest, tree) for tree in range(forest.n_trees)]
    sizes = [len(some) for some in places]
    place = np.array([place for some in places for place in some], np.int32)
    rows = np.repeat(forest.roots, sizes) + place
    arrays |= {
        "sizes": np.array(sizes, np.int32),
        "place": place,
        "parent": forest.states["parent"][rows],
        "feature": forest.nodes["feature"][rows],
        "bin": forest.states["bin"][rows],
        "missing_left": forest.nodes["missing_left"][rows],
        "gh": forest.gh[:, np.flatnonzero(held)],
    }
    return arrays


def _take(arrays: Arrays, name: str, dtype: Any, shape: tuple[int, ...]) -> Array:
    """An array of a file, of the type and shape that it should have; -1: any length."""
    expect(name in arrays, f"there is no {name}")
    array = arrays[name]
    fits = array.ndim == len(shape) and all(want in (-1, have) for want, have in zip(shape, array.shape, strict=True))
    expect(array.dtype == dtype and fits, f"{name} has another type or shape")
    return array.copy()


def take_bins(arrays: Arrays, categorical: Bools) -> Bins:
    """Read the bins, and check that every look-up ends within them."""
    d = len(categorical)
    lengths = {"first": d + 1, "edges": -1, "hashes": -1, "n_inner": d, "n_outer": d, "n_taken": d}
    parts = {name: _take(arrays, name, dtype, (lengths[name],)) for name, dtype in _BINS.items()}
    bins = Bins(**parts, categorical=categorical)
    n_codes = np.diff(bins.first.astype(np.int64))
    expect(bins.first[0] == 0 and (n_codes >= 2).all() and (n_codes <= MOST_CODES).all(), "first is out of order")
    expect(len(bins.edges) == len(bins.hashes) == bins.n_codes, "there are not as many codes as bins")
    expect(((bins.n_inner >= 0) & (bins.n_outer >= 0)).all(), "a number of codes is negative")
    expect((np.maximum(bins.n_inner, bins.n_outer) <= MOST_CODES).all(), "a number of codes is too large")
    counted = np.where(categorical, bins.n_inner + bins.n_outer, bins.n_inner + 2 * bins.n_outer) + 2
    expect(np.array_equal(counted, n_codes), "the codes of a feature are counted wrong")
    expect(((bins.n_taken >= 0) & (bins.n_taken <= np.where(categorical, bins.n_outer, 0))).all(), "n_taken is wrong")
    for feature in np.flatnonzero(~categorical).tolist():
        edges = bins.edges[bins.first[feature] : bins.first[feature + 1]]
        is_sound = (edges[:-2] <= edges[1:-1]).all() and edges[-2] == np.inf and np.isnan(edges[-1])
        expect(is_sound, f"the edges of feature {feature} are out of order")
    return bins


def take_structure(arrays: Arrays, forest: Forest, bins: Bins, candidates: Candidates, groups: int) -> None:
    """Write the nodes to trees that are a leaf each, and check that every walk ends at a leaf of the same tree."""
    n_places = forest.n_places
    sizes = _take(arrays, "sizes", np.int32, (forest.n_trees,)).astype(np.int64)
    expect(((sizes >= 1) & (sizes <= n_places) & (sizes % 2 == 1)).all(), "a tree has a wrong number of nodes")
    fields = {name: _take(arrays, name, dtype, (int(sizes.sum()),)) for name, dtype in _NODE_FIELDS.items()}
    features = fields["feature"]
    expect(((features >= LEAF) & (features < len(bins.categorical))).all(), "a feature is out of range")
    widths = np.diff(candidates.first.astype(np.int64))
    is_categorical = bins.categorical[features] & (features != LEAF)
    limits = np.where(features == LEAF, 1, widths[features] - 1)
    expect(((fields["bin"] >= 0) & (fields["bin"] < limits)).all(), "a bin is out of range")
    limits = np.where((features == LEAF) | is_categorical, 0, 1)
    expect((fields["missing_left"] <= limits).all(), "a direction is out of range")
    end = 0
    for tree, size in enumerate(sizes.tolist()):
        start, end = end, end + size
        _hang(forest, tree, {name: array[start:end] for name, array in fields.items()})
    rows = np.repeat(forest.roots, sizes) + fields["place"]
    iterations = np.repeat(np.arange(forest.n_trees) // groups, sizes)
    is_inner = features != LEAF
    rows, iterations, features = rows[is_inner], iterations[is_inner], features[is_inner]
    cuts = candidates.cuts[iterations, candidates.first[features] + fields["bin"][is_inner]]
    codes, is_categorical = bins.first[features] + cuts, bins.categorical[features]
    forest.nodes["is_categorical"][rows] = is_categorical
    forest.nodes["threshold"][rows[~is_categorical]] = bins.edges[codes[~is_categorical]]
    forest.nodes["category"][rows[is_categorical]] = bins.hashes[codes[is_categorical]]


def _hang(forest: Forest, tree: int, fields: Arrays) -> None:
    """Write the nodes of a tree, parents before children, and who hangs on whom."""
    start, n_places = tree * forest.n_places, forest.n_places
    nodes, states = forest.nodes[start : start + n_places], forest.states[start : start + n_places]
    seen = {0}
    for i, (place, parent) in enumerate(zip(fields["place"].tolist(), fields["parent"].tolist(), strict=True)):
        if i == 0:
            expect(place == 0 and parent == NIL, f"tree {tree} has no root")
        else:
            expect(0 < place < n_places and place not in seen, f"tree {tree} has a node where there can be none")
            expect(parent in seen and nodes["feature"][parent] != LEAF, f"tree {tree} has a node without a parent")
            seen.add(place)
            left = place - (place - 1) % 2
            known = int(nodes["left"][parent])
            expect(known in (0, start + left), f"tree {tree} has a node with children in two pairs")
            nodes["left"][parent] = start + left
            states["leaf"][place] = states["leaf"][parent] if place == left else place // 2
        states["parent"][place], states["in_use"][place] = parent, 1
        nodes["feature"][place], nodes["missing_left"][place] = fields["feature"][i], fields["missing_left"][i]
        states["bin"][place] = fields["bin"][i]
    n_inner = int(np.count_nonzero(fields["feature"] != LEAF))
    lefts = nodes["left"][nodes["feature"] != LEAF]
    # So many pairs, none of them twice, and each node in use: every inner node has its two children.
    expect(
        len(seen) == 2 * n_inner + 1 and len(np.unique(lefts)) == n_inner, f"tree {tree} has a node without children"
    )
    expect((lefts != 0).all(), f"tree {tree} has a node without children")


def take_header(arrays: Arrays, problem: Problem, n_samples: int, kind: int | None) -> Header:
    """Read the header of trees over samples of some size; kind: of the loss, if it is one of `loss.py`."""
    n_grown = int(_take(arrays, "n_grown", np.int64, (1,))[0])
    base, reach, steps, unit = _take(arrays, "scale", np.float64, (4,)).tolist()
    has_curve = kind is not None and n_groups(problem, n_samples) > 0
    curve = _take(arrays, "curve", np.float64, (3,)).tolist() if has_curve else ()
    scale = Scale(base, reach, steps, int(_take(arrays, "limit", np.int64, (1,))[0]), unit, *curve)
    ranks, is_classification = _take(arrays, "ranks", np.int32, (-1,)), problem.n_classes > 0
    if n_groups(problem, n_samples) > 0:
        expect(1 <= n_grown <= MAX_SAMPLES and n_samples <= MOST_GROWTH * n_grown, "n_grown is out of range")
        least = min(scale.scale, scale.unit, *curve[1:])
        is_scaled = least > 0 and np.isfinite(list(scale)).all() and 0 < scale.limit <= MOST_GRADIENT
        expect(scale == NO_SCALE if is_classification else is_scaled, "the scale is out of range")
        if is_classification:
            held = np.flatnonzero(problem.ranks >= 0)
            expect(len(ranks) > held[-1] and np.array_equal(ranks[held], problem.ranks[held]), "ranks are wrong")
    return Header(n_grown, scale, ranks)


def take_derivatives(arrays: Arrays, forest: Forest, n_samples: int, scale: Scale, shift: int) -> Array:
    """Read what the samples contribute to each tree, int16/32[T, n]; shift: of the sums."""
    gh = _take(arrays, "gh", forest.gh.dtype, (forest.n_trees, n_samples))
    gradients = gh.astype(np.int64) >> (_BYTE if shift == SHIFT_OF_CLASSES else 0)
    expect((np.abs(gradients) <= (scale.limit or G_SCALE)).all(), "a gradient is out of range")
    return gh
