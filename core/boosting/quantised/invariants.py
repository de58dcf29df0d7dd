"""A comparison of two engines on the same samples, in plain NumPy: all that is kept must be what a fresh fit gives.

Slots, rows and the places of histograms depend on history; what they say must not.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Bools, Ints
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.bins import live_bins
from oubli.core.boosting.quantised.workspace import State
from oubli.core.engine import wrong_numbers
from oubli.core.errors import ensure

_COMPARED = ("total", "first_total", "feature", "cut", "value", "count", "missing_left")


def live_codes(state: State, column: int) -> Ints:
    """What each code of a column would be without dead bins."""
    features = state.features
    if state.features.categorical[column]:
        first, last = features.first_category[column : column + 2].tolist()
        is_live = state.live_categories[first:last]
    else:
        first, last = features.first_edge[column : column + 2].tolist()
        # Values above the last edge and missing ones have a code each.
        is_live = np.concatenate([state.live_edges[first:last], [True, True]])
    return np.cumsum(is_live) - is_live


def live_places(state: State, iteration: int) -> Ints:
    """The places that live bins have in the histograms of an iteration."""
    return np.unique(state.plans.places[iteration][_is_live_bin(state)])


def histogram(state: State, tree: int, node: int, live: Ints) -> Ints | None:
    """A node's sums by live place, those of the bins that rows leave out included; None if it keeps none."""
    forest, plans = state.forest, state.plans
    record = forest.nodes[tree, node]
    if record["block"] == s.NO_BLOCK:
        return None
    iteration = tree // state.groups
    first, common = plans.first_place[iteration], plans.common_place[iteration]
    sums: Ints = forest.pool[record["block"], : first[-1]].copy()
    depth = int(node + 1).bit_length() - 1
    total = record["first_total"] if depth < state.rules.top else record["total"]
    for feature in np.flatnonzero(common >= 0).tolist():
        sums[common[feature]] += total - sums[first[feature] : first[feature + 1]].sum()
    ensure(not np.delete(sums, live).any(), "the histograms: a dead bin holds samples")
    return np.asarray(sums[live])


def _is_live_bin(state: State) -> Bools:
    """Which bins are live; bool[bins + 1], the one behind the last being none."""
    return np.append(live_bins(state.features, state.live_edges, state.live_categories, others=True), False)


def _wrong_histograms(ours: State, fresh: State) -> list[str]:
    live: dict[int, tuple[Ints, Ints]] = {}  # by iteration
    kept = [state.forest.nodes["block"][: fresh.n_trees] != s.NO_BLOCK for state in (ours, fresh)]
    for tree, node in np.argwhere(kept[0] | kept[1]).tolist():
        iteration = tree // fresh.groups
        if iteration not in live:
            live[iteration] = live_places(ours, iteration), live_places(fresh, iteration)
        mine, its = live[iteration]
        a, b = histogram(ours, tree, node, mine), histogram(fresh, tree, node, its)
        if (a is None) != (b is None):
            return [f"the histograms, tree {tree}, node {node}: {'missing' if a is None else 'not given back'}"]
        if a is not None and b is not None and not np.array_equal(a, b):
            return wrong_numbers(f"the histograms, tree {tree}, node {node}", a, b, bin=None)
    return []


def _live_nodes(state: State) -> Any:
    """The nodes, with cuts as they would be without dead bins."""
    nodes = state.forest.nodes[: state.n_trees].copy()
    for column in range(len(state.features.categorical)):
        is_split = nodes["feature"] == column
        nodes["cut"][is_split] = live_codes(state, column)[nodes["cut"][is_split]]
    return nodes


def _rows_are_right(state: State, slots: Ints) -> bool:
    """Whether rows name the bins of all codes but the commonest."""
    bins = state.bins
    expected = bins.codes[:, slots].astype(np.int64) + bins.first_bin[:-1, np.newaxis]
    expected[expected == bins.common_bin[:, np.newaxis]] = bins.first_bin[-1]
    ours = np.sort(bins.rows[slots].astype(np.int64), axis=1)
    width = min(ours.shape[1], len(expected))
    longest = np.sort(expected.T, axis=1)
    is_padded = (longest[:, width:] == bins.first_bin[-1]).all() and (ours[:, width:] == bins.first_bin[-1]).all()
    return bool(is_padded and np.array_equal(longest[:, :width], ours[:, :width]))


