"""JSON in the one form of RFC 8785."""

import json
import math
from json.encoder import encode_basestring
from typing import Any

_WRITTEN_ALIKE = frozenset({str, int, bool, type(None)})
# Fractions between these are written by Python as by ECMAScript.
_SMALL, _LARGE = 1e-4, 1e16
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


class _UnusualError(Exception):
    """Python's encoder may write a value in another form."""


def canonical(value: Any) -> bytes:
    """Return the one form of what ledgers and receipts hold: no fractions, and keys of objects in ASCII.

    Raises
    ------
    ValueError
        When it holds something else.
    """
    try:
        _check(value)
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    except (TypeError, RecursionError):
        raise ValueError from None


def canonical_sample(value: Any) -> bytes:
    """Return the one form of any JSON, fractions included; `ValueError` when it is none.

    Whole numbers are written with all their digits, however large they are.
    """
    try:
        try:
            text = _encode(_usual(value))
        except _UnusualError:
            text = _text(value)
    except RecursionError:
        raise ValueError from None
    return text.encode("utf-8")


def _usual(value: Any) -> Any:
    """Return a value that Python's encoder writes in the one form, which is some times as fast as `_text`."""
    if isinstance(value, dict):
        if not all(map(str.isascii, value)):  # else the order of keys may be another
            raise _UnusualError
        return {name: one if type(one) in _WRITTEN_ALIKE else _usual(one) for name, one in value.items()}
    if type(value) is float:
        if value.is_integer() and abs(value) < _LARGE:
            return int(value)
        if _SMALL <= abs(value) < _LARGE:
            return value
    elif type(value) in _WRITTEN_ALIKE:
        return value
    raise _UnusualError


def _check(value: Any) -> None:
    if isinstance(value, dict):
        for name, one in value.items():
            if not name.isascii():  # else the order of keys is not that of their bytes
                raise ValueError
            _check(one)
    elif isinstance(value, list):
        for one in value:
            _check(one)
    elif isinstance(value, float):
        raise ValueError


def _text(value: Any) -> str:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{encode_basestring(name)}:{_text(value[name])}" for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return encode_basestring(value)
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise ValueError


def _number(value: float) -> str:
    """Return a number as ECMAScript's Number::toString does."""
    if not math.isfinite(value):
        raise ValueError
    if value == 0:
        return "0"
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(power or 0)  # how many digits are before it
    digits = digits.rstrip("0")
    if len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        text = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        text = digits[0] + ("." + digits[1:] if len(digits) > 1 else "") + f"e{point - 1:+d}"
    return ("-" if value < 0 else "") + text
