"""One key, and the file that keeps it: a few lines that say when it was made and retired, then the key.

    signing-<id>.pem    PKCS #8 while it signs; once retired, the public half alone
    hashing-<id>.key    64 hexadecimal digits
    hashing-<id>.gone   says that this key was destroyed on purpose, and when
    positions-<id>.key  64 hexadecimal digits

A key's id comes from the key itself, so that a file with another key's name is noticed. Files are for their owner only.
They are whole or not there: written beside their place, flushed, renamed.
"""

import base64
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from oubli.app.errors import StartError
from oubli.app.storage.directory import flush_directory
from oubli.app.times import TimeError, parse_time, to_text

SIGNING = "signing"
HASHING = "hashing"
POSITIONS = "positions"
_SUFFIXES = {SIGNING: ".pem", HASHING: ".key", POSITIONS: ".key"}
_GONE = ".gone"
_ID_BYTES = 8
_SECRET_BYTES = 32
_RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key of receipts.

    Attributes
    ----------
    id
        Of the public half.
    created_ms, retired_ms
        From when to when it signed; None while it does.
    public
        The public half.
    private
        None when it was retired.
    """

    id: str
    created_ms: int
    retired_ms: int | None
    public: bytes
    private: Ed25519PrivateKey | None

    def retired(self, at_ms: int) -> "SigningKey":
        """Return the public half alone."""
        return replace(self, private=None, retired_ms=at_ms)

    def describe(self) -> dict[str, Any]:
        """Return what everybody may know."""
        return {
            "key_id": self.id,
            "algorithm": "Ed25519",
            "public_key": base64.b64encode(self.public).decode("ascii"),
            "status": "current" if self.retired_ms is None else "retired",
            "created_at": to_text(self.created_ms),
            "retired_at": None if self.retired_ms is None else to_text(self.retired_ms),
        }


@dataclass(frozen=True, slots=True)
class HashingKey:
    """A key that ids and subjects are hashed under.

    Attributes
    ----------
    id
        Tells nothing about the key.
    created_ms, retired_ms
        From when to when hashes were made with it; None while they are.
    secret
        The key.
    keyed
        An HMAC-SHA256 with the key and no content yet: a copy takes less time than a new one.
    """

    id: str
    created_ms: int
    retired_ms: int | None
    secret: bytes
    keyed: hmac.HMAC = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keyed", hmac.new(self.secret, digestmod="sha256"))

    def retired(self, at_ms: int) -> Self:
        """Return the key as one that only finds old hashes again."""
        return replace(self, retired_ms=at_ms)


@dataclass(frozen=True, slots=True)
class PositionsKey(HashingKey):
    """A key that says where names are in the set tree."""


Key = SigningKey | HashingKey


def new_signing_key(created_ms: int) -> SigningKey:
    """Make a key of receipts."""
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(*_RAW)
    return SigningKey(signing_key_id(public), created_ms, None, public, private)


def new_hashing_key(created_ms: int) -> HashingKey:
    """Make a key that ids are hashed under."""
    secret = secrets.token_bytes(_SECRET_BYTES)
    return HashingKey(_secret_key_id(HASHING, secret), created_ms, None, secret)


def new_positions_key(created_ms: int) -> PositionsKey:
    """Make a key of the set tree."""
    secret = secrets.token_bytes(_SECRET_BYTES)
    return PositionsKey(_secret_key_id(POSITIONS, secret), created_ms, None, secret)


def signing_key_id(public: bytes) -> str:
    """Return the id of a public key."""
    return hashlib.sha256(public).digest()[:_ID_BYTES].hex()


def is_signed(public: bytes, signature: str, content: bytes) -> bool:
    """Whether a signature in base64 is that of a content by the owner of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(base64.b64decode(signature, validate=True), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def path_of(directory: Path, key: Key) -> Path:
    """Return where a key is kept."""
    kind = SIGNING if isinstance(key, SigningKey) else POSITIONS if isinstance(key, PositionsKey) else HASHING
    return directory / f"{kind}-{key.id}{_SUFFIXES[kind]}"


def files_of(directory: Path, kind: str) -> list[Path]:
    """Return the files with keys of a kind."""
    return sorted(directory.glob(f"{kind}-*{_SUFFIXES[kind]}"))


def destroyed_in(directory: Path) -> set[str]:
    """Return the ids of the hashing keys that were destroyed on purpose."""
    return {path.stem.removeprefix(f"{HASHING}-") for path in directory.glob(f"{HASHING}-*{_GONE}")}


def file_names(kind: str, key_ids: Iterable[str]) -> list[str]:
    """Return what the files of keys are called."""
    return [f"{kind}-{key_id}{_SUFFIXES[kind]}" for key_id in sorted(key_ids)]


def write_key(directory: Path, key: Key) -> None:
    """Write a key, replacing what its file held; on the disk when this returns.

    Raises
    ------
    OSError
        When that fails; what the file held before is there then.
    """
    lines = [f"Created: {to_text(key.created_ms)}"]
    if key.retired_ms is not None:
        lines.append(f"Retired: {to_text(key.retired_ms)}")
    _write(path_of(directory, key), "\n".join([*lines, "", _text_of(key), ""]))


def _write(path: Path, text: str) -> None:
    directory = path.parent
    temporary = directory / f".{secrets.token_hex(8)}.tmp"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_directory(directory)


def destroy_key(directory: Path, key: HashingKey, at_ms: int) -> None:
    """Overwrite a hashing key's file and remove it, both on the disk when this returns; a note says that it is gone.

    Raises
    ------
    OSError
        When that fails.
    """
    path = path_of(directory, key)
    # First, so that nobody who is killed in between leaves a key that looks lost.
    _write(path.with_suffix(_GONE), f"Destroyed: {to_text(at_ms)}\n")
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    flush_directory(directory)


def read_key(path: Path, kind: str) -> Key:
    """Read a key's file.

    Raises
    ------
    StartError
        When others may read it, or it is no such file.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise StartError(
                f"the key file {path} can be read or written by others (mode {mode:o}): run `chmod 600 {path}`, and "
                "rotate the key with `oubli ledger rotate-keys` if somebody could have read it"
            )
        text = path.read_bytes().decode("ascii")
        key = _parse(text, kind)
        if path_of(path.parent, key) != path:
            raise ValueError
    except OSError as error:
        raise StartError(f"the key file {path} cannot be read ({error.strerror}): see to its owner") from None
    except (ValueError, TypeError, KeyError, TimeError):
        raise StartError(f"the key file {path} is damaged: restore it from a backup") from None
    return key


def _text_of(key: Key) -> str:
    if isinstance(key, HashingKey):
        return key.secret.hex()
    if key.private is not None:
        pem = key.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    else:
        pem = Ed25519PublicKey.from_public_bytes(key.public).public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    return pem.decode("ascii").strip()


def _parse(text: str, kind: str) -> Key:
    """Read what `write_key` wrote; `ValueError`, `TypeError` or `KeyError` when it is not that."""
    head, _, body = text.partition("\n\n")
    times = dict(line.split(": ", 1) for line in head.splitlines())
    created = parse_time(times["Created"])
    retired = parse_time(times["Retired"]) if "Retired" in times else None
    if kind != SIGNING:
        secret = bytes.fromhex(body.strip())
        if len(secret) != _SECRET_BYTES:
            raise ValueError
        key_type = HashingKey if kind == HASHING else PositionsKey
        return key_type(_secret_key_id(kind, secret), created, retired, secret)
    pem = body.encode("ascii")
    private: Any = None
    if "PRIVATE KEY" in body:
        private = serialization.load_pem_private_key(pem, None)
        public: Any = private.public_key()
    else:
        public = serialization.load_pem_public_key(pem)
    if not isinstance(public, Ed25519PublicKey) or (private is None) != (retired is not None):
        raise ValueError
    raw = public.public_bytes(*_RAW)
    return SigningKey(signing_key_id(raw), created, retired, raw, private)


def _secret_key_id(kind: str, secret: bytes) -> str:
    return hashlib.sha256(f"oubli {kind} key\0".encode("ascii") + secret).digest()[:_ID_BYTES].hex()
