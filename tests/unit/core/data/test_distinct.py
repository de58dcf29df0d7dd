from __future__ import annotations

import pytest

from oubli.core.data.values import Distinct


def test_each_value_is_looked_at_once_in_the_order_in_which_it_comes() -> None:
    asked: list[str] = []

    def length(value: str) -> int:
        asked.append(value)
        return len(value)

    assert list(map(Distinct(length).__getitem__, ["bb", "a", "bb", "ccc", "a"])) == [2, 1, 2, 3, 1]
    assert asked == ["bb", "a", "ccc"]


def test_what_is_refused_is_not_kept() -> None:
    made = Distinct(int)
    with pytest.raises(ValueError, match="invalid literal"):
        made["x"]
    assert made == {}
