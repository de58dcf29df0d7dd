"""Checkpoints (c2sp.org/tlog-checkpoint): the size and the root of a log, signed by it and cosigned by witnesses.

A policy (c2sp.org/tlog-policy) says whom to trust: keys of logs, keys of witnesses, and how many witnesses must have
cosigned. `check_since` compares a downloaded ledger with a checkpoint that was kept: no entry up to it was altered,
removed or inserted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from oubli.verifier.canonical import canonical
from oubli.verifier.merkle import HASH_BYTES, Frontier, hash_leaf
from oubli.verifier.notes import (
    COSIGNATURE,
    ED25519,
    FailedError,
    Note,
    UncheckableError,
    VerifierKey,
    decode_or_fail,
    is_signed,
    read_decimal,
    read_key,
    read_note,
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of a log.

    Attributes
    ----------
    origin
        Which log.
    size
        How many entries it has.
    root
        Of its tree.
    note
        With its signatures, as it was read.
    """

    origin: str
    size: int
    root: bytes
    note: Note


def read_checkpoint(text: str) -> Checkpoint:
    """Return a checkpoint; no signature is checked.

    Raises
    ------
    FailedError
        When it is none.
    """
    note = read_note(text)
    lines = note.text.split("\n")[:-1]
    if len(lines) < 3 or not all(lines):
        raise FailedError("format", "a checkpoint has three lines: origin, size, root")
    size, root = read_decimal(lines[1], "the size in the checkpoint"), decode_or_fail(lines[2], "the root")
    if len(root) != HASH_BYTES:
        raise FailedError("format", "the root in the checkpoint is none")
    return Checkpoint(lines[0], size, root, note)


def check_signature(checkpoint: Checkpoint, keys: tuple[VerifierKey, ...]) -> VerifierKey:
    """Return the first of some keys of logs that has signed a checkpoint of its log.

    Raises
    ------
    FailedError
        When none has.
    """
    of_origin = [key for key in keys if key.name == checkpoint.origin]
    if not of_origin:
        raise FailedError("log", f"the log {checkpoint.origin} is none of those that the policy trusts")
    signed = [key for key in of_origin if is_signed(checkpoint.note, key)]
    if not signed:
        raise FailedError("log-signature", f"no key that the policy trusts has signed for the log {checkpoint.origin}")
    return signed[0]


def check_checkpoint(checkpoint: Checkpoint, policy: Policy) -> list[str]:
    """Check a checkpoint; return the names of the witnesses that have cosigned it.

    Raises
    ------
    FailedError
        When the log has not signed it, or too few witnesses have.
    UncheckableError
        When the policy names no log.
    """
    if not policy.logs:
        raise UncheckableError("the policy names no log: add a line 'log KEY'")
    check_signature(checkpoint, policy.logs)
    cosigned = [name for name, key in policy.witnesses.items() if is_signed(checkpoint.note, key)]
    if not policy.is_met(set(cosigned)):
        raise FailedError(
            "quorum", f"too few witnesses have cosigned the checkpoint: {', '.join(cosigned) or 'none of them'}"
        )
    return cosigned


# What is delivered beside an entry, and not hashed.
_BESIDE = frozenset({"hash", "keyed"})


def check_since(entries: Iterable[Any], checkpoint: Checkpoint, policy: Policy | None = None) -> int:
    """Check that a ledger continues from a checkpoint; return how many entries it has.

    Parameters
    ----------
    entries
        From the first one on.
    checkpoint
        That was kept.
    policy
        Whom to trust; None: the checkpoint is trusted as it is, because it was kept in a safe place.

    Raises
    ------
    FailedError
        When it does not, or the checkpoint is not that of a log that is trusted.
    """
    if policy is not None:
        check_checkpoint(checkpoint, policy)
    frontier = Frontier()
    root = frontier.root() if checkpoint.size == 0 else None
    for entry in entries:
        body = _body(entry, frontier.size + 1)
        frontier.add(hash_leaf(body))
        if frontier.size == checkpoint.size:
            root = frontier.root()
    if root is None:
        raise FailedError(
            "truncated",
            f"the ledger has {frontier.size} entries, and the checkpoint was signed over {checkpoint.size}: entries "
            "were cut off, or the download is older than the checkpoint",
        )
    if root != checkpoint.root:
        raise FailedError(
            "rewritten",
            f"the first {checkpoint.size} entries are others than those that the checkpoint was signed over",
        )
    return frontier.size


def _body(entry: Any, index: int) -> bytes:
    """Return the bytes that an entry's hash and leaf are of: JSON in the form of RFC 8785."""
    if not isinstance(entry, dict) or entry.get("index") != index:
        raise FailedError("entry", f"entry {index} is missing, or is not in its place")
    content = {name: value for name, value in entry.items() if name not in _BESIDE}
    try:
        body = canonical(content)
    except ValueError:
        raise FailedError("entry", f"entry {index} holds what no entry may hold") from None
    if hashlib.sha256(body).hexdigest() != entry.get("hash"):
        raise FailedError("entry", f"entry {index} was changed: its hash is not that of its content")
    return body


