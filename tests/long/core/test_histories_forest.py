"""Many and longer histories of forests."""

import pytest

from tests.histories.kinds import BY_NAME
from tests.histories.player import play
from tests.long.core.histories import parts_of, play_part

pytestmark = pytest.mark.long


@parts_of("forest")
def test_many_random_histories(name: str, part: int) -> None:
    play_part(name, part)


@pytest.mark.parametrize("part", range(2, 12))
def test_many_long_lives(part: int) -> None:
    for number in range(10 * part, 10 * part + 10):
        play(BY_NAME["forest"], BY_NAME["forest"].long_life(number, n_operations=60))
