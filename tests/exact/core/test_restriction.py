"""Restricted samples are in no tree and in every copy and file, of whatever kind the model is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.histories.kinds import BY_NAME, RESTRICTING
from tests.histories.player import TALLIES, play


@pytest.mark.parametrize(
    ("name", "n"), [("forest", 12), ("tree", 8), ("quantised", 4), ("presorted", 4), ("online", 4)]
)
def test_histories_with_restriction(name: str, n: int) -> None:
    kind = replace(BY_NAME[name], mixtures=(RESTRICTING,))
    before = TALLIES[name].operations.copy()
    for number in range(n):
        play(kind, kind.random_history(30_000 + number, 20, 40))
    operations = TALLIES[name].operations - before
    assert operations["restrict"] > n
    assert operations["release"] > n / 2
