"""After every step of any history the tree is the oracle's: splits, s(v), c(v), tags, and who is in which leaf."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from numba import config

from tests.exact.core.tree.player import Player, play
from tests.exact.core.tree.streams import (
    ADVERSARIAL,
    DRIFTING,
    IN_BETWEEN,
    RANDOM,
    RARE,
    History,
    histories,
    random_history,
)

N = 3 if config.DISABLE_JIT else 40


@pytest.mark.parametrize("part", range(2))
def test_random_histories(part: int) -> None:
    for number in range(N * part, N * part + N):
        play(random_history(number, max_operations=25, max_rows=60))


@settings(max_examples=40)
@given(histories())
def test_histories_that_shrink(history: History) -> None:
    """Fewer and simpler than the random ones; what fails here comes as its smallest example."""
    play(history)


def test_every_operation_is_known() -> None:
    """A history names operations by text."""
    for operation in {"fit", *RANDOM, *ADVERSARIAL, *DRIFTING, *IN_BETWEEN, *RARE}:
        assert callable(getattr(Player, operation.replace(" ", "_")))
