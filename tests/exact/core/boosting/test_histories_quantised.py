"""Incremental boosting with quantization: after every step of any history it is a fresh fit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from numba import config

from tests.exact.core.boosting.player import QuantisedPlayer, play, play_all
from tests.exact.core.boosting.worlds import OPERATIONS, RARE, histories, random_history
from tests.strategies import History

KIND = "quantised"
N = 2 if config.DISABLE_JIT else 15
OUTCOMES = (
    set()
    if config.DISABLE_JIT
    else {"nothing changed", "leaves changed", "subtrees grown anew", "the rest grown anew", "all grown anew"}
)


@pytest.mark.parametrize("part", range(2))
def test_random_histories(part: int) -> None:
    numbers = range(N * part, N * part + N)
    played = (random_history(KIND, number, max_operations=12, max_rows=60) for number in numbers)
    play_all(QuantisedPlayer, played, OUTCOMES)


@settings(max_examples=20)
@given(histories(KIND))
def test_histories_that_shrink(history: History) -> None:
    """Fewer and simpler than the random ones; what fails here comes as its smallest example."""
    play(QuantisedPlayer, history)


def test_every_operation_is_known() -> None:
    """A history names operations by text."""
    for operation in (*OPERATIONS, *RARE):
        assert callable(getattr(QuantisedPlayer, operation.replace(" ", "_")))
