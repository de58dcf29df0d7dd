"""Trees stay feasible along many and longer histories."""

import pytest

from tests.exact.core.tree.player import play
from tests.exact.core.tree.streams import random_history

pytestmark = pytest.mark.long


@pytest.mark.parametrize("part", range(20))
def test_feasible_after_every_step_of_many_histories(part: int) -> None:
    for number in range(1_000 + 60 * part, 1_060 + 60 * part):
        play(random_history(number, max_operations=40, max_rows=300, feasible=True))
