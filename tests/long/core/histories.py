"""How many and how long histories of each kind are, and how they are parted."""

from dataclasses import replace

import pytest

from tests.exact.core.test_histories import play_all
from tests.histories.kinds import BY_NAME, TASKS

# Kind: parts, histories a part, operations, rows, first seed.
SHARES = {
    "forest": (55, 50, 60, 150, 5000),
    "tree": (20, 60, 40, 120, 1000),
    "feasible": (20, 60, 40, 300, 1000),
    "quantised": (60, 20, 25, 120, 1000),
    "regions": (20, 20, 25, 60, 1000),
    "quantised oracle": (10, 30, 20, 100, 20_000),
    "presorted": (60, 20, 25, 120, 1000),
    "presorted oracle": (10, 30, 20, 100, 20_000),
    "online": (60, 20, 25, 120, 1000),
    "online oracle": (10, 30, 20, 70, 20_000),
}


def parts_of(*names: str) -> pytest.MarkDecorator:
    """The parts of some kinds, the first part of each before the second of any."""
    parts = [(name, part) for part in range(60) for name in names if part < SHARES[name][0]]
    return pytest.mark.parametrize(("name", "part"), parts)


def play_part(name: str, part: int) -> None:
    """Play the histories of a part."""
    _, n, max_operations, max_rows, first = SHARES[name]
    kind = replace(BY_NAME[name], wide=TASKS)
    play_all(kind, range(first + n * part, first + n * part + n), max_operations, max_rows)
