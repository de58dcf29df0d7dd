"""Signed notes (c2sp.org/signed-note), keys in the form of such notes, and cosignatures (c2sp.org/tlog-cosignature).

    text, one or more lines
                                        an empty line
    — name base64(key id | signature)   one line a signature

Of all types of keys there are two here: Ed25519 for logs, and Ed25519 with a time for witnesses.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ED25519 = 1
COSIGNATURE = 4
_ID_BYTES = 4
_KEY_BYTES = 32
_SIGNATURE_BYTES = 64
_TIME_BYTES = 8
_MOST_SIGNATURES = 64
_NAME = re.compile(r"[^\s+]+")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}")

Rule = Literal[
    "format",
    "log",
    "log-signature",
    "quorum",
    "inclusion",
    "consistency",
    "entry",
    "receipt",
    "receipt-signature",
    "opening",
    "truncated",
    "rewritten",
    "state",
    "positions-key",
    "salted-digest",
    "version",
    "set-root",
    "digest",
    "tree-digests",
    "prediction-signature",
    "prediction",
    "name",
    "absence",
    "position",
    "set",
]
"""What a proof must keep to; `docs/how-to/proofs.md` and `docs/how-to/audit.md` explain each."""


class FailedError(Exception):
    """A proof does not hold.

    Parameters
    ----------
    rule
        The rule that is broken.
    text
        How, for a person.
    """

    def __init__(self, rule: Rule, text: str) -> None:
        super().__init__(text)
        self.rule = rule


class UncheckableError(Exception):
    """Nothing was checked: something is missing, or the policy is none. The text says what to do."""


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A public key as notes name it.

    Attributes
    ----------
    name
        Of who signs.
    id
        Four bytes, from name, type and key.
    type
        `ED25519` or `COSIGNATURE`.
    public
        The Ed25519 key.
    """

    name: str
    id: bytes
    type: int
    public: bytes

    def __str__(self) -> str:
        """Return it as it is written down."""
        key = base64.b64encode(bytes([self.type]) + self.public).decode("ascii")
        return f"{self.name}+{self.id.hex()}+{key}"


@dataclass(frozen=True, slots=True)
class Note:
    """A signed note, not checked.

    Attributes
    ----------
    text
        What is signed.
    signatures
        Names, ids of keys, and signatures.
    """

    text: str
    signatures: tuple[tuple[str, bytes, bytes], ...]


def key_of(name: str, kind: int, public: bytes) -> VerifierKey:
    """Return a public key with its id."""
    made = hashlib.sha256(name.encode("utf-8") + b"\n" + bytes([kind]) + public).digest()
    return VerifierKey(name, made[:_ID_BYTES], kind, public)


def read_key(text: str) -> VerifierKey:
    """Return the key that is written as `name+id+base64`.

    Raises
    ------
    ValueError
        When it is none, or of a type that is not known here.
    """
    # The key itself may hold a plus sign.
    name, _, rest = text.partition("+")
    known, _, encoded = rest.partition("+")
    raw = decode(encoded)
    if not _NAME.fullmatch(name) or len(raw) != 1 + _KEY_BYTES or raw[0] not in (ED25519, COSIGNATURE):
        raise ValueError
    key = key_of(name, raw[0], raw[1:])
    if key.id.hex() != known:
        raise ValueError
    return key


def read_note(text: str) -> Note:
    """Return a signed note; nothing of it is checked.

    Raises
    ------
    FailedError
        When it is none.
    """
    body, found, rest = text.rpartition("\n\n")
    lines = rest.split("\n")
    is_clean = all(one == "\n" or (one >= " " and not "\ud800" <= one <= "\udfff") for one in text)
    if not found or not rest.endswith("\n") or not is_clean:
        raise FailedError("format", "the checkpoint is no signed note")
    signatures = []
    for line in lines[:-1]:
        parts = line.split(" ")
        if len(parts) != 3 or parts[0] != "—" or not _NAME.fullmatch(parts[1]):
            raise FailedError("format", "a signature of the checkpoint is not written as signed notes have it")
        raw = decode_or_fail(parts[2], "a signature of the checkpoint")
        if len(raw) <= _ID_BYTES:
            raise FailedError("format", "a signature of the checkpoint is too short")
        signatures.append((parts[1], raw[:_ID_BYTES], raw[_ID_BYTES:]))
    if not signatures or len(signatures) > _MOST_SIGNATURES:
        raise FailedError("format", f"the checkpoint needs 1 to {_MOST_SIGNATURES} signatures")
    return Note(body + "\n", tuple(signatures))


def is_signed(note: Note, key: VerifierKey) -> bool:
    """Whether a key has signed a note.

    Raises
    ------
    FailedError
        When a signature is said to be of the key and is not.
    """
    times = signature_times(note, key)
    return bool(times)


def signature_times(note: Note, key: VerifierKey) -> list[int]:
    """Return the times, in seconds since 1970, of all signatures of a key; 0 where signatures have none.

    Raises
    ------
    FailedError
        When a signature is said to be of the key and is not.
    """
    found = []
    for name, known, signature in note.signatures:
        if (name, known) != (key.name, key.id):
            continue
        time, message = 0, note.text.encode("utf-8")
        if key.type == COSIGNATURE:
            time = int.from_bytes(signature[:_TIME_BYTES], "big")
            message = cosigned_message(note.text, time)
            signature = signature[_TIME_BYTES:]
        if len(signature) != _SIGNATURE_BYTES or not is_valid(key.public, signature, message):
            rule: Rule = "log-signature" if key.type == ED25519 else "quorum"
            raise FailedError(rule, f"the signature of {key.name} is not that of the checkpoint: something was changed")
        found.append(time)
    return found


def cosigned_message(text: str, time: int) -> bytes:
    """Return what a witness signs."""
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def is_valid(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether an Ed25519 signature is that of a message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def decode(text: str) -> bytes:
    """Return the bytes of a text in base64; `ValueError` when it is none, or not in its one form."""
    try:
        raw = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError from None
    if base64.b64encode(raw).decode("ascii") != text:
        raise ValueError
    return raw


def decode_or_fail(text: str, what: str) -> bytes:
    """Return the bytes of a text in base64."""
    try:
        return decode(text)
    except ValueError:
        raise FailedError("format", f"{what} is not base64") from None


def read_decimal(text: str, what: str) -> int:
    """Return a number that is written without sign and leading zeros."""
    if not _DECIMAL.fullmatch(text):
        raise FailedError("format", f"{what} is no number")
    return int(text)
