"""Many and longer histories of boosted trees."""

import pytest

from tests.long.core.histories import SHARES, parts_of, play_part

pytestmark = pytest.mark.long


@parts_of(*(name for name in SHARES if name not in ("forest", "tree", "feasible")))
def test_many_random_histories(name: str, part: int) -> None:
    play_part(name, part)
