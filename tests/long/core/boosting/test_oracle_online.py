"""Many and longer histories of online boosting beside the oracle."""

import pytest

from tests.exact.core.boosting.player import play
from tests.exact.core.boosting.test_oracle_online import Player
from tests.exact.core.boosting.worlds import random_history

pytestmark = pytest.mark.long


@pytest.mark.parametrize("part", range(10))
def test_many_random_histories(part: int) -> None:
    for number in range(20_000 + 30 * part, 20_030 + 30 * part):
        play(Player, random_history("online", number, max_operations=20, max_rows=70))
