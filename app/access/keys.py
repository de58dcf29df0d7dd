"""API keys: the file that keeps their hashes, and the keys that a running server accepts.

A key reads ``oubli_<id>_<secret>``. The id finds its record; the secret is 256 random bits, of which the file keeps the
SHA-256. The file is useless to its readers, and no slower hash is needed because the secret cannot be guessed.
`oubli keys` writes the file; the server only reads it. A mark beside it says that there are keys: where the file is
gone and the mark is not, the server refuses every request.
"""

import contextlib
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from oubli.app.access.scopes import ADMIN, ALL_SCOPES, SCOPES
from oubli.app.errors import StartError
from oubli.app.storage.directory import flush_directory, write_private
from oubli.app.times import parse_time, to_text

FILE_NAME = "access-keys.json"
MARK_NAME = "access-keys-mark"
_RESTORE = (
    f"restore it from a backup, or remove it and make new keys with `oubli keys create`; without it and {MARK_NAME} no "
    "key is asked for"
)
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


class KeyFileError(StartError):
    """The file is damaged or cannot be read; the text holds neither its directory nor its content."""


def read_keys(path: Path) -> tuple[AccessKey, ...]:
    """Return the keys in a file, none when it and its mark are not there.

    Raises
    ------
    KeyFileError
        When it is gone, cannot be read, or was not written by `write_keys`.
    """
    try:
        content = orjson.loads(path.read_bytes())
        if content["format"] != _FORMAT:
            raise KeyFileError(f"{FILE_NAME} was written by another version of Oubli: {_RESTORE}")
        keys = tuple(map(_from_record, content["keys"]))
    except FileNotFoundError:
        if (path.parent / MARK_NAME).exists():
            raise KeyFileError(f"{FILE_NAME} is gone, so that there are no keys any more: {_RESTORE}") from None
        return ()
    except PermissionError:
        raise KeyFileError(
            f"{FILE_NAME} cannot be read: permission denied for the user that runs the server, see to its owner and "
            "its permissions"
        ) from None
    except OSError as error:
        raise KeyFileError(
            f"{FILE_NAME} cannot be read ({error.strerror}): see to what keeps it, and try again"
        ) from None
    except (ValueError, TypeError, KeyError):  # the parser's error is a ValueError
        raise KeyFileError(f"{FILE_NAME} is damaged: {_RESTORE}") from None
    if len({key.id for key in keys}) != len(keys):
        raise KeyFileError(f"{FILE_NAME} is damaged: {_RESTORE}")
    return keys


def write_keys(path: Path, keys: Collection[AccessKey]) -> None:
    """Replace the file: whole, for its owner only, and on the disk with its mark when this returns."""
    content = orjson.dumps({"format": _FORMAT, "keys": [*map(_to_record, keys)]}, option=orjson.OPT_INDENT_2)
    write_private(path, content)
    leave_mark(path)


def leave_mark(path: Path) -> None:
    """Note beside the file that it has keys; on the disk when this returns."""
    mark = path.parent / MARK_NAME
    if not mark.exists():
        mark.touch(0o600)
    flush_directory(path.parent)


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
        keys = read_keys(path) if path.exists() else ()
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


SECONDS_BETWEEN_LOOKS = 0.5
LEAST_BETWEEN_LOOKS = 0.05  # seconds, while unknown keys are given
_PREFIX = PREFIX.encode("ascii")
_UNREAD = (-1,)
_NO_DIGEST = bytes(32)

log = logging.getLogger("oubli.access")


