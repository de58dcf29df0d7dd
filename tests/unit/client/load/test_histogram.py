from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.client.load.records import Histogram

SHARES = (50, 90, 99, 99.9, 100)


def of(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=200))
def test_percentiles_are_those_of_numpy_within_a_bucket(values: list[int]) -> None:
    histogram = of(values)
    for share in SHARES:
        exact = int(np.percentile(values, share, method="inverted_cdf"))
        assert exact <= histogram.percentile(share) <= exact * (1 + 1 / 128)
    assert histogram.longest == max(values)
    assert histogram.mean == pytest.approx(np.mean(values))


def test_short_durations_are_exact() -> None:
    assert [of([value]).percentile(50) for value in range(256)] == list(range(256))
    assert [of([value, 10**9]).percentile(50) for value in (256, 257, 258, 259)] == [257, 257, 259, 259]


@given(st.lists(st.integers(0, 10**12), max_size=50), st.lists(st.integers(0, 10**12), max_size=50))
def test_histograms_of_two_processes_are_that_of_all(one: list[int], other: list[int]) -> None:
    merged = of(one)
    merged.add(pickle.loads(pickle.dumps(of(other))))  # noqa: S301 - as pipes do
    together = of(one + other)
    assert vars(merged) == vars(together)


def test_nothing_recorded() -> None:
    assert (Histogram().percentile(99), Histogram().mean, Histogram().longest) == (0, 0.0, 0)


def test_a_clock_that_goes_back_is_no_duration() -> None:
    assert of([-5]).percentile(100) == 0
