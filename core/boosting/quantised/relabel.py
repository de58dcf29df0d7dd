"""Changes of edges and categories that the bins follow without growing all trees again.

The bins of a feature stay where they are; a bin may be *dead*, without samples and candidates:

    an edge goes      the samples of its bin join those of the next live one, whose sums take up those of the bin; the
                      bin is dead, its edge a copy of the edge below, so that no value is put there and none remembered
    an edge comes     if the bin below it is dead, the edge takes that bin: the samples of the next live bin that are
                      not above the edge move there; elsewhere there is no room, and all trees are rebuilt
    categories        the same without moving samples, which come and go with their category

Afterwards all nodes have to be searched again: a candidate that they were split by may be gone, or a new one better.
"""

import numpy as np

from oubli.core.array_types import Bools, Hashes, Reals, Slots
from oubli.core.boosting.quantised.candidates import feature_key
from oubli.core.boosting.quantised.derivatives import derive_one
from oubli.core.boosting.quantised.grow import leaf_values
from oubli.core.boosting.quantised.state import NO_BLOCK, Model
from oubli.core.boosting.quantised.workspace import State
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import MISSING_CATEGORY, combine
from oubli.core.samples.arrays import Data
from oubli.core.samples.hashing import hashes_of

_BYTE = np.uint64(56)


@kernel
def set_candidate(plans, bins, feature, code, bits, seed, is_live):
    """Make a code's place a candidate of all iterations, with the draw of its value's bits, or none."""
    for iteration in range(plans.places.shape[0]):
        place = np.int64(plans.places[iteration, bins.first_bin[feature] + code])
        plans.cuts[iteration, place] = code if is_live else -1
        draw = combine(feature_key(seed, iteration, feature), ~bits) >> _BYTE
        plans.draws[iteration, place] = draw if is_live else np.uint64(0)


@inner
def replace_in_row(rows, slot, old, new):
    """Put a bin in the place of another in a sample's row; returns False when the other is not there."""
    for column in range(rows.shape[1]):
        if rows[slot, column] == old:
            rows[slot, column] = new
            return True
    return False


