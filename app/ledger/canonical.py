"""JSON in the one form of RFC 8785, so that a hash or a signature can be checked by anybody, in any language.

Only what the ledger and its receipts hold is taken: texts, whole numbers that every reader represents exactly, true,
false, null, lists, and objects. Fractions are refused; how they are written is where implementations differ.
"""

from __future__ import annotations

from typing import Any

import orjson

LARGEST_INTEGER = 2**53 - 1
_DEEPEST = 32
_TEXTS = frozenset({str})


class CanonicalError(ValueError):
    """Something that has no canonical form here; the text names the rule and repeats nothing."""


def canonical(content: Any) -> bytes:
    """Return the RFC 8785 form.

    Raises
    ------
    CanonicalError
        When the content holds anything else than texts, integers below 2**53, booleans, null, lists and dicts.
    """
    try:
        # Where all keys are ASCII, the encoder's order is that of UTF-16 code units.
        if _is_flat(content) or _has_plain_keys(content, _DEEPEST):
            return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return orjson.dumps(_in_order(content))
    except TypeError:  # the encoder's own: half of a surrogate pair
        raise CanonicalError("a text is not valid Unicode") from None


def _is_flat(content: Any) -> bool:
    """Whether a value is seen at once to be an object of the usual kind: ASCII keys, single values, lists of texts."""
    if type(content) is not dict or not _TEXTS.issuperset(map(type, content)) or not "".join(content).isascii():
        return False
    for value in content.values():
        kind = type(value)
        if kind is int:
            if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
                return False
        elif kind is list:
            if not _TEXTS.issuperset(map(type, value)):
                return False
        elif kind is not str and kind is not bool and value is not None:
            return False
    return True


def _has_plain_keys(value: Any, depth: int) -> bool:
    """Check the types of everything in a value; return whether all keys of objects are ASCII."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise CanonicalError("an integer is larger than 2**53 - 1")
        return True
    if depth == 0:
        raise CanonicalError(f"lists and objects are nested deeper than {_DEEPEST} levels")
    is_plain = True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise CanonicalError("a key of an object is not a text")
            is_plain = _has_plain_keys(item, depth - 1) and key.isascii() and is_plain
        return is_plain
    if kind is list:
        for item in value:
            is_plain = _has_plain_keys(item, depth - 1) and is_plain
        return is_plain
    raise CanonicalError("only texts, integers, booleans, null, lists and objects can be signed")


def _in_order(value: Any) -> Any:
    """Return a copy whose objects have their keys in the order of UTF-16 code units."""
    if type(value) is dict:
        return {key: _in_order(value[key]) for key in sorted(value, key=_utf16)}
    if type(value) is list:
        return [_in_order(item) for item in value]
    return value


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
