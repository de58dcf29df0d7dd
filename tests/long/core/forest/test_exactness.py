"""Many and longer histories of forests."""

import pytest

from tests.exact.core.forest.test_exactness import replay, run_machine
from tests.strategies import long_life, random_history

pytestmark = pytest.mark.long


@pytest.mark.parametrize("part", range(100, 150))
def test_many_random_histories(part: int) -> None:
    for number in range(50 * part, 50 * part + 50):
        replay(random_history(number, max_operations=60, max_rows=150))


@pytest.mark.parametrize("part", range(2, 12))
def test_many_long_lives(part: int) -> None:
    for number in range(10 * part, 10 * part + 10):
        replay(long_life(number, n_operations=60))


@pytest.mark.parametrize("part", range(1, 5))
def test_state_machine_at_length(part: int) -> None:
    run_machine(part, n_runs=100, n_steps=40)