class AccessKeys:
    """The keys that a server asks for.

    Once it has seen a key it asks for one until it ends, and a mark beside the file has later servers do so: a file
    that is removed or damaged opens nothing.

    Parameters
    ----------
    path
        The file; None when there is no data directory.
    now_ms
        The time, for keys that expire.
    monotonic
        Seconds, for the time between two looks at the file.

    Attributes
    ----------
    epoch
        A number that grows when what was decided about a key may be different now; as of the last `look`.
    monotonic
        As given.
    look_at
        From when on, in seconds of `monotonic`, `look` has to be called before `epoch` is read.
    """

    def __init__(
        self, path: Path | None, *, now_ms: Callable[[], int] = now_ms, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._now_ms = now_ms
        self.monotonic = monotonic
        self._keys: dict[bytes, AccessKey] = {}
        self._grants: dict[bytes, frozenset[str]] = {}
        self._asked_for = False
        self._is_broken = False
        self._seen: tuple[int, ...] | None = _UNREAD
        self._next_expiry: int | None = None
        self.epoch = 0
        self.look_at = float("-inf")
        self._next_look = float("-inf")
        self.look()

    @property
    def asked_for(self) -> bool:
        """Whether callers must send a key."""
        self.look()
        return self._asked_for

    def all(self) -> list[AccessKey]:
        """Return what is kept of all keys, expired and revoked ones included."""
        self.look()
        return list(self._keys.values())

    def grants(self, given: bytes) -> frozenset[str] | None:
        """Return what a key allows; None when it is unknown, expired or revoked."""
        key = self.find(given)
        return None if key is None else self._grants[key.id.encode("ascii")]

    def find(self, given: bytes) -> AccessKey | None:
        """Return what is kept of a key; None when it is unknown, expired or revoked."""
        self.look()
        key = self._find(given)
        if key is None and self.monotonic() >= self._next_look - SECONDS_BETWEEN_LOOKS + LEAST_BETWEEN_LOOKS:
            self._next_look = float("-inf")  # it may have been made since the last look
            self.look()
            key = self._find(given)
        return key

    def _find(self, given: bytes) -> AccessKey | None:
        prefix, _, rest = given.partition(b"_")
        key_id, _, secret = rest.partition(b"_")
        key = self._keys.get(key_id)
        # Always compared, so that the time taken does not reveal which ids exist.
        is_known = hmac.compare_digest(hashed(secret), _NO_DIGEST if key is None else key.secret_sha256)
        if key is None or not is_known or prefix != _PREFIX or not key.is_live(self._now_ms()):
            return None
        return key

    def look(self) -> None:
        """Notice that a key has expired, and now and then that the file has changed."""
        if self._next_expiry is not None and self._now_ms() >= self._next_expiry:
            self._changed()  # at once: what was decided about this key holds no longer
        now = self.monotonic()
        if self._path is not None and now >= self._next_look:
            self._next_look = now + SECONDS_BETWEEN_LOOKS
            seen = _version_of(self._path)
            if seen != self._seen:
                self._seen = seen
                self._read(self._path)
        if self._next_expiry is not None:
            self.look_at = float("-inf")
        else:
            self.look_at = float("inf") if self._path is None else self._next_look

    def _read(self, path: Path) -> None:
        try:
            keys = read_keys(path)
        except KeyFileError as error:
            if not self._is_broken:
                log.error("no key opens anything: %s", error)
            self._asked_for, keys, self._is_broken = True, (), True
            self._seen = _UNREAD  # it may have been for a lack of descriptors: looked at again
        else:
            self._is_broken = False
            if self._asked_for and not keys:
                log.error("%s holds no keys any more: no key opens anything until it does", FILE_NAME)
            if keys and not self._asked_for:  # an earlier version has left none
                with contextlib.suppress(OSError):
                    leave_mark(path)
            self._asked_for = self._asked_for or bool(keys)
        self._keys = {key.id.encode("ascii"): key for key in keys}
        self._grants = {key_id: key.grants for key_id, key in self._keys.items()}
        self._changed()

    def forget_decisions(self) -> None:
        """Let nothing hold that was decided about a request before."""
        self.epoch += 1

    def _changed(self) -> None:
        self.forget_decisions()
        now = self._now_ms()
        ends = [key.expires_ms for key in self._keys.values() if key.expires_ms is not None and key.expires_ms > now]
        self._next_expiry = min(ends, default=None)


def _version_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file's content; None when it is not there."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
