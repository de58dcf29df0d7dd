"""Presorted columns: merging and removing give what sorting gives."""

from __future__ import annotations

import numpy as np
import pytest

from oubli.core.boosting.presorted.orders import (
    Orders,
    check_orders,
    is_among,
    merge_samples,
    remove_samples,
    sort_columns,
)
from oubli.core.samples.arrays import Data
from tests.exact.core.boosting.presorted.problems import numeric_pool, random_pool


def place_of(data: Data, column: int, slot: int) -> float:
    """What a column is sorted by; hashes are small here."""
    x = float(data.cells[slot, column])
    if np.isnan(x):
        return -np.inf if data.categorical[column] else np.inf
    return float(data.category_hashes[int(x)]) if data.categorical[column] else x


def groups(orders: Orders, data: Data, column: int) -> list[set[int]]:
    """The slots of a column in order, those of one value together."""
    found: list[tuple[float, set[int]]] = []
    for slot in orders.slots[orders.order[column]].tolist():
        place = place_of(data, column, slot)
        if not found or found[-1][0] != place:
            found.append((place, set()))
        found[-1][1].add(slot)
    return [slots for _, slots in found]


def test_a_column_is_in_order_of_its_values() -> None:
    data = numeric_pool([[2.0], [np.nan], [-1.0], [2.0], [0.0]], np.zeros(5)).data
    assert groups(sort_columns(data, np.arange(5)), data, 0) == [{2}, {4}, {0, 3}, {1}]


def test_categories_are_in_order_of_their_hashes_missing_ones_first() -> None:
    cells = np.array([[0.0], [1.0], [2.0], [np.nan], [1.0]], np.float32)
    hashes = np.array([30, 10, 30], np.uint64)
    data = Data(cells, np.zeros(5, np.int64), np.zeros(5, np.uint64), hashes, np.array([True]))
    assert groups(sort_columns(data, np.arange(5)), data, 0) == [{3}, {1, 4}, {0, 2}]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_merging_and_removing_is_sorting(seed: int, dtype: type) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 80))
    data = random_pool(rng, n, 2, dtype).data
    data = data._replace(category_hashes=data.category_hashes >> np.uint64(40))
    slots = rng.permutation(n)
    n_before = int(rng.integers(0, n + 1))
    merged = merge_samples(sort_columns(data, slots[:n_before]), data, slots[n_before:])
    assert check_orders(merged, data, slots) == []
    n_gone = int(rng.integers(0, n + 1))
    rest = remove_samples(merged, slots[:n_gone])
    assert check_orders(rest, data, slots[n_gone:]) == []
    for orders, held in ((merged, slots), (rest, slots[n_gone:])):
        fresh = sort_columns(data, held)
        for column in range(data.cells.shape[1]):
            assert groups(orders, data, column) == groups(fresh, data, column)


def test_what_is_wrong_is_named() -> None:
    data = numeric_pool([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]], np.zeros(3)).data
    orders = sort_columns(data, np.arange(3))
    assert check_orders(orders, data, np.arange(2)) == ["the presorted columns are of other samples"]
    orders.order[1, 0] = orders.order[1, 2]
    assert check_orders(orders, data, np.arange(3)) == ["column 1: not every sample is in the presorted column once"]
    orders.order[1] = [0, 1, 2]
    assert check_orders(orders, data, np.arange(3)) == ["column 1: the presorted column is out of order"]


def test_slots_among_others() -> None:
    assert is_among(np.array([5, 0, 7]), np.array([7, 5])).tolist() == [True, False, True]
    assert is_among(np.zeros(0, np.int64), np.array([3])).tolist() == []
    assert is_among(np.array([3]), np.zeros(0, np.int64)).tolist() == [False]
