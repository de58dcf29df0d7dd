"""Large containers: work on them in slices, so that other threads need not wait, and indexes made when first read.

The interpreter runs one thread at a time. A thread gives way between two steps, never inside one call
of a built-in function, and `dict.copy()` of half a million entries is one call. So large
containers are gone through in slices of about a millisecond, in a process that answers requests with a rest in
between. Plain arrays need no care: NumPy lets others run while it copies them.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar, overload

import numpy as np

from oubli.core.array_types import Ints

S = TypeVar("S")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

ITEMS = 4096  # objects that a slice handles
# A rest of no time at all would often end before a waiting thread has woken up.
_REST = 1e-4
_rest = [0.0]  # seconds


def begin_to_rest() -> None:
    """Have other threads of this process run between two slices from now on."""
    _rest[0] = _REST


def _pause() -> None:
    if _rest[0]:
        time.sleep(_rest[0])


def cut(n: int, size: int = ITEMS) -> Iterator[slice]:
    """Cut range(n) into slices, with a rest between two of them."""
    for start in range(0, n, size):
        if start:
            _pause()
        yield slice(start, min(start + size, n))


def lists(values: Iterable[T], size: int = ITEMS) -> Iterator[list[T]]:
    """Cut what can be iterated over into lists, with a rest between two of them."""
    iterator = iter(values)
    part = list(islice(iterator, size))
    while part:
        yield part
        _pause()
        part = list(islice(iterator, size))


def copied_list(values: list[T]) -> list[T]:
    """Copy a list."""
    result: list[T] = []
    for part in cut(len(values)):
        result += values[part]
    return result


def copied_dict(values: dict[K, V]) -> dict[K, V]:
    """Copy a dictionary, in its order."""
    result: dict[K, V] = {}
    # Not by items: thousands of pairs at a time would set off the garbage collector, which stops everything.
    for part in lists(values):
        result.update(zip(part, map(values.__getitem__, part), strict=True))
    return result


def integers(values: Iterable[int], n: int) -> Ints:
    """Return `n` integers as an array."""
    result = np.empty(n, np.int64)
    start = 0
    for part in lists(values):
        result[start : start + len(part)] = part
        start += len(part)
    return result


class MadeOf(Generic[S, T]):
    """An attribute that is computed from another one when it is first read; the other one is emptied then.

    `functools.cached_property` has no lock from Python 3.12 on, and before it has one for all objects of a class.

    Threads that read it at the same time may each make one: all get the one that was published first. Once it is
    there, reading it costs no more than any other attribute. The other one is emptied last: a thread that needs it
    reads it first, and then looks whether this one is there.

    Parameters
    ----------
    source
        Name of the other attribute.
    make
        Takes the object and the value of the other attribute; writes nothing.
    empty
        Returns what the other attribute is then.
    """

    def __init__(self, source: str, make: Callable[[Any, S], T], empty: Callable[[], S]) -> None:
        self._source = source
        self._make = make
        self._empty = empty
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "MadeOf[S, T]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> "MadeOf[S, T] | T":
        """Return the attribute of an object that does not have it yet: it is in the object's dictionary afterwards."""
        if instance is None:
            return self
        source: S = getattr(instance, self._source)
        values = vars(instance)
        if self._name in values:
            found: T = values[self._name]
            return found
        made: T = values.setdefault(self._name, self._make(instance, source))
        setattr(instance, self._source, self._empty())
        return made
