"""Incremental boosting on grids against its oracle where sets are large."""

from __future__ import annotations

from dataclasses import replace

import pytest
from numba import config

from oubli.core.boosting.quantised import split
from tests.histories.kinds import BY_NAME
from tests.histories.player import play
from tests.oracles.boosting import quantised as oracle
from tests.oracles.boosting import quantised_parts

KIND = BY_NAME["quantised oracle"]
N = 2 if config.DISABLE_JIT else 8


def test_large_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other numbers apply to sets of 2^17 samples and more; let sets of 2^5 count as large."""
    monkeypatch.setattr(split, "_LARGE_SIZE", 5)
    monkeypatch.setattr(quantised_parts, "LARGE", 5)
    for number in range(N):
        play(KIND, KIND.random_history(30_000 + number, max_operations=4, max_rows=60))


@pytest.mark.parametrize("numbers", [range(N // 2), pytest.param(range(N // 2, 2 * N), marks=pytest.mark.long)])
@pytest.mark.parametrize("least", [1, 3])
def test_regions(least: int, numbers: range) -> None:
    """Sets of many samples are parted where there are numbers, or more than two classes; let regions have few."""
    kind = replace(KIND, tuning={"least_size": [least], "weak": KIND.tuning["weak"]})
    for number in numbers:
        play(kind, kind.random_history(40_000 + 100 * least + number, max_operations=4, max_rows=80))


def test_the_size_of_a_set_hardly_matters() -> None:
    """Between 2^16 and 2^18 the seed decides where a set begins to be large."""
    large = []
    for seed in range(40):
        parameters = oracle.Parameters(1, 0.1, 4, 1.0, 1.0, 1.0, 255, 0.25, 0.25, 0, 0.1, seed)
        for n in (1, 1000, 2**16 - 1, 2**16, 100_000, 2**17, 2**18, 10**7):
            found, expected = split.steadiness(n, 4, seed), quantised_parts.steadiness(n, parameters)
            assert found.top == expected.top
            assert found.coarsening == (expected.grid == 0.5)
            for depth, scale in enumerate(expected.scales):
                assert found.weights[depth].tolist() == [quantised_parts.weight_of(scale, i) for i in range(256)]
            large.append((n, expected.grid == 0.5))
    assert {n for n, is_large in large if is_large} == {100_000, 2**17, 2**18, 10**7}
    assert {n for n, is_large in large if not is_large} == {1, 1000, 2**16 - 1, 2**16, 100_000}
