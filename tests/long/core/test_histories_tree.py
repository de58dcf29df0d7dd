"""Many and longer histories of trees."""

import pytest

from tests.long.core.histories import parts_of, play_part

pytestmark = pytest.mark.long


@parts_of("tree", "feasible")
def test_many_random_histories(name: str, part: int) -> None:
    play_part(name, part)
