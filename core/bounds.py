"""What values that come from a file may be: rules that say type and range, and the check of a value by its rule.

Every number of a file is checked here before it is used: Python's integers have no end, but an array's length or a
column of a database has.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oubli.core.errors import FileError

LARGEST_COUNT = 2**53  # of versions, samples and the like: JSON's readers know integers up to here
LARGEST_COUNTER = 2**62  # of counters that are kept in 64 bits and need room to grow
_DIGITS = 20  # of an integer of 64 bits, with its sign


class Rule(ABC):
    """What a value may be."""

    @abstractmethod
    def find_fault(self, value: Any, where: str) -> str | None:
        """Return what is wrong, with the place and without the value; None when nothing is."""


@dataclass(frozen=True)
class Whole(Rule):
    """An integer in [low, high]; a boolean is none."""

    low: int = 0
    high: int = LARGEST_COUNT

    def find_fault(self, value: Any, where: str) -> str | None:
        if type(value) is int and self.low <= value <= self.high:
            return None
        return f"{where} must be an integer from {self.low} to {self.high}"


@dataclass(frozen=True)
class Text(Rule):
    """A text of so many characters at most that UTF-8 can encode."""

    longest: int

    def find_fault(self, value: Any, where: str) -> str | None:
        if type(value) is str and len(value) <= self.longest and (value.isascii() or _is_utf8(value)):
            return None
        return f"{where} must be a text of at most {self.longest} characters"


@dataclass(frozen=True)
class WholeText(Rule):
    """The decimal text of an integer in [low, high], as this program writes it."""

    low: int = 0
    high: int = LARGEST_COUNT

    def find_fault(self, value: Any, where: str) -> str | None:
        if type(value) is str and len(value) <= _DIGITS and value.isascii() and value.isdecimal():
            return Whole(self.low, self.high).find_fault(int(value), where)
        return f"{where} must be an integer from {self.low} to {self.high}, as a decimal text"


@dataclass(frozen=True)
class Scalar(Rule):
    """What a parameter may be: a finite number, a short text, true, false, null, or a short list of these."""

    longest: int = 100
    holds_lists: bool = True

    def find_fault(self, value: Any, where: str) -> str | None:
        kind = type(value)
        if value is None or kind is bool or (kind is int and -(2**63) <= value < 2**63):
            return None
        if kind is float and math.isfinite(value):
            return None
        if kind is str:
            return Text(self.longest).find_fault(value, where)
        if kind is list and self.holds_lists and len(value) <= self.longest:
            inner = Scalar(self.longest, holds_lists=False)
            return next(filter(None, (inner.find_fault(one, where) for one in value)), None)
        return f"{where} must be a number, a short text, true, false or null"


@dataclass(frozen=True)
class Anything(Rule):
    """A value that is checked elsewhere."""

    def find_fault(self, value: Any, where: str) -> str | None:
        return None


@dataclass(frozen=True)
class Fields(Rule):
    """An object with fields.

    Attributes
    ----------
    required, optional
        Rules by name.
    more
        The rule of all other fields, of which there may be `most`; None: there must be none.
    """

    required: Mapping[str, Rule] = field(default_factory=dict)
    optional: Mapping[str, Rule] = field(default_factory=dict)
    more: Rule | None = None
    most: int = 1000

    def find_fault(self, value: Any, where: str) -> str | None:
        if type(value) is not dict:
            return f"{where} must be an object"
        for name, rule in self.required.items():
            if name not in value:
                return f"{where} lacks {name!r}"
            if fault := rule.find_fault(value[name], f"{name!r} in {where}"):
                return fault
        for name, rule in self.optional.items():
            if name in value and (fault := rule.find_fault(value[name], f"{name!r} in {where}")):
                return fault
        others = value.keys() - self.required.keys() - self.optional.keys()
        if self.more is None:
            return f"{where} has a field that is not known" if others else None
        if len(others) > self.most:
            return f"{where} has more than {self.most} fields"
        faults = (self.more.find_fault(value[name], f"a field of {where}") for name in others)
        return next(filter(None, faults), None)


def require(value: Any, rule: Rule, what: str) -> None:
    """Check a value from a file.

    Raises
    ------
    FileError
        With the place and the rule; it does not repeat the value.
    """
    if fault := rule.find_fault(value, what):
        raise FileError(f"the file is damaged: {fault}: restore another file")


def parse_json(text: str | bytes, what: str) -> Any:
    """Return what a text in a file says, as JSON has it: without NaN and infinities.

    Raises
    ------
    FileError
        When it is no JSON, too deeply nested, or has a number of thousands of digits.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise FileError(f"{what} is damaged: restore another file") from None


def is_same_json(one: Any, other: Any) -> bool:
    """Whether two values are written alike; 1, 1.0 and true are not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _refuse(name: str) -> Any:
    raise ValueError(name)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require_sound(condition: Any, what: str) -> None:
    """Refuse a file in which something does not hold."""
    if not condition:
        raise FileError(f"the file is not sound ({what}): restore another file")
