"""The digest of a model: what it is and the digests of its trees, hashed together."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any


def canonical_text(value: Any) -> str:
    """Text of a label that tells any two values of a type apart on every platform."""
    return value.hex() if isinstance(value, float) else str(value)


def named_classes(values: Iterable[Any]) -> list[list[str]]:
    """Classes by type and text, for a header."""
    return [[type(value).__name__, canonical_text(value)] for value in values]


def model_digest(header: dict[str, Any], tree_digests: list[str]) -> str:
    """SHA-256 of the header's canonical JSON and the trees' digests, hexadecimal.

    header : all but the trees that decides a prediction.
    """
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    lines = [text, *tree_digests]
    return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()
