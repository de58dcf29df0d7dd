"""Attributes that are made of another one when they are first read, by several threads perhaps.

`functools.cached_property` has no lock from Python 3.12 on, and before it has one for all objects of a class.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

S = TypeVar("S")
T = TypeVar("T")


class MadeOf(Generic[S, T]):
    """An attribute that is made of another one, which is emptied then.

    Threads that read it at the same time may each make one: all get the one that was published first. Once it is
    there, reading it costs no more than any other attribute. Whoever reads the other attribute reads it first and looks
    whether this one is there afterwards: the other one is emptied last.

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