_NONE = "none"


@dataclass(frozen=True, slots=True)
class Policy:
    """Whom to trust.

    Attributes
    ----------
    logs
        Keys of logs; any of them will do.
    witnesses
        Keys of witnesses, by name in the policy.
    groups
        Of each group: how many of its members must have cosigned, and the members.
    quorum
        The witness or group that must have cosigned; `none` asks for no witness.
    urls
        Where witnesses are asked, by name; those that have an address.
    """

    logs: tuple[VerifierKey, ...]
    witnesses: dict[str, VerifierKey]
    groups: dict[str, tuple[int, tuple[str, ...]]]
    quorum: str
    urls: dict[str, str] = field(default_factory=dict)

    def is_met(self, cosigned: set[str]) -> bool:
        """Whether the witnesses that have cosigned are enough."""
        return self.quorum == _NONE or self._holds(self.quorum, cosigned)

    def _holds(self, name: str, cosigned: set[str]) -> bool:
        if name not in self.groups:
            return name in cosigned
        needed, members = self.groups[name]
        return sum(self._holds(member, cosigned) for member in members) >= needed


class _Reader:
    """Reads a policy line by line."""

    def __init__(self) -> None:
        self.logs: list[VerifierKey] = []
        self.witnesses: dict[str, VerifierKey] = {}
        self.groups: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.urls: dict[str, str] = {}
        self.quorum: str | None = None
        self._members: set[str] = set()

    def take(self, words: list[str]) -> None:
        """Take in a line; `ValueError` with the rule when it is not one of a policy."""
        kind, rest = words[0], words[1:]
        if kind == "log" and len(rest) in (1, 2):
            self.logs.append(self._key(rest[0], ED25519, [one.public for one in self.logs]))
        elif kind == "witness" and len(rest) in (2, 3):
            self._define(rest[0])
            known = [one.public for one in self.witnesses.values()]
            self.witnesses[rest[0]] = self._key(rest[1], COSIGNATURE, known)
            if len(rest) == 3:
                self.urls[rest[0]] = rest[2]
        elif kind == "group" and len(rest) >= 3:
            self._define(rest[0])
            self.groups[rest[0]] = (self._threshold(rest[1], len(rest) - 2), tuple(map(self._member, rest[2:])))
        elif kind == "quorum" and len(rest) == 1:
            if self.quorum is not None:
                raise ValueError("there is more than one quorum")
            if rest[0] != _NONE:
                self._known(rest[0])
            self.quorum = rest[0]
        else:
            raise ValueError("it is none of: log KEY, witness NAME KEY, group NAME NUMBER NAME..., quorum NAME")

    def _key(self, text: str, kind: int, known: list[bytes]) -> VerifierKey:
        try:
            key = read_key(text)
        except ValueError:
            raise ValueError("its key is not written as name+id+base64") from None
        if key.type != kind:
            raise ValueError("its key is not of the type that signs such things (1: logs, 4: witnesses)")
        if key.public in known:
            raise ValueError("its key was given before")
        return key

    def _define(self, name: str) -> None:
        if name == _NONE or name in self.witnesses or name in self.groups:
            raise ValueError("its name is taken")

    def _known(self, name: str) -> None:
        if name not in self.witnesses and name not in self.groups:
            raise ValueError("it names a witness or group that no line before defines")

    def _member(self, name: str) -> str:
        self._known(name)
        if name in self._members:
            raise ValueError("it names a witness or group that is in a group already")
        self._members.add(name)
        return name

    def _threshold(self, text: str, n: int) -> int:
        if text in ("any", "all"):
            return 1 if text == "any" else n
        if not (text.isascii() and text.isdigit()) or text.startswith("0") or int(text) > n:
            raise ValueError("its number is not 'any', 'all', or from 1 to the number of its members")
        return int(text)


def read_policy(content: bytes) -> Policy:
    """Return the policy in a file.

    Raises
    ------
    UncheckableError
        When it is none, with the line.
    """
    reader = _Reader()
    if any(byte < 0x20 and byte not in (0x09, 0x0A) for byte in content) or 0x7F in content:
        raise UncheckableError("the policy holds a control character: only tabs and newlines may be in it")
    # Names are bytes to a policy: this keeps all of them apart.
    for number, line in enumerate(content.decode("utf-8", "surrogateescape").split("\n"), 1):
        words = line.replace("\t", " ").strip(" ")
        if not words or words.startswith("#"):
            continue
        try:
            reader.take([word for word in words.split(" ") if word])
        except ValueError as error:
            raise UncheckableError(f"line {number} of the policy cannot be used: {error}") from None
    if reader.quorum is None:
        raise UncheckableError("the policy has no line 'quorum': write 'quorum none' to ask for no witness")
    return Policy(tuple(reader.logs), reader.witnesses, reader.groups, reader.quorum, reader.urls)
