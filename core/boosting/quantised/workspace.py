"""All arrays of the quantised engine: made, enlarged and erased here, and together as its state."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from oubli.core.array_types import Array, Arrays, Bools, Ints
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.bins import EdgeTable, Features
from oubli.core.boosting.quantised.regions import Regions
from oubli.core.boosting.targets import Start

_POOL_BYTES = 2**28


class State(NamedTuple):
    """Everything that an engine with trees keeps.

    Attributes
    ----------
    seed, share : what candidates are drawn from, and the share of them that an iteration looks at.
    groups, n_iterations, n_predicting : trees an iteration, iterations, and how many of them predict.
    n_training, n_held : samples that train, and samples.
    roles, labels, rounding, first : by slot, see `state.Samples`.
    class_counts, category_counts, edges : what decides F_0 (in units) and the bins, counted.
    features, live_edges, live_categories : the bins, and which codes are in use.
    start, loss, rules, regions : what decides splits and leaves.
    bins, plans, forest, scores, space : see `state.py`.
    work : working space of an update; None: there is none.
    """

    seed: np.uint64
    share: float
    groups: int
    n_iterations: int
    n_predicting: int
    n_training: int
    n_held: int
    roles: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int32]
    rounding: npt.NDArray[np.uint32]
    first: Ints
    class_counts: Ints
    category_counts: Ints
    edges: EdgeTable
    features: Features
    live_edges: Bools
    live_categories: Bools
    start: Start
    loss: s.Loss
    rules: s.Rules
    regions: Regions
    bins: s.Bins
    plans: s.Plans
    forest: s.Forest
    scores: s.Scores
    space: s.Space
    work: Arrays | None

    @property
    def n_trees(self) -> int:
        """Trees held, those that predictions leave out included."""
        return self.n_iterations * self.groups


def new_scores(n_iterations: int, capacity: int, start: npt.NDArray[np.int32]) -> s.Scores:
    """Scores of as many samples as there is room for; all zero."""
    groups = len(start)
    return s.Scores(
        new=np.zeros((groups, capacity), np.int32),
        old=np.zeros((groups, capacity), np.int32),
        kept=np.zeros((n_iterations // s.EVERY + 1, groups, capacity), np.int32),
        losses=np.zeros(n_iterations, np.int64),
    )


def new_forest(n_trees: int, depth: int, capacity: int, n_places: int) -> s.Forest:
    """Trees without nodes."""
    nodes = np.zeros((n_trees, 2 ** (depth + 1) - 1), s.NODE)
    nodes["feature"], nodes["block"] = s.ABSENT, s.NO_BLOCK
    return s.Forest(
        nodes=nodes,
        leaf_of=np.full((n_trees, capacity), 2**depth, np.uint16),
        pool=np.zeros((0, n_places), np.int64),
        free=np.zeros(0, np.int32),
        meta=np.zeros(s.META_SIZE, np.int64),
    )


def new_space(groups: int, depth: int, levels: int, capacity: int, n_places: int, n_bins: int) -> s.Space:
    """Working space of kernels that grow trees."""
    n_nodes = 2 ** (depth + 1) - 1
    return s.Space(
        members=np.zeros(capacity, np.int32),
        spare=np.zeros(capacity, np.int32),
        packed=np.zeros((groups, capacity), np.int64),
        first=np.zeros(n_nodes + 1, np.int64),
        last=np.zeros(n_nodes + 1, np.int64),
        sums=np.zeros(n_places, np.int64),
        bounds=np.zeros(2**levels + 1, np.int64),
        grows=np.ones(2**levels, np.uint8),
        root=np.zeros((groups * 2**levels, n_bins + 1), np.int64),
        found=np.zeros(4, np.int64),
        lefts=np.zeros(n_places, np.int64),
        gains=np.zeros(n_places),
    )


def new_work(groups: int, depth: int, forest: s.Forest) -> Arrays:
    """Working space of an update, see `state.Change`."""
    n_labels, n_nodes, capacity = 2**depth, forest.nodes.shape[1], forest.leaf_of.shape[1]
    mark_words = np.zeros(-(-capacity // 8), np.uint64)
    return {
        "drifting": np.zeros(capacity, np.int32),
        "is_listed": np.zeros(capacity, np.uint8),
        "touched": np.zeros(capacity, np.int32),
        "marks": mark_words.view(np.uint8),
        "mark_words": mark_words,
        "derived": np.zeros(capacity, np.int32),
        "before": np.zeros((groups, capacity), np.int64),
        "labels": np.zeros((groups, capacity), forest.leaf_of.dtype),
        "is_rebuilt": np.zeros(groups, np.uint8),
        "values": np.zeros((groups + 1, n_labels + 1), np.int32),
        "past": np.zeros((s.EVERY * groups, n_labels + 1), np.int32),
        "deltas": np.zeros((n_labels - 1, forest.pool.shape[1]), np.int64),
        "totals": np.zeros(n_nodes, np.int64),
        "first_totals": np.zeros(n_nodes, np.int64),
        "counts": np.zeros(n_nodes, np.int32),
        "states": np.zeros(n_nodes, np.uint8),
    }


def with_more_blocks(forest: s.Forest, groups: int) -> s.Forest:
    """The trees with room for more histograms: at first for all that there can be, unless that is much memory.

    The memory is the system's, which gives it page by page as blocks are used.
    """
    n_before, n_places = forest.pool.shape
    n_inner = forest.nodes.shape[1] // 2
    # No level of a tree has more nodes than there are samples.
    n_levels = n_inner.bit_length()
    n_all = min(forest.nodes.shape[0] * min(n_inner, n_levels * forest.leaf_of.shape[1]), _POOL_BYTES // (8 * n_places))
    n_blocks = max(2 * n_before, 4 * groups * n_inner, n_all)
    pool = np.zeros((n_blocks, n_places), np.int64)
    pool[:n_before] = forest.pool
    free = np.zeros(n_blocks, np.int32)
    n_free = int(forest.meta[s.N_FREE])
    # Blocks are taken from the end of the list: those in use already first.
    free[: n_blocks - n_before] = np.arange(n_blocks - 1, n_before - 1, -1)
    free[n_blocks - n_before : n_blocks - n_before + n_free] = forest.free[:n_free]
    forest.meta[s.N_FREE] = n_blocks - n_before + n_free
    return forest._replace(pool=pool, free=free)


def drop_trees(forest: s.Forest, first: int, last: int) -> None:
    """Let go of some trees and of their histograms."""
    gone = forest.nodes[first:last]
    blocks = gone["block"][gone["block"] != s.NO_BLOCK]
    forest.pool[blocks] = 0
    n_free = int(forest.meta[s.N_FREE])
    forest.free[n_free : n_free + len(blocks)] = blocks
    forest.meta[s.N_FREE] = n_free + len(blocks)
    gone[:] = np.zeros(1, s.NODE)
    gone["feature"], gone["block"] = s.ABSENT, s.NO_BLOCK
    forest.leaf_of[first:last] = (forest.nodes.shape[1] + 1) // 2


def with_more_slots(
    bins: s.Bins, scores: s.Scores, forest: s.Forest, space: s.Space, capacity: int
) -> tuple[s.Bins, s.Scores, s.Forest, s.Space]:
    """All that has an entry for each slot, with room for more."""
    rows = longer(bins.rows, 0, capacity, int(bins.first_bin[-1]))
    return (
        bins._replace(codes=longer(bins.codes, 1, capacity), rows=rows),
        scores._replace(
            new=longer(scores.new, 1, capacity),
            old=longer(scores.old, 1, capacity),
            kept=longer(scores.kept, 2, capacity),
        ),
        forest._replace(leaf_of=longer(forest.leaf_of, 1, capacity, (forest.nodes.shape[1] + 1) // 2)),
        space._replace(
            members=longer(space.members, 0, capacity),
            spare=longer(space.spare, 0, capacity),
            packed=longer(space.packed, 1, capacity),
        ),
    )


def longer(array: Array, axis: int, length: int, value: int = 0) -> Array:
    """A copy that is longer along an axis."""
    more = [(0, length - size if i == axis else 0) for i, size in enumerate(array.shape)]
    return np.pad(array, more, constant_values=value)


def new_change(going: Ints, coming: Ints, groups: int, work: Arrays) -> s.Change:
    """What an update of all trees needs, for samples that go and samples that come."""
    slots = np.concatenate([going, coming])
    report = np.zeros(s.REPORT_SIZE, np.int64)
    report[s.FIRST_TREE] = -1
    work["is_listed"][:] = 0
    work["derived"][:] = -1
    return s.Change(
        slots=slots.astype(np.int32),
        joins=np.repeat(np.array([0, 1], np.uint8), [len(going), len(coming)]),
        steps=np.zeros((2 * groups, len(slots)), np.int32),
        report=report,
        **work,
    )


def erase(samples: s.Samples, bins: s.Bins, scores: s.Scores, slots: Ints) -> None:
    """Overwrite what is kept of samples that have left, but for the leaves that they were in."""
    for array in (samples.roles, samples.labels, samples.rounding, bins.rows):
        array[slots] = 0
    for wide in (scores.new, scores.old, bins.codes, samples.first):
        wide[:, slots] = 0
    scores.kept[:, :, slots] = 0
    bins.rows[slots] = bins.first_bin[-1]


def move(samples: s.Samples, bins: s.Bins, scores: s.Scores, forest: s.Forest, slots: Ints, to: Ints) -> None:
    """Move what is kept of samples to other slots, which are free."""
    for array in (samples.roles, samples.labels, samples.rounding, bins.rows):
        array[to] = array[slots]
    for wide in (scores.new, scores.old, bins.codes, samples.first, forest.leaf_of):
        wide[:, to] = wide[:, slots]
    scores.kept[:, :, to] = scores.kept[:, :, slots]
    erase(samples, bins, scores, slots)
    forest.leaf_of[:, slots] = (forest.nodes.shape[1] + 1) // 2
