"""Two engines on the same samples compared, in plain NumPy: all that is kept must be what growing anew gives.

Slots, rows and the places of histograms depend on history; what they say must not.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.core.array_types import Array, Bools, Ints
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.bins import live_bins
from oubli.core.errors import ensure

if TYPE_CHECKING:
    from oubli.core.boosting.quantised.engine import QuantisedTrees

_COMPARED = ("total", "first_total", "feature", "cut", "value", "count", "missing_left")


def live_codes(engine: "QuantisedTrees", column: int) -> Ints:
    """What each code of a column would be without dead bins."""
    features = engine.features
    if engine.categorical[column]:
        first, last = features.first_category[column : column + 2].tolist()
        is_live = engine.live_categories[first:last]
    else:
        first, last = features.first_edge[column : column + 2].tolist()
        # Values above the last edge and missing ones have a code each.
        is_live = np.concatenate([engine.live_edges[first:last], [True, True]])
    return np.cumsum(is_live) - is_live


def histogram(engine: "QuantisedTrees", tree: int, node: int) -> Ints | None:
    """A node's sums by live place, those of the bins that rows leave out included; None if it keeps none."""
    forest, plans = engine.forest, engine.plans
    record = forest.nodes[tree, node]
    if record["block"] == s.NO_BLOCK:
        return None
    iteration = tree // engine.groups
    first, common = plans.first_place[iteration], plans.common_place[iteration]
    sums: Ints = forest.pool[record["block"], : first[-1]].copy()
    depth = int(node + 1).bit_length() - 1
    total = record["first_total"] if depth < engine.rules.top else record["total"]
    for feature in np.flatnonzero(common >= 0).tolist():
        sums[common[feature]] += total - sums[first[feature] : first[feature + 1]].sum()
    live = np.unique(plans.places[iteration][_is_live_bin(engine)])
    ensure(not sums[np.setdiff1d(np.arange(len(sums)), live)].any(), "the histograms: a dead bin holds samples")
    return np.asarray(sums[live])


def _is_live_bin(engine: "QuantisedTrees") -> Bools:
    """Which bins are live; bool[bins + 1], the one behind the last being none."""
    return np.append(live_bins(engine.features, engine.live_edges, engine.live_categories, others=True), False)


def _histograms_differ(ours: "QuantisedTrees", fresh: "QuantisedTrees") -> bool:
    for tree in range(fresh.n_trees):
        for node in range(fresh.forest.nodes.shape[1]):
            a, b = histogram(ours, tree, node), histogram(fresh, tree, node)
            if (a is None) != (b is None) or (a is not None and b is not None and not np.array_equal(a, b)):
                return True
    return False


def _live_nodes(engine: "QuantisedTrees") -> Any:
    """The nodes, with cuts as they would be without dead bins."""
    nodes = engine.forest.nodes[: engine.n_trees].copy()
    for column in range(engine.n_features):
        is_split = nodes["feature"] == column
        nodes["cut"][is_split] = live_codes(engine, column)[nodes["cut"][is_split]]
    return nodes


def _rows_are_right(engine: "QuantisedTrees", slots: Ints) -> bool:
    """Whether rows name the bins of all codes but the commonest."""
    bins = engine.bins
    expected = bins.codes[:, slots].astype(np.int64) + bins.first_bin[:-1, np.newaxis]
    expected[expected == bins.common_bin[:, np.newaxis]] = bins.first_bin[-1]
    ours = np.sort(bins.rows[slots].astype(np.int64), axis=1)
    width = min(ours.shape[1], len(expected))
    longest = np.sort(expected.T, axis=1)
    is_padded = (longest[:, width:] == bins.first_bin[-1]).all() and (ours[:, width:] == bins.first_bin[-1]).all()
    return bool(is_padded and np.array_equal(longest[:, :width], ours[:, :width]))


def _regions_are_like(ours: "QuantisedTrees", fresh: "QuantisedTrees") -> bool:
    """Whether the regions, and the live bins that they are chosen by, are the same."""
    mine, its, is_live = ours.regions, fresh.regions, _is_live_bin(ours)[:-1]
    if mine.levels != its.levels or mine.is_weak != its.is_weak or len(mine.counts) != len(its.counts):
        return False
    for (feature, cut, missing), (its_feature, its_cut, its_missing) in zip(mine.cuts, its.cuts, strict=True):
        place = int(live_codes(ours, int(feature))[cut])
        if (feature, place, missing) != (its_feature, its_cut, its_missing):
            return False
    if not len(mine.counts):
        return True
    counts, sums = mine.counts[:, is_live], mine.sums[:, :, is_live]
    return np.array_equal(counts, its.counts) and np.array_equal(sums, its.sums)


