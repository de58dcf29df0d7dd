"""What the log signs and answers as text: checkpoints, cosignatures of witnesses, proofs (c2sp.org).

    oubli.example/1f0c33...          origin: name of the server, and a random id of the log
    42                               size
    qINS1GRFHWHwdkUeqLEoP4yEMkTBBzxB root, base64
                                     an empty line
    — oubli.example/1f0c33... Xk4... signature of the log, then those of witnesses

`oubli.verifier` reads all of this with code of its own.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

if TYPE_CHECKING:
    from oubli.app.ledger.key_files import SigningKey

_LOG_KEY = b"\x01"
_WITNESS_KEY = b"\x04"
_ID_BYTES = 4
_TIME_BYTES = 8
_LINE = re.compile(r"— (\S+) (\S+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of the log, signed.

    Attributes
    ----------
    origin
        Which log.
    size
        How many entries it has.
    note
        The text with its signatures.
    """

    origin: str
    size: int
    note: str

    @property
    def text(self) -> str:
        """What is signed."""
        return self.note.rpartition("\n\n")[0] + "\n"

    @property
    def root(self) -> bytes:
        """Of the tree."""
        return _decode(self.text.split("\n")[2])


def sign_checkpoint(origin: str, size: int, root: bytes, key: SigningKey) -> Checkpoint:
    """Return a signed checkpoint; the same head has the same bytes whenever it is signed. `ValueError`: key retired."""
    if key.private is None:
        raise ValueError("a retired key signs nothing")
    text = f"{origin}\n{size}\n{_base64(root)}\n"
    signature = _key_id(origin, _LOG_KEY, key.public) + key.private.sign(text.encode("utf-8"))
    return Checkpoint(origin, size, f"{text}\n— {origin} {_base64(signature)}\n")


def read_checkpoint(note: str) -> Checkpoint:
    """Return a checkpoint that was signed here. `ValueError` when it is none."""
    origin, size, *_ = note.split("\n", 2)
    return Checkpoint(origin, int(size), note)


def is_own(note: str, keys: Sequence[SigningKey]) -> bool:
    """Whether one of our keys has signed a checkpoint of the log that it names."""
    text, _, lines = note.rpartition("\n\n")
    text += "\n"
    origin = text.partition("\n")[0]
    for name, encoded in _LINE.findall(lines):
        raw = _decode(encoded)
        for key in keys:
            if (
                name == origin
                and raw[:_ID_BYTES] == _key_id(origin, _LOG_KEY, key.public)
                and _is_valid(key.public, raw[_ID_BYTES:], text)
            ):
                return True
    return False


def log_key(origin: str, public: bytes) -> str:
    """Return a key of the log as policies and witnesses take it."""
    return f"{origin}+{_key_id(origin, _LOG_KEY, public).hex()}+{_base64(_LOG_KEY + public)}"


@dataclass(frozen=True, slots=True)
class WitnessKey:
    """The key of a witness.

    Attributes
    ----------
    name
        Of the witness.
    public
        Ed25519.
    """

    name: str
    public: bytes

    def cosignatures(self, checkpoint: Checkpoint, lines: str) -> list[str]:
        """Return those of some lines that are a valid cosignature of a checkpoint by this key."""
        found = []
        for line in lines.split("\n"):
            parts = _LINE.fullmatch(line)
            if parts is None or parts[1] != self.name:
                continue
            raw = _decode(parts[2])
            time = int.from_bytes(raw[_ID_BYTES : _ID_BYTES + _TIME_BYTES], "big")
            message = f"cosignature/v1\ntime {time}\n{checkpoint.text}"
            known = raw[:_ID_BYTES] == _key_id(self.name, _WITNESS_KEY, self.public)
            if known and _is_valid(self.public, raw[_ID_BYTES + _TIME_BYTES :], message):
                found.append(line)
        return found


def read_witness_key(text: str) -> WitnessKey:
    """Return the key that is written as `name+id+base64`. `ValueError` when it is none of a witness."""
    name, known, encoded = text.split("+", 2)
    raw = _decode(encoded)
    if not name or len(raw) != 33 or raw[:1] != _WITNESS_KEY or _key_id(name, _WITNESS_KEY, raw[1:]).hex() != known:
        raise ValueError
    return WitnessKey(name, raw[1:])


def with_cosignatures(checkpoint: Checkpoint, lines: Sequence[str]) -> Checkpoint:
    """Return a checkpoint with further signatures."""
    return Checkpoint(checkpoint.origin, checkpoint.size, checkpoint.note + "".join(f"{line}\n" for line in lines))


def proof_text(extra: dict[str, Any], index: int, path: Sequence[bytes], checkpoint: Checkpoint) -> str:
    """Return a proof that an entry is in the log (c2sp.org/tlog-proof)."""
    lines = ["c2sp.org/tlog-proof@v1", f"extra {_base64(orjson.dumps(extra))}", f"index {index}", *hash_lines(path)]
    return "\n".join([*lines, "", checkpoint.note])


def hash_lines(hashes: Sequence[bytes]) -> list[str]:
    """Return hashes as texts in base64."""
    return [_base64(one) for one in hashes]


def _key_id(name: str, kind: bytes, public: bytes) -> bytes:
    return hashlib.sha256(name.encode("utf-8") + b"\n" + kind + public).digest()[:_ID_BYTES]


def _is_valid(public: bytes, signature: bytes, text: str) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text.encode("utf-8"))
    except (InvalidSignature, ValueError):
        return False
    return True


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _decode(text: str) -> bytes:
    """Return the bytes of a text in base64; none when it is not."""
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return b""
