"""What the leaves of the set tree are made of: positions of names under a key, and hashes of samples.

    position of an id       0, then 47 bits of HMAC-SHA256(key, "id" | 0x00 | id)
    position of a subject   1, then 47 bits of HMAC-SHA256(key, "subject" | 0x00 | subject)
    sample                  c = SHA-256(nonce | JSON of features, id, label and subject, as RFC 8785 writes it)
    content of an id        c
    content of a subject    SHA-256(the c of all its samples, in order)

The nonce is random and goes with the sample: without it nobody can test guesses of what the sample was. Should two
names have one position, its content is SHA-256(the c of all their samples, in order).
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any, Literal

import orjson

from oubli.core.set_tree import DEPTH

Name = tuple[Literal["id", "subject"], str]
_NAMESPACES = {"id": 0, "subject": 1 << DEPTH - 1}
_IN_NAMESPACE = (1 << DEPTH - 1) - 1
_POSITION_BYTES = DEPTH // 8
_COMMITMENT = b"oubli positions key commitment\0"
# Numbers between these are written by orjson as RFC 8785 does, if they are not whole.
_SMALL, _LARGE = 1e-4, 1e16


def commitment_of(secret: bytes) -> str:
    """Return what may be told of the key of positions: a hash that no other key has."""
    return sha256(_COMMITMENT + secret).hexdigest()


class Positions:
    """Where names are in the tree.

    Parameters
    ----------
    secret
        The key of positions.
    """

    def __init__(self, secret: bytes) -> None:
        self._keyed = hmac.new(secret, digestmod="sha256")  # a copy of it takes half as long as a new one

    def of(self, name: Name) -> int:
        """Return the position of a name."""
        namespace, text = name
        code = self._keyed.copy()
        code.update(namespace.encode("ascii") + b"\0" + text.encode("utf-8"))
        return int.from_bytes(code.digest()[:_POSITION_BYTES], "big") & _IN_NAMESPACE | _NAMESPACES[namespace]


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of features in the order in which RFC 8785 writes them: by their UTF-16 units."""
    return sorted(names, key=lambda name: name.encode("utf-16-be"))


def hash_of_sample(nonce: bytes, sample_id: str, subject: str | None, features: dict[str, Any], label: Any) -> bytes:
    """Return the hash of a sample.

    Parameters
    ----------
    nonce
        16 bytes.
    sample_id, subject
        Its id, and whom it belongs to.
    features
        By name, `in_order`, as answers show them.
    label
        As answers show it.
    """
    # In order.
    content = {"features": features, "id": sample_id, "label": label, "subject": subject}
    return sha256(nonce + orjson.dumps(content)).digest()


def content_of(hashes: Sequence[bytes]) -> bytes:
    """Return the content of a position that several samples have: those of a subject, or of names that share it."""
    return sha256(b"".join(sorted(hashes))).digest()


def as_written(value: Any) -> Any:
    """Return a value of a sample so that orjson writes it as RFC 8785 does."""
    if type(value) is not float:
        return value
    if value.is_integer() and abs(value) < _LARGE:
        return int(value)
    if _SMALL <= abs(value) < _LARGE:
        return value
    return orjson.Fragment(_number(value))


def _number(value: float) -> str:
    """Return a number as ECMAScript writes it (Number::toString)."""
    if not math.isfinite(value):
        raise ValueError
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, n = "".join(map(str, digits)), len(digits) + int(exponent)
    if 0 < n <= 21:
        text = text.ljust(n, "0") if len(text) <= n else f"{text[:n]}.{text[n:]}"
    elif -6 < n <= 0:
        text = f"0.{'0' * -n}{text}"
    else:
        first, rest = text[0], text[1:]
        text = f"{first}{'.' if rest else ''}{rest}e{'+' if n > 0 else '-'}{abs(n - 1)}"
    return "-" * sign + text
