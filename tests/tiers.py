"""Which cases of a test are ordinary and which are long."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def covering(*lists: Iterable[Any]) -> list[Any]:
    """All combinations of some lists, for `parametrize`; ordinary are so few that each value still comes.

    The values of the longest list come once each, those of the others take turns.
    """
    values = [list(one) for one in lists]
    longest = max(range(len(values)), key=lambda number: len(values[number]))
    return [
        pytest.param(
            *(one[place] for one, place in zip(values, places, strict=True)),
            marks=()
            if all(place == places[longest] % len(one) for one, place in zip(values, places, strict=True))
            else pytest.mark.long,
        )
        for places in product(*(range(len(one)) for one in values))
    ]


def ordinary(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """Values for `parametrize`, all of which are long but the chosen ones."""
    return [pytest.param(value, marks=() if value in chosen else pytest.mark.long) for value in values]
