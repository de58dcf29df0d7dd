"""BUILD below the estimator: against the oracle, and by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numba import njit

from oubli.core.samples.arrays import Data
from oubli.core.tree import engine as tree_module
from oubli.core.tree.presort import list_order, presort_column
from oubli.core.tree.split import midpoint
from oubli.core.tree.state import ROOT
from oubli.core.tree.workspace import STRIDE, Scratch, make_room
from tests.exact.core.tree.direct import ORDER, columns_of, make_data, make_tree, plain, read
from tests.oracles import tree as oracle


def test_a_large_build_keeps_histograms_and_sorts_by_digits() -> None:
    """More samples than any test with the oracle; parts of it are as good as the whole for that."""
    data = make_data(3, 9000, n_numeric=3, n_categories=(4, 9), missing=0.05, n_values=None)
    slots = np.arange(9000)
    tree = make_tree(data, 2, max_depth=6)
    tree.build(data, slots)
    tree.check(data, slots)
    columns = columns_of(data)
    checked = 0
    waiting = [read(tree, data)]
    while waiting:
        node = waiting.pop()
        if node.children is None:
            continue
        rows = list(node.held().values())
        if len(rows) < 1500:
            assert node.split == oracle.best_split(rows, columns)
            checked += 1
        waiting += node.children
    assert checked > 5


def test_a_build_goes_on_when_the_pool_of_nodes_was_full() -> None:
    data = make_data(1, 2000, n_values=None)
    tree = make_tree(data, 2, max_depth=64)
    pool = len(tree.tree.nodes)
    tree.build(data, np.arange(2000))
    assert len(tree.tree.nodes) > 4 * pool
    tree.check(data, np.arange(2000))
    again = tree.copy()
    again.build(data, np.arange(2000))
    assert again.digest(ORDER[:2]) == tree.digest(ORDER[:2])


def test_without_memory_for_the_pool_the_rest_stays_under_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_data(1, 2000, n_values=None)
    tree = make_tree(data, 2, max_depth=64)
    grow = tree._enlarge_pool

    def refuse() -> None:
        raise MemoryError

    monkeypatch.setattr(tree, "_enlarge_pool", refuse)
    with pytest.raises(MemoryError):
        tree.build(data, np.arange(1900))
    assert tree.n_tags > 0
    tree.check(data, np.arange(1900))
    tree.learn(data, np.arange(1900, 2000))
    tree.check(data, np.arange(2000))
    monkeypatch.setattr(tree, "_enlarge_pool", grow)
    assert tree.resolve_some(data) > 0
    tree.check(data, np.arange(2000))
    assert tree.n_tags == 0


@pytest.mark.long
def test_entries_that_need_more_than_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many samples and classes that position and class do not fit are held in wider lists; here they always are."""
    data = make_data(3, 500, n_categories=(6,), missing=0.1, n_classes=3)
    narrow, wide = make_tree(data, 3), make_tree(data, 3)
    narrow.build(data, np.arange(500))

    def with_wide_lists(*arguments: Any) -> Scratch:
        space = make_room(*arguments)
        return space._replace(lists=space.lists.astype(np.uint64))

    monkeypatch.setattr(tree_module, "make_room", with_wide_lists)
    wide.build(data, np.arange(500))
    assert wide.space.lists.dtype == np.uint64
    assert plain(read(wide, data)) == plain(read(narrow, data))
    assert make_room(2**17, 0, 2, np.float32, np.zeros(1, np.bool_), np.zeros(4)).lists.dtype == np.uint32
    assert make_room(2**17, 0, 2**15, np.float32, np.zeros(1, np.bool_), np.zeros(4)).lists.dtype == np.uint64


# -- the parts of BUILD -----------------------------------------------------------------------------


@njit
def presort(samples: Any, scratch: Any) -> None:
    n = samples.cells.shape[0]
    for i in range(n):
        scratch.slots[i] = i
    scratch.state[STRIDE] = scratch.lists.shape[0] // 4  # one column and three lists more
    list_order(samples, scratch, n)
    presort_column(samples.cells, 0, scratch, n)


@njit
def middle_of(low: Any, high: Any, cells: Any) -> Any:
    return midpoint(low, high, cells)


SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38, -3.4e38, 1.0, -1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 7, 64, 192, 193, 1024, 1025, 5000])
@pytest.mark.parametrize("values", ["distinct", "equal", "few", "special"])
def test_lists_are_sorted_and_say_where_values_change(dtype: Any, n: int, values: str) -> None:
    rng = np.random.default_rng(n)
    column = {
        "distinct": rng.normal(size=n) * 10.0 ** rng.integers(-30, 30, n),
        "equal": np.full(n, -2.5),
        "few": rng.integers(-3, 3, n) / 2.0,
        "special": rng.choice(SPECIAL, n),
    }[values]
    cells = column.astype(dtype).reshape(-1, 1)
    targets = rng.integers(0, 3, n)
    space = make_room(n, 0, 3, dtype, np.zeros(1, np.bool_), np.zeros(4))
    presort(Data(cells, targets, np.zeros(n, np.uint64), np.zeros(0, np.uint64), np.zeros(1, np.bool_)), space)
    entries = space.lists[:n].astype(np.int64)
    positions, classes, changes = entries >> 3, (entries >> 1) & 3, entries & 1
    expected = np.argsort(cells[:, 0] + 0.0, kind="stable")  # NumPy puts NaN last, too
    assert np.array_equal(positions, expected)
    assert np.array_equal(classes, targets[expected])
    assert space.has_missing[0] == np.isnan(cells).any()
    ordered = cells[expected, 0]
    differ = (ordered[1:] != ordered[:-1]) & ~(np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
    assert np.array_equal(changes[1:] == 1, differ)


def test_a_midpoint_is_between_its_neighbours() -> None:
    for dtype in (np.float32, np.float64):
        cells = np.zeros((1, 1), dtype)
        tiny, largest = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
        pairs = [(1.0, 2.0), (-tiny, 0.0), (0.0, tiny), (-tiny, tiny), (-largest, largest)]
        pairs += [(x, np.nextafter(dtype(x), dtype(np.inf))) for x in (1.0, -1.0, 3e30)]
        pairs += [(np.nextafter(dtype(largest), dtype(0)), largest)]
        for low, high in pairs:
            low, high = dtype(low), dtype(high)
            threshold = middle_of(low, high, cells)
            assert low <= threshold < high, (low, high)
            assert threshold == dtype(threshold)
            assert not (threshold == 0 and math.copysign(1, threshold) < 0)
        assert middle_of(dtype(1), dtype(2), cells) == 1.5
        assert middle_of(dtype(-3), dtype(1), cells) == -1.0


def test_two_values_with_one_hash_are_one_category() -> None:
    cells = np.array([[0], [1], [2], [2]], np.float32)
    hashes = np.array([6, 6, 2], np.uint64)
    data = Data(cells, np.array([0, 1, 1, 1]), np.zeros(4, np.uint64), hashes, np.ones(1, np.bool_))
    tree = make_tree(data, 2)
    tree.build(data, np.arange(4))
    tree.check(data, np.arange(4))
    root = tree.tree.nodes[ROOT]
    assert root["category"] == 2
    assert tree.n_nodes == 3
