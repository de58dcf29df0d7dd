"""What a function makes of values of which many are alike: each is looked at once, in the order in which they come."""

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Distinct(dict[K, V]):
    """The results of a function, by value.

    `map(Distinct(make).__getitem__, values)` is one pass over the values. The built-in function for that calls `make`
    where a value is new, so that values that are equal have one result.
    """

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, value: K) -> V:
        made = self[value] = self._make(value)
        return made
