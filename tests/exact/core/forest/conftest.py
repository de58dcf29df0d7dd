"""Small models, lazy and eager, with candidate counters and without, of several seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.exact.core.forest.pitfalls import FOREST, Make, Sample, start
from tests.histories.player import Player
from tests.oracles.common import Column


@pytest.fixture(params=["lazy", "eager"])
def lazy(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "lazy")


SEEDS = [range(2), pytest.param(range(2, 8), marks=pytest.mark.long)]


@pytest.fixture(params=SEEDS, ids=["first seeds", "more seeds"])
def seeds(request: pytest.FixtureRequest) -> range:
    found: range = request.param
    return found


@pytest.fixture(params=["lazy", "eager", "lazy, no counters"])
def small(request: pytest.FixtureRequest, seeds: range) -> Iterator[Make]:
    """Make players for several seeds: small(columns, samples, **parameters)."""
    mode = request.param

    def make(columns: Sequence[Column], samples: Sequence[Sample], **parameters: Any) -> Iterator[Player]:
        for seed in seeds:
            yield start(columns, samples, **{"random_state": seed, "lazy": mode != "eager", **parameters})

    with FOREST.tuned(10**9 if mode == "lazy, no counters" else 2):
        yield make
