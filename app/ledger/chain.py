"""The entries of the ledger and the chain that their hashes make.

    entry 1                entry 2                entry 3
    index     1            index     2            index     3
    previous  000...   +-- previous  ab1...   +-- previous  7f0...
    type, at, ...      |   type, at, ...      |   type, at, ...
    hash      ab1... --+   hash      7f0... --+   hash      c52...

`hash` is the SHA-256, in hexadecimal, of the RFC 8785 form of everything else in the entry. Types of entries:

    signing-key   a key that signs receipts from here on, with its public half
    unlearned     one erasure: its receipt, the counts, keyed hashes of the samples and of what was named
    erased        the receipts whose samples are in no file any more
    carried-over  an entry of another chain, whole, after an operator went on without the entries before it
    accepted-missing-key    a key that an operator went on without
    others        events, such as `restore` or `export`, with numbers and words of this program
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oubli.app.ledger.canonical import CanonicalError, canonical
from oubli.app.times import TimeError, parse_time

FIRST_PREVIOUS = "0" * 64
SIGNING_KEY = "signing-key"
UNLEARNED = "unlearned"
ERASED = "erased"
CARRIED_OVER = "carried-over"
ACCEPTED = "accepted-missing-erasures"
ACCEPTED_KEY = "accepted-missing-key"
EVENT_TYPE = re.compile(r"[a-z][a-z0-9-]{0,63}")

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of a ledger; index 0 when it has none."""

    index: int
    hash: str


EMPTY = Head(0, FIRST_PREVIOUS)


class ChainError(Exception):
    """An entry is not what was written, or not in its place.

    Parameters
    ----------
    index
        Which entry.
    rule
        What does not hold; without anything out of the entry.
    """

    def __init__(self, index: int, rule: str) -> None:
        super().__init__(f"entry {index} {rule}")
        self.index = index
        self.rule = rule


def make_entry(head: Head, kind: str, at: str, fields: Mapping[str, Any]) -> Entry:
    """Return the entry that follows the head.

    Parameters
    ----------
    head
        Of the chain so far.
    kind
        Its type.
    at
        When, in RFC 3339.
    fields
        What it says.
    """
    entry: Entry = {"index": head.index + 1, "previous": head.hash, "type": kind, "at": at, **fields}
    entry["hash"] = hashlib.sha256(canonical(entry)).hexdigest()
    return entry


def head_of(entry: Mapping[str, Any]) -> Head:
    """Return the head of a chain that ends with an entry."""
    return Head(entry["index"], entry["hash"])


def body_of(entry: Mapping[str, Any]) -> bytes:
    """Return what an entry's hash is made of.

    Raises
    ------
    CanonicalError
        When the entry holds what no entry may.
    """
    return canonical({name: value for name, value in entry.items() if name != "hash"})


def check_entry(entry: Any, head: Head) -> bytes:
    """Check that an entry is whole and follows the head; return what its hash is made of.

    Raises
    ------
    ChainError
        When it is not.
    """
    index = head.index + 1
    body = check_whole(entry, index)
    if entry["index"] != index:
        raise ChainError(index, "is missing, or is not in its place")
    if entry["previous"] != head.hash:
        raise ChainError(index, "does not follow the one before: that one is another, or was changed")
    return body


def check_whole(entry: Any, index: int) -> bytes:
    """Check that an entry is one, and has its own hash; return what the hash is made of.

    Raises
    ------
    ChainError
        With the index given when it is not.
    """
    if not isinstance(entry, dict) or not {"index", "previous", "type", "at", "hash"}.issubset(entry):
        raise ChainError(index, "is no entry")
    texts = (entry["previous"], entry["type"], entry["at"], entry["hash"])
    if type(entry["index"]) is not int or not all(type(text) is str for text in texts):
        raise ChainError(index, "is no entry")
    try:
        body = body_of(entry)
    except CanonicalError:
        raise ChainError(index, "holds what no entry may hold") from None
    if hashlib.sha256(body).hexdigest() != entry["hash"]:
        raise ChainError(index, "was changed: its hash is not that of its content")
    return body


def moment_of(entry: Mapping[str, Any]) -> int:
    """Return when an entry was made, in milliseconds since 1970.

    Raises
    ------
    ChainError
        When it does not say so.
    """
    try:
        return parse_time(entry["at"])
    except TimeError:
        raise ChainError(entry["index"], "has no time") from None


def original_of(entry: Entry) -> Entry:
    """Return the entry that was carried over, or the entry itself."""
    if entry["type"] != CARRIED_OVER:
        return entry
    original: Entry = entry["entry"]
    return original
