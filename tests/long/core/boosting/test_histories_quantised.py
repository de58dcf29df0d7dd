"""Many and longer histories of quantised boosting."""

import pytest

from tests.exact.core.boosting.player import QuantisedPlayer, play
from tests.exact.core.boosting.worlds import random_history

pytestmark = pytest.mark.long


@pytest.mark.parametrize("part", range(20))
def test_many_random_histories(part: int) -> None:
    for number in range(1_000 + 60 * part, 1_060 + 60 * part):
        play(QuantisedPlayer, random_history("quantised", number, max_operations=25, max_rows=120))
