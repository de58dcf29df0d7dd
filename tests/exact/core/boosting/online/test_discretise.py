"""Bins (Algorithm 4), what lies beyond them, and the candidates drawn from their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oubli.core.boosting.online.bins import Bins, encode, inner_edges, make_bins, numeric_edges
from oubli.core.boosting.online.split import FEW, draw_candidates, n_chosen
from oubli.core.engine import copied
from oubli.core.rng import MISSING_CATEGORY
from oubli.core.samples.arrays import Data


def test_every_distinct_value_has_a_bin_when_there_are_few() -> None:
    assert inner_edges(np.array([1.0, 2.0, 4.0, 4.5]), 10).tolist() == [1.5, 3.0, 4.25]
    assert inner_edges(np.array([1.0, 2.0, 4.0, 4.5]), 4).tolist() == [1.5, 3.0, 4.25]


def test_the_width_is_doubled_until_there_are_few_enough() -> None:
    """0 ... 1023: with a width w, a bin holds floor(w) + 1 values; 1e-10 x 1023 x 2^24 is 1.716, 2^25 3.43."""
    values = np.arange(1024.0)
    assert len(inner_edges(values, 1024)) == 1023
    assert inner_edges(values, 1023)[:3].tolist() == [1.5, 3.5, 5.5]
    assert inner_edges(values, 511)[:3].tolist() == [3.5, 7.5, 11.5]


def test_empty_stretches_have_no_bins() -> None:
    values = np.concatenate([np.arange(10.0), [1e6, 1e6 + 1]])
    assert inner_edges(values, 3).tolist() == [6.5, 500004.5]
    assert inner_edges(values, 2).tolist() == [500004.5]


def test_between_neighbours_in_float64_the_lower_one_is_the_edge() -> None:
    low = 1.0
    high = np.nextafter(low, 2.0)
    assert inner_edges(np.array([low, high]), 2).tolist() == [low]
    higher = np.nextafter(high, 2.0)  # halfway between these two is rounded up
    assert inner_edges(np.array([low, high, higher]), 3).tolist() == [low, high]
    largest = np.finfo(np.float64).max
    (edge,) = inner_edges(np.array([-largest, largest]), 2)
    assert -largest <= edge < largest


def test_beyond_both_ends_bins_get_wider_and_wider() -> None:
    edges, n_outer = numeric_edges(np.arange(0.0, 80.5, 0.5), 1024)
    assert n_outer == 3
    assert edges[-4:].tolist() == [80.0, 90.0, 110.0, np.inf]
    below = np.nextafter(0.0, -1.0)
    assert edges[:3].tolist() == [below - 30.0, below - 10.0, below]
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([0.0, 1.0, np.nan], [0.5, np.inf]),
        ([3.0, 3.0], [np.nextafter(3.0, 0.0), 3.0, np.inf]),
        ([np.nan, np.nan], [np.inf]),
        ([0.0, 1.0, 2.0], [np.nextafter(0.0, -1.0), 0.5, 1.5, 2.0, np.inf]),
    ],
)
def test_few_values(column: list[float], expected: list[float]) -> None:
    assert numeric_edges(np.array(column), 1024)[0].tolist() == expected


def _data(cells: Any, hashes: list[int], categorical: list[bool]) -> Data:
    array = np.array(cells, np.float64)
    n = len(array)
    mask = np.array(categorical)
    return Data(array, np.zeros(n, np.int64), np.arange(n, dtype=np.uint64), np.array(hashes, np.uint64), mask)


def _codes(bins: Bins, data: Data, slots: Any) -> list[list[int]]:
    codes = np.zeros(data.cells.shape, np.uint16)
    encode(bins, data.cells, data.category_hashes, MISSING_CATEGORY, np.array(slots), codes)
    return [[int(code) for code in codes[slot]] for slot in slots]


def test_a_numeric_code_is_the_number_of_edges_below() -> None:
    data = _data([[0.0], [1.0], [2.0], [np.nan], [-5.0], [0.5], [7.0]], [], [False])
    bins = make_bins(data, np.arange(4), 1024)
    # beyond | 0 | 1 | 2 | beyond | missing
    assert _codes(bins, data, range(7)) == [[1], [2], [3], [5], [0], [1], [4]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_are_what_a_search_says(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    data = _data(rng.normal(size=(700, 2)), [], [False, False])
    data = data._replace(cells=data.cells.astype(dtype))
    bins = make_bins(data, np.arange(300), 64)
    found = np.array(_codes(bins, data, range(700)))
    for feature in range(2):
        edges = bins.edges[bins.first[feature] : bins.first[feature + 1] - 1]
        assert np.array_equal(found[:, feature], np.searchsorted(edges, data.cells[:, feature].astype(np.float64)))


def test_categories_by_hash_then_spare_ones_then_all_others() -> None:
    data = _data([[0], [1], [np.nan], [2], [3], [4], [2]], [50, 40, 7, 99, 60], [True])
    bins = make_bins(data, np.array([0, 1]), 1024)
    # missing | 40 | 50 | spare | spare | others
    assert _codes(bins, data, [0, 1, 2]) == [[2], [1], [0]]
    assert bins.n_taken[0] == 0
    assert _codes(bins, data, [3, 4, 5, 6]) == [[3], [4], [5], [3]]
    assert bins.n_taken[0] == 2
    assert bins.hashes.tolist() == [int(MISSING_CATEGORY), 40, 50, 7, 99, 0]


def test_a_copy_of_bins_takes_spare_codes_of_its_own() -> None:
    data = _data([[0], [1], [2], [3]], [50, 40, 7, 99], [True])
    bins = make_bins(data, np.array([0, 1]), 1024)
    other = copied(bins)
    assert _codes(bins, data, [2]) == _codes(other, data, [3]) == [[3]]


@pytest.mark.parametrize(
    ("n", "share", "expected"), [(2, 0.1, 2), (5, 0.1, 3), (20, 0.1, 3), (100, 0.1, 10), (1000, 0.1, 100), (9, 0.7, 7)]
)
def test_how_many_edges_are_candidates(n: int, share: float, expected: int) -> None:
    assert n_chosen(n, share, FEW) == expected


def test_candidates_of_every_iteration() -> None:
    rng = np.random.default_rng(1)
    cells = np.stack([rng.normal(size=3000), rng.integers(0, 5, 3000)], axis=1)
    data = _data(cells, [10, 20, 30, 40, 50], [False, True])
    bins = make_bins(data, np.arange(3000), 1024)
    candidates = draw_candidates(bins, 0.1, 4, np.uint64(9))
    n_inner = int(bins.n_inner[0])
    width = int(candidates.first[1])
    # The edges drawn, three beyond each end, the +inf edge's own bin, missing values.
    assert width == n_chosen(n_inner, 0.1, FEW) + 6 + 2
    drawn = candidates.cuts[:, : width - 2].astype(int)
    assert (np.diff(drawn, axis=1) > 0).all()
    assert (drawn[0] != drawn[1]).any()
    last = int(bins.first[1]) - 1
    for iteration in range(4):
        places = candidates.places[iteration, : last + 1].astype(int)
        assert places[:-1].tolist() == [int((drawn[iteration] < code).sum()) for code in range(last)]
        assert places[-1] == width - 1
        assert candidates.places[iteration, last + 1 :].tolist() == list(range(1 + 5 + 2 + 1))
    # One in each stretch of the same length: none is longer than two of them.
    inside = drawn[:, 3:-3]
    assert np.diff(inside, axis=1).max() <= 2 * -(-n_inner // inside.shape[1])


def test_many_categories_are_sampled() -> None:
    rng = np.random.default_rng(2)
    hashes = rng.integers(1, 2**62, 400).tolist()
    data = _data(np.arange(400.0)[:, np.newaxis], hashes, [True])
    bins = make_bins(data, np.arange(400), 1024)
    candidates = draw_candidates(bins, 0.25, 3, np.uint64(9))
    n_spare = 2 + 400 // 8
    assert candidates.n_bins == 1 + 100 + n_spare + 1
    others = candidates.places[:, 1:401] == candidates.n_bins - 1
    assert others.sum(axis=1).tolist() == [300] * 3
    assert candidates.places.dtype == np.uint8