def _wrong_regions(ours: State, fresh: State) -> list[str]:
    """Name what differs of the regions, and of the live bins that they are chosen by."""
    mine, its, is_live = ours.regions, fresh.regions, _is_live_bin(ours)[:-1]
    shapes = [np.array([regions.levels, regions.is_weak]) for regions in (mine, its)]
    if wrong := wrong_numbers("the regions: levels, and whether the first split is weak", *shapes):
        return wrong
    cuts = mine.cuts.copy()
    for cut in cuts:
        cut[1] = live_codes(ours, int(cut[0]))[cut[1]]
    wrong += wrong_numbers("the regions: the splits", cuts, its.cuts, node=None)
    counts, sums = mine.counts[:, is_live], mine.sums[:, :, is_live]
    for feature, (first, last) in enumerate(pairwise(fresh.bins.first_bin.tolist())):
        name = f"the regions: the samples of feature {feature}"
        wrong += wrong_numbers(name, counts[:, first:last], its.counts[:, first:last], node=None, bin=None)
        name = f"the regions: the gradients of feature {feature}"
        wrong += wrong_numbers(name, sums[..., first:last], its.sums[..., first:last], node=None, group=None, bin=None)
    return wrong


def _by_sample(state: State, slots: Ints) -> Iterator[tuple[str, dict[str, None], Array]]:
    """What is kept of each sample, along the last axis: the name, the axes before it, and the numbers."""
    codes = [
        live_codes(state, column)[state.bins.codes[column, slots]] for column in range(len(state.features.categorical))
    ]
    kept = state.scores.kept[: (state.n_iterations // s.EVERY + 1)]
    yield "the roles of samples", {}, state.roles[slots]
    yield "the labels of samples", {}, state.labels[slots]
    yield "the rounding of samples", {}, state.rounding[slots]
    yield "the derivatives at F_0", {"group": None}, state.first[:, slots]
    yield "the codes of samples", {"feature": None}, np.array(codes)
    yield "the leaves of samples", {"tree": None}, state.forest.leaf_of[: state.n_trees, slots]
    yield "the scores kept", {"point": None, "group": None}, kept[:, :, slots]


def differences(ours: State, fresh: State, slots: Ints) -> list[str]:
    """Name what an engine with trees keeps that differs from what a fresh one does; both have as many groups."""
    for name in ("n_iterations", "n_predicting", "n_training", "n_held"):
        if getattr(ours, name) != getattr(fresh, name):
            return [f"{name}: {getattr(ours, name)} kept, {getattr(fresh, name)} recounted"]
    n, categories = ours.n_iterations, ours.category_counts[ours.live_categories]
    wrong = wrong_numbers("the classes", ours.class_counts, fresh.class_counts, rank=None)
    wrong += wrong_numbers("the categories", categories, fresh.category_counts, rank=None)
    wrong += wrong_numbers("F_0", ours.start.scores, fresh.start.scores, group=None)
    wrong += wrong_numbers("the validation losses", ours.scores.losses[:n], fresh.scores.losses[:n], iteration=None)
    for column, (mine, its) in enumerate(zip(ours.edges.columns, fresh.edges.columns, strict=True)):
        if mine is not None and its is not None and not mine.is_like(its):
            n_values = len(dict(mine.held.items() ^ its.held.items())) + len(
                dict(mine.below.items() ^ its.below.items())
            )
            levels = f"level {mine.level} kept, {its.level} recounted"
            wrong.append(f"the edges of column {column}: {levels}; values counted wrong: {n_values}")
    for (name, axes, kept), (*_, recounted) in zip(_by_sample(ours, slots), _by_sample(fresh, slots), strict=True):
        wrong += wrong_numbers(name, kept, recounted, by_sample=True, **axes)
    nodes, fresh_nodes = _live_nodes(ours), _live_nodes(fresh)
    for field in _COMPARED:
        wrong += wrong_numbers(f"the nodes: {field}", nodes[field], fresh_nodes[field], tree=None, node=None)
    wrong += _wrong_regions(ours, fresh)
    if not (_rows_are_right(ours, slots) and _rows_are_right(fresh, slots)):
        wrong.append("the rows of samples: not those of their codes")
    return wrong + _wrong_histograms(ours, fresh)


def loose_ends(state: State, slots: Ints) -> list[str]:
    """Name what is left of samples that are not held, and what is used twice or not given back."""
    wrong = []
    absent = np.ones(len(state.roles), np.bool_)
    absent[slots] = False
    forest, scores = state.forest, state.scores
    if (forest.leaf_of[:, absent] != 2**state.rules.depth).any():
        wrong.append("a slot that holds no sample has a leaf")
    if state.roles[absent].any() or state.first[:, absent].any() or scores.kept[:, :, absent].any():
        wrong.append("a slot that holds no sample is not blank")
    if state.bins.codes[:, absent].any() or (state.bins.rows[absent] != state.bins.first_bin[-1]).any():
        wrong.append("a slot that holds no sample has codes")
    free = forest.free[: int(forest.meta[s.N_FREE])].tolist()
    used = forest.nodes["block"][forest.nodes["block"] != s.NO_BLOCK].tolist()
    if sorted(free + used) != list(range(len(forest.pool))):
        wrong.append("every histogram must be in use or free")
    if forest.pool[free].any():
        wrong.append("a free histogram must be blank")
    if state.work is not None and any(state.work[name].any() for name in ("deltas", "totals", "counts")):
        wrong.append("a difference was noted and not added")
    return wrong
