"""Names of an erasure as its entry tells them: the root of a small tree over hidden leaves.

    opening of an erasure   HMAC(hashing key, "opening" | receipt)     made again as long as the key exists
    opening of a name       HMAC(opening of the erasure, by | name)    handed to the person
    leaf                    SHA-256(0x00 | opening of the name | by | name)
    root                    of all leaves in order, as RFC 6962 defines it

Whoever has the opening of one name can find its leaf, and no other. Without one nobody can test guesses.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING

from oubli.app.ledger.tree import EMPTY_ROOT, hash_leaf, hash_node

if TYPE_CHECKING:
    from oubli.app.ledger.entries import By
    from oubli.app.ledger.key_files import HashingKey


def opening_of(key: HashingKey, receipt_id: str) -> bytes:
    """Return the opening of an erasure."""
    code = key.keyed.copy()
    code.update(b"opening\0" + receipt_id.encode("ascii"))
    return code.digest()


def leaves_of(opening: bytes, by: By, names: Iterable[str]) -> list[bytes]:
    """Return the leaves of some names, in order."""
    start = by.encode("ascii") + b"\0"
    hidden = (start + text.encode("utf-8") for text in names)
    leaves = [hash_leaf(hmac.new(opening, name, "sha256").digest() + name) for name in hidden]
    return sorted(set(leaves)) if len(leaves) > 1 else leaves


def root_of(leaves: list[bytes]) -> str:
    """Return the root of a tree, in hexadecimal."""
    if not leaves:
        return EMPTY_ROOT.hex()
    level = leaves
    while len(level) > 1:
        # The last one of an odd number goes up as it is: the same tree as that of RFC 6962.
        pairs = [hash_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = [*pairs, *level[2 * len(pairs) :]]
    return level[0].hex()


def as_text(leaves: list[bytes]) -> str:
    """Return leaves as one text in base64."""
    return base64.b64encode(b"".join(leaves)).decode("ascii")
