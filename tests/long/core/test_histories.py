"""Many and longer histories of each kind, in parts."""

from dataclasses import replace

import pytest

from tests.exact.core.test_histories import ASKING, play_all
from tests.histories.kinds import BY_NAME, TASKS, asking
from tests.histories.player import play

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


# A function for each family: the rotation runs the first case of each before the second of any.
@parts_of("forest")
def test_forests(name: str, part: int) -> None:
    play_part(name, part)


@parts_of("tree", "feasible")
def test_trees(name: str, part: int) -> None:
    play_part(name, part)


@parts_of(*(name for name in SHARES if name not in ("forest", "tree", "feasible")))
def test_boosted_trees(name: str, part: int) -> None:
    play_part(name, part)


@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize(("name", "asked"), ASKING)
def test_each_loss(name: str, asked: str, part: int) -> None:
    _, _, max_operations, max_rows, _ = SHARES[name]
    kind = replace(asking(BY_NAME[name], asked), wide=TASKS)
    play_all(kind, range(60_000 + 10 * part, 60_010 + 10 * part), max_operations, max_rows)


@pytest.mark.parametrize("part", range(2, 12))
def test_long_lives_of_forests(part: int) -> None:
    for number in range(10 * part, 10 * part + 10):
        play(BY_NAME["forest"], BY_NAME["forest"].long_life(number, n_operations=60))
