"""JSON in the one form of RFC 8785, for what ledgers and receipts hold: no fractions, and keys of objects in ASCII."""

import json
from typing import Any


def canonical(value: Any) -> bytes:
    """Return the one form of a value; `ValueError` when it holds what no entry and no receipt holds."""
    try:
        _check(value)
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    except (TypeError, RecursionError):
        raise ValueError from None


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