def _by_sample(engine: "QuantisedTrees", slots: Ints) -> dict[str, Any]:
    bins, scores, n_trees = engine.bins, engine.scores, engine.n_trees
    codes = [live_codes(engine, column)[bins.codes[column, slots]] for column in range(engine.n_features)]
    return {
        "the roles of samples": engine.roles[slots],
        "the labels of samples": engine.labels[slots],
        "the rounding of samples": engine.rounding[slots],
        "the derivatives at F_0": engine.first[:, slots],
        "the codes of samples": np.array(codes),
        "the leaves of samples": engine.forest.leaf_of[:n_trees, slots],
        "the scores kept": scores.kept[: (engine.n_iterations // s.EVERY + 1)][:, :, slots],
        "the validation losses": scores.losses[: engine.n_iterations],
    }


def differences(ours: "QuantisedTrees", fresh: "QuantisedTrees", slots: Ints) -> list[str]:
    """Name what an engine keeps that differs from what a fresh one does."""
    if ours.groups != fresh.groups:
        return ["the number of groups differs"]
    if not ours.groups:
        return []
    ours_counted = (ours.n_iterations, ours.n_predicting, ours.n_training, ours.n_held)
    if ours_counted != (fresh.n_iterations, fresh.n_predicting, fresh.n_training, fresh.n_held):
        return ["the number of samples or of iterations differs"]
    counted: list[tuple[str, Array, Array]] = [
        ("the classes", ours.class_counts, fresh.class_counts),
        ("the categories", ours.category_counts[ours.live_categories], fresh.category_counts),
        ("F_0", ours.start.scores, fresh.start.scores),
    ]
    wrong = [f"{name}: counted wrong" for name, a, b in counted if not np.array_equal(a, b)]
    for column, (mine, its) in enumerate(zip(ours.edges.columns, fresh.edges.columns, strict=True)):
        if mine is not None and its is not None and not mine.is_like(its):
            wrong.append(f"the edges of column {column}: counted wrong")
    by_sample = zip(_by_sample(ours, slots).items(), _by_sample(fresh, slots).values(), strict=True)
    differing = [name for (name, a), b in by_sample if a.shape == b.shape and not np.array_equal(a, b)]
    wrong += [f"{name}: not those of a fresh fit" for name in differing]
    nodes, fresh_nodes = _live_nodes(ours), _live_nodes(fresh)
    differing = [field for field in _COMPARED if not np.array_equal(nodes[field], fresh_nodes[field])]
    wrong += [f"the nodes: {field} is not that of a fresh fit" for field in differing]
    if not _regions_are_like(ours, fresh):
        wrong.append("the regions: counted wrong")
    if not (_rows_are_right(ours, slots) and _rows_are_right(fresh, slots)):
        wrong.append("the rows of samples: not those of their codes")
    if _histograms_differ(ours, fresh):
        wrong.append("the histograms: not those of a fresh fit")
    return wrong


def loose_ends(engine: "QuantisedTrees", slots: Ints) -> list[str]:
    """Name what is left of samples that are not held, and what is used twice or not given back."""
    if not engine.groups:
        return []
    wrong = []
    absent = np.ones(engine.capacity, np.bool_)
    absent[slots] = False
    forest, scores = engine.forest, engine.scores
    if (forest.leaf_of[:, absent] != engine.n_labels).any():
        wrong.append("a slot that holds no sample has a leaf")
    if engine.roles[absent].any() or engine.first[:, absent].any() or scores.kept[:, :, absent].any():
        wrong.append("a slot that holds no sample is not blank")
    if engine.bins.codes[:, absent].any() or (engine.bins.rows[absent] != engine.bins.first_bin[-1]).any():
        wrong.append("a slot that holds no sample has codes")
    free = forest.free[: int(forest.meta[s.N_FREE])].tolist()
    used = forest.nodes["block"][forest.nodes["block"] != s.NO_BLOCK].tolist()
    if sorted(free + used) != list(range(len(forest.pool))):
        wrong.append("every histogram must be in use or free")
    if forest.pool[free].any():
        wrong.append("a free histogram must be blank")
    if engine.work is not None and any(engine.work[name].any() for name in ("deltas", "totals", "counts")):
        wrong.append("a difference was noted and not added")
    return wrong