@kernel
def merge_codes(forest, n_trees, n_groups, plans, bins, feature, code, target, slots):
    """Let the samples of a code have another one, whose bin is not the one that rows leave out if the first is.

    slots  int32[n]: all samples held
    """
    old, new = np.int64(bins.first_bin[feature]) + code, np.int64(bins.first_bin[feature]) + target
    pad = np.int64(bins.first_bin[bins.codes.shape[0]])
    is_common = bins.common_bin[feature] == new
    codes = bins.codes[feature]
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        if codes[slot] == code:
            codes[slot] = target
            replace_in_row(bins.rows, slot, old, pad if is_common else new)
    for tree in range(n_trees):
        places = plans.places[tree // n_groups]
        for node in range(forest.nodes.shape[1]):
            block = np.int64(forest.nodes[tree, node]["block"])
            if block != NO_BLOCK:
                if not is_common:
                    forest.pool[block, places[new]] += forest.pool[block, places[old]]
                forest.pool[block, places[old]] = 0


@inner
def move_sums(forest, tree, places, max_depth, top, label, old, new, is_common, first, packed):
    """Move a sample's derivatives from one bin to another in the histograms along its path."""
    node = np.int64(0)
    depth = np.int64(0)
    while True:
        block = np.int64(forest.nodes[tree, node]["block"])
        if block != NO_BLOCK:
            value = first if depth < top else packed
            forest.pool[block, places[new]] += value
            if not is_common:
                forest.pool[block, places[old]] -= value
        if forest.nodes[tree, node]["feature"] < 0:
            return
        depth += 1
        node = 2 * node + 1 + ((label >> (max_depth - depth)) & 1)


@kernel
def split_code(model, n_trees, feature, code, target, slots, values):
    """Give some samples that have the code `target` the code `code`, whose bin is empty.

    slots   int32[m]: these; `scores.new` of theirs holds F_0
    values  int32[labels], working space

    Returns False, with nothing changed, when a row has no room.
    """
    forest, bins, rules, samples, scores = model.forest, model.bins, model.rules, model.samples, model.scores
    n_groups, packed_of = scores.new.shape[0], model.space.packed
    old, new = np.int64(bins.first_bin[feature]) + target, np.int64(bins.first_bin[feature]) + code
    pad = np.int64(bins.first_bin[bins.codes.shape[0]])
    is_common = bins.common_bin[feature] == old
    if is_common:
        for i in range(slots.shape[0]):
            if bins.rows[np.uint64(slots[i]), bins.rows.shape[1] - 1] != pad:
                return False
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        bins.codes[feature, slot] = code
        replace_in_row(bins.rows, slot, pad if is_common else old, new)
    for iteration in range(n_trees // n_groups):
        places = model.plans.places[iteration]
        for i in range(slots.shape[0]):
            derive_one(model.loss, scores.new, samples, iteration, slots[i], packed_of)
        for k in range(n_groups):
            tree = iteration * n_groups + k
            leaf_values(forest, tree, rules.depth, values)
            for i in range(slots.shape[0]):
                slot = np.uint64(slots[i])
                label = np.int64(forest.leaf_of[tree, slot])
                first, packed = samples.first[k, slot], packed_of[k, slot]
                move_sums(forest, tree, places, rules.depth, rules.top, label, old, new, is_common, first, packed)
                scores.new[k, slot] += values[label]
    return True


def update_edges(state: State, model: Model, data: Data, held: Slots, columns: list[int]) -> bool:
    """Let the bins of some columns follow their edges; False when there is no room, and all trees must be rebuilt.

    held : the samples that are in the trees, those that are about to leave included.
    """
    if columns and state.share < 1.0:
        return False  # places of dead edges would have to be told apart again
    if not all(_has_room(state, column) for column in columns):
        return False  # asked first: following some columns would be wasted work
    return all(_follow_column(state, model, data, held, column) for column in columns)


def _has_room(state: State, column: int) -> bool:
    """Whether edges that come find dead codes in their place, and none that goes has the bin that rows leave out."""
    layout, is_live, wanted = _edges_of(state, column)
    stays = is_live & np.isin(layout, wanted)
    common = int(state.bins.common_bin[column] - state.bins.first_bin[column])
    if 0 <= common < len(layout) and is_live[common] and not stays[common]:
        return False
    room = np.diff(np.flatnonzero(stays), prepend=-1, append=len(layout)) - 1
    new = wanted[~np.isin(wanted, layout[stays])]
    needed = np.bincount(np.searchsorted(layout[stays], new), minlength=len(room))
    return bool((needed <= room).all())


def _edges_of(state: State, column: int) -> tuple[Reals, Bools, Reals]:
    """A column's edges by code, which of them are alive, and what they are to be; the first two as views."""
    first, last = state.features.first_edge[column : column + 2].tolist()
    return state.features.edges[first:last], state.live_edges[first:last], state.edges.edges[column]


def _follow_column(state: State, model: Model, data: Data, held: Slots, column: int) -> bool:
    layout, is_live, wanted = _edges_of(state, column)
    # Edges that go make room for those that come.
    for code in np.flatnonzero(is_live & ~np.isin(layout, wanted)).tolist():
        _take_edge(state, held, column, code)
    # From above, because each takes the highest dead code below its neighbour.
    new = wanted[~np.isin(wanted, layout[is_live])][::-1]
    return all(_give_edge(state, model, data, held, column, value) for value in new.tolist())


def _next_live(is_live: Bools, code: int) -> int:
    """The first live code from one on; behind the last edge there always is one."""
    after = np.flatnonzero(is_live[code:])
    return code + int(after[0]) if len(after) else len(is_live)


def _take_edge(state: State, held: Slots, column: int, code: int) -> None:
    layout, is_live, _ = _edges_of(state, column)
    target = _next_live(is_live, code + 1)
    merge_codes(
        state.forest, state.n_trees, state.groups, state.plans, state.bins, column, code, target, held.astype(np.int32)
    )
    set_candidate(state.plans, state.bins, column, code, np.uint64(0), state.seed, is_live=False)
    is_live[code] = False
    # Dead bins behind this one have its edge, too.
    layout[code:target] = layout[code - 1] if code else -np.inf


def _give_edge(state: State, model: Model, data: Data, held: Slots, column: int, value: float) -> bool:
    layout, is_live, _ = _edges_of(state, column)
    target = int(np.searchsorted(layout, value))
    code = target - 1
    inside = held[state.bins.codes[column, held] == target]
    moving = inside[data.cells[inside, column] <= value]
    state.scores.new[:, moving] = state.start.scores[:, np.newaxis]
    values = np.zeros(2**state.rules.depth + 1, np.int32)
    if not split_code(model, state.n_trees, column, code, target, moving.astype(np.int32), values):
        return False
    layout[code], is_live[code] = value, True
    set_candidate(state.plans, state.bins, column, code, np.float64(value).view(np.uint64), state.seed, is_live=True)
    return True


def add_categories(state: State, data: Data, slots: Slots) -> tuple[bool, bool]:
    """Give codes to the new categories of samples that join; returns (whether there was room, whether any were new)."""
    has_new = False
    for column in np.flatnonzero(state.features.categorical).tolist():
        first, last = state.features.first_category[column : column + 2].tolist()
        layout, is_live = state.features.categories[first:last], state.live_categories[first:last]
        for value in np.setdiff1d(hashes_of(data.cells[slots, column], data.category_hashes), layout[is_live]):
            has_new = True
            code = _rank_for(layout, value)
            if state.share < 1.0 or code < 0 or is_live[code]:
                return False, True
            layout[code], is_live[code] = value, True
            set_candidate(state.plans, state.bins, column, code, value, state.seed, is_live=True)
    return True, has_new


def _rank_for(layout: Hashes, value: np.uint64) -> int:
    """The rank that a category that comes would have to take, which must be dead; -1: there is none."""
    if value == MISSING_CATEGORY:
        return 0 if len(layout) else -1
    begin = 1 if len(layout) and layout[0] == MISSING_CATEGORY else 0
    return int(np.searchsorted(layout[begin:], value)) + begin - 1


def drop_categories(state: State) -> tuple[bool, bool]:
    """Make the categories dead that no sample has any more; returns (whether that could be done, whether any were)."""
    gone = np.flatnonzero(state.live_categories & (state.category_counts == 0))
    if len(gone) and state.share < 1.0:
        return False, True
    for place in gone.tolist():
        column = int(np.searchsorted(state.features.first_category, place, side="right")) - 1
        code = place - int(state.features.first_category[column])
        layout = state.features.categories[place - code : int(state.features.first_category[column + 1])]
        # What is left of it, and in dead ranks behind it, is a copy of the one before.
        before = layout[code - 1] if code and layout[code - 1] != MISSING_CATEGORY else np.uint64(0)
        is_live = state.live_categories[place - code : place - code + len(layout)]
        layout[code : _next_live(is_live & (np.arange(len(layout)) != code), code)] = before
        state.live_categories[place] = False
        set_candidate(state.plans, state.bins, column, code, np.uint64(0), state.seed, is_live=False)
    return True, bool(len(gone))
