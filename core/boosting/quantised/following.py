"""The bins follow the edges and categories held; see `relabel.py` for how."""

from typing import TYPE_CHECKING

import numpy as np

from oubli.core.array_types import Bools, Hashes, Reals, Slots
from oubli.core.boosting.quantised.relabel import merge_codes, set_candidate, split_code
from oubli.core.boosting.quantised.state import Samples
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Data
from oubli.core.samples.hashing import hashes_of

if TYPE_CHECKING:
    from oubli.core.boosting.quantised.engine import QuantisedTrees


def follow_edges(engine: "QuantisedTrees", data: Data, samples: Samples, held: Slots, columns: list[int]) -> bool:
    """Let the bins of some columns follow their edges; False when there is no room, and all is to be grown anew.

    held : the samples that are in the trees, those that are about to leave included.
    """
    if columns and engine.share < 1.0:
        return False  # places of dead edges would have to be told apart again
    if not all(_has_room(engine, column) for column in columns):
        return False  # known beforehand, for following some of them first would be in vain
    return all(_follow_column(engine, data, samples, held, column) for column in columns)


def _has_room(engine: "QuantisedTrees", column: int) -> bool:
    """Whether edges that come find dead codes in their place, and none that goes has the bin that rows leave out."""
    layout, is_live, wanted = _edges_of(engine, column)
    stays = is_live & np.isin(layout, wanted)
    common = int(engine.bins.common_bin[column] - engine.bins.first_bin[column])
    if 0 <= common < len(layout) and is_live[common] and not stays[common]:
        return False
    room = np.diff(np.flatnonzero(stays), prepend=-1, append=len(layout)) - 1
    new = wanted[~np.isin(wanted, layout[stays])]
    needed = np.bincount(np.searchsorted(layout[stays], new), minlength=len(room))
    return bool((needed <= room).all())


def _edges_of(engine: "QuantisedTrees", column: int) -> tuple[Reals, Bools, Reals]:
    """A column's edges by code, which of them are alive, and what they are to be; the first two as views."""
    first, last = engine.features.first_edge[column : column + 2].tolist()
    return engine.features.edges[first:last], engine.live_edges[first:last], engine.edges.edges[column]


def _follow_column(engine: "QuantisedTrees", data: Data, samples: Samples, held: Slots, column: int) -> bool:
    layout, is_live, wanted = _edges_of(engine, column)
    # Edges that go make room for those that come.
    for code in np.flatnonzero(is_live & ~np.isin(layout, wanted)).tolist():
        _take_edge(engine, layout, is_live, held, column, code)
    # From above, because each takes the highest dead code below its neighbour.
    new = wanted[~np.isin(wanted, layout[is_live])][::-1]
    return all(_give_edge(engine, data, samples, layout, is_live, held, column, value) for value in new.tolist())


def _next_live(is_live: Bools, code: int) -> int:
    """The first live code from one on; behind the last edge there always is one."""
    after = np.flatnonzero(is_live[code:])
    return code + int(after[0]) if len(after) else len(is_live)


def _take_edge(engine: "QuantisedTrees", layout: Reals, is_live: Bools, held: Slots, column: int, code: int) -> None:
    bins = engine.bins
    target = _next_live(is_live, code + 1)
    held32 = held.astype(np.int32)
    merge_codes(engine.forest, engine.n_trees, engine.groups, engine.plans, bins, column, code, target, held32)
    set_candidate(engine.plans, bins, column, code, np.uint64(0), engine.seed, is_live=False)
    is_live[code] = False
    # Dead bins behind this one have its edge, too.
    layout[code:target] = layout[code - 1] if code else -np.inf


def _give_edge(
    engine: "QuantisedTrees",
    data: Data,
    samples: Samples,
    layout: Reals,
    is_live: Bools,
    held: Slots,
    column: int,
    value: float,
) -> bool:
    bins, scores = engine.bins, engine.scores
    target = int(np.searchsorted(layout, value))
    code = target - 1
    inside = held[bins.codes[column, held] == target]
    moving = inside[data.cells[inside, column] <= value]
    scores.new[:, moving] = engine.start.scores[:, np.newaxis]
    is_done = split_code(
        engine.forest, engine.n_trees, engine.plans, engine.rules, engine.loss, samples, scores, engine.space,
        bins, column, code, target, moving.astype(np.int32), np.zeros(engine.n_labels + 1, np.int32),
    )  # fmt: skip
    if is_done:
        layout[code] = value
        is_live[code] = True
        set_candidate(engine.plans, bins, column, code, np.float64(value).view(np.uint64), engine.seed, is_live=True)
    return bool(is_done)


def welcome_categories(engine: "QuantisedTrees", data: Data, slots: Slots) -> tuple[bool, bool]:
    """Give new categories of samples that come a code; returns (whether there was room, whether there were any)."""
    has_new = False
    for column in np.flatnonzero(engine.categorical).tolist():
        first, last = engine.features.first_category[column : column + 2].tolist()
        layout, is_live = engine.features.categories[first:last], engine.live_categories[first:last]
        for value in np.setdiff1d(hashes_of(data.cells[slots, column], data.category_hashes), layout[is_live]):
            has_new = True
            code = _rank_for(layout, value)
            if engine.share < 1.0 or code < 0 or is_live[code]:
                return False, True
            layout[code], is_live[code] = value, True
            set_candidate(engine.plans, engine.bins, column, code, value, engine.seed, is_live=True)
    return True, has_new


def _rank_for(layout: Hashes, value: np.uint64) -> int:
    """The rank that a category that comes would have to take, which must be dead; -1: there is none."""
    if value == MISSING_CATEGORY:
        return 0 if len(layout) else -1
    begin = 1 if len(layout) and layout[0] == MISSING_CATEGORY else 0
    return int(np.searchsorted(layout[begin:], value)) + begin - 1


def dismiss_categories(engine: "QuantisedTrees") -> tuple[bool, bool]:
    """Make the categories dead that nobody has any more; returns (whether there was room, whether there were any)."""
    gone = np.flatnonzero(engine.live_categories & (engine.category_counts == 0))
    if len(gone) and engine.share < 1.0:
        return False, True
    for place in gone.tolist():
        column = int(np.searchsorted(engine.features.first_category, place, side="right")) - 1
        code = place - int(engine.features.first_category[column])
        layout = engine.features.categories[place - code : int(engine.features.first_category[column + 1])]
        # What is left of it, and in dead ranks behind it, is a copy of the one before.
        before = layout[code - 1] if code and layout[code - 1] != MISSING_CATEGORY else np.uint64(0)
        is_live = engine.live_categories[place - code : place - code + len(layout)]
        layout[code : _next_live(is_live & (np.arange(len(layout)) != code), code)] = before
        engine.live_categories[place] = False
        set_candidate(engine.plans, engine.bins, column, code, np.uint64(0), engine.seed, is_live=False)
    return True, bool(len(gone))
