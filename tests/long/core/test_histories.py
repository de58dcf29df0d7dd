"""Many and longer histories of every kind."""

import pytest

from tests.exact.core.test_histories import play_all
from tests.histories.kinds import BY_NAME
from tests.histories.player import play

pytestmark = pytest.mark.long

# Kind: parts, histories a part, operations, rows, first seed.
SHARES = {
    "forest": (55, 50, 60, 150, 5000),
    "tree": (20, 60, 40, 120, 1000),
    "feasible": (20, 60, 40, 300, 1000),
    "quantised": (20, 60, 25, 120, 1000),
    "quantised oracle": (10, 30, 20, 100, 20_000),
    "presorted": (20, 60, 25, 120, 1000),
    "presorted oracle": (10, 30, 20, 100, 20_000),
    "online": (20, 60, 25, 120, 1000),
    "online oracle": (10, 30, 20, 70, 20_000),
}


@pytest.mark.parametrize(("name", "part"), [(name, part) for name, share in SHARES.items() for part in range(share[0])])
def test_many_random_histories(name: str, part: int) -> None:
    _, n, max_operations, max_rows, first = SHARES[name]
    play_all(BY_NAME[name], range(first + n * part, first + n * part + n), max_operations, max_rows)


@pytest.mark.parametrize("part", range(2, 12))
def test_many_long_lives(part: int) -> None:
    for number in range(10 * part, 10 * part + 10):
        play(BY_NAME["forest"], BY_NAME["forest"].long_life(number, n_operations=60))
