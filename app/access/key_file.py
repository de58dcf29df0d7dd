"""The file of API keys: what is needed to know a key again, and not the key.

A key reads ``oubli_<id>_<secret>``. The id finds its record, the secret is 256 random bits, and the file keeps their
SHA-256: whoever reads the file can do nothing with it, and nothing slower than SHA-256 is needed where there is nothing
to guess. `oubli keys` writes the file; the server only reads it, see `keys`.
"""

import fcntl
import hashlib
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from oubli.app.access.scopes import ADMIN, ALL_SCOPES, SCOPES
from oubli.app.times import parse_time, to_text

FILE_NAME = "access-keys.json"
PREFIX = "oubli"
_FORMAT = 1
_ID = re.compile(r"[0-9a-f]{8}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FIELDS = {"id", "name", "scopes", "created_at", "expires_at", "revoked_at", "secret_sha256"}


@dataclass(frozen=True, slots=True)
class AccessKey:
    """What is kept of a key; times are milliseconds since 1970.

    Attributes
    ----------
    id
        Eight hexadecimal digits.
    name
        What it is for; no personal data.
    scopes
        As they were given; see `grants`.
    secret_sha256
        Of the secret.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None
    secret_sha256: bytes

    @property
    def grants(self) -> frozenset[str]:
        """Everything that the key allows."""
        return ALL_SCOPES if ADMIN in self.scopes else frozenset(self.scopes)

    def is_live(self, now_ms: int) -> bool:
        """Whether the key opens anything."""
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


class KeyFileError(Exception):
    """The file is damaged or cannot be read; the text says how, without its content."""


def read_keys(path: Path) -> tuple[AccessKey, ...]:
    """Return the keys in a file, none when it is not there.

    Raises
    ------
    KeyFileError
        When it cannot be read, or was not written by `write_keys`.
    """
    try:
        content = orjson.loads(path.read_bytes())
        if content["format"] != _FORMAT:
            raise KeyFileError("was written by another version of Oubli")
        keys = tuple(map(_from_record, content["keys"]))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise KeyFileError(f"cannot be read ({error.strerror})") from None
    except (ValueError, TypeError, KeyError):  # the parser's error is a ValueError
        raise KeyFileError("is damaged") from None
    if len({key.id for key in keys}) != len(keys):
        raise KeyFileError("is damaged")
    return keys


def write_keys(path: Path, keys: Collection[AccessKey]) -> None:
    """Replace the file: whole, for its owner only, and on the disk when this returns."""
    content = orjson.dumps({"format": _FORMAT, "keys": [*map(_to_record, keys)]}, option=orjson.OPT_INDENT_2)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_directory(path.parent)


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Keep other writers of the key file out; the server's own lock is another one, so that it may run."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def create_key(path: Path, *, name: str, scopes: Collection[str], expires_ms: int | None) -> tuple[AccessKey, str]:
    """Add a key to the file; return its record and its text, which is nowhere else.

    Raises
    ------
    KeyFileError
        When the file cannot be read.
    """
    secret = secrets.token_hex(32)
    with alone(path.parent):
        keys = read_keys(path)
        taken = {key.id for key in keys}
        key_id = next(drawn for drawn in iter(lambda: secrets.token_hex(4), None) if drawn not in taken)
        key = AccessKey(
            id=key_id,
            name=name,
            scopes=tuple(scope for scope in SCOPES if scope in scopes),
            created_ms=now_ms(),
            expires_ms=expires_ms,
            revoked_ms=None,
            secret_sha256=hashed(secret.encode("ascii")),
        )
        write_keys(path, [*keys, key])
    return key, f"{PREFIX}_{key_id}_{secret}"


def revoke_key(path: Path, key_id: str) -> AccessKey | None:
    """Revoke a key and return its record, None when there is none of this id; one that was revoked before stays so.

    Raises
    ------
    KeyFileError
        When the file cannot be read.
    """
    with alone(path.parent):
        keys = read_keys(path)
        found = next((key for key in keys if key.id == key_id), None)
        if found is None or found.revoked_ms is not None:
            return found
        revoked = replace(found, revoked_ms=now_ms())
        write_keys(path, [revoked if key is found else key for key in keys])
    return revoked


def is_name(text: str) -> bool:
    """Whether a text may be a key's name: short, and too poor in signs for an address."""
    return _NAME.fullmatch(text) is not None


def hashed(secret: bytes) -> bytes:
    """Return the SHA-256 of a secret."""
    return hashlib.sha256(secret).digest()


def now_ms() -> int:
    """Return the time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _from_record(record: dict[str, Any]) -> AccessKey:
    """Read a record; `ValueError`, `TypeError` or `KeyError` when it is none."""
    texts = (record["id"], record["name"], record["secret_sha256"])
    fits = all(pattern.fullmatch(text) for pattern, text in zip((_ID, _NAME, _DIGEST), texts, strict=True))
    scopes = tuple(record["scopes"])
    if not fits or set(record) != _FIELDS or not scopes or not ALL_SCOPES.issuperset(scopes):
        raise ValueError
    return AccessKey(
        id=record["id"],
        name=record["name"],
        scopes=scopes,
        created_ms=parse_time(record["created_at"]),
        expires_ms=_moment(record["expires_at"]),
        revoked_ms=_moment(record["revoked_at"]),
        secret_sha256=bytes.fromhex(record["secret_sha256"]),
    )


def _to_record(key: AccessKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": list(key.scopes),
        "created_at": to_text(key.created_ms),
        "expires_at": None if key.expires_ms is None else to_text(key.expires_ms),
        "revoked_at": None if key.revoked_ms is None else to_text(key.revoked_ms),
        "secret_sha256": key.secret_sha256.hex(),
    }


def _moment(value: Any) -> int | None:
    return None if value is None else parse_time(value)


def _flush_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
