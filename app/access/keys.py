"""The keys that a server asks for, as the file has them at the moment."""

import hmac
import logging
import time
from collections.abc import Callable
from pathlib import Path

from oubli.app.access.key_file import FILE_NAME, PREFIX, AccessKey, KeyFileError, hashed, now_ms, read_keys

SECONDS_BETWEEN_LOOKS = 1.0
LEAST_BETWEEN_LOOKS = 0.05  # seconds, while unknown keys are given
_PREFIX = PREFIX.encode("ascii")
_UNREAD = (-1,)
_NO_DIGEST = bytes(32)

log = logging.getLogger("oubli.access")


class AccessKeys:
    """The keys that a server asks for.

    Once it has seen a key it asks for one until it ends: a file that is removed or damaged opens nothing.

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
        self._seen: tuple[int, ...] | None = None
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
        # Always compared, so that the time taken tells nobody which ids there are.
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
                log.error("%s %s: no key opens anything until it is mended", FILE_NAME, error)
            self._asked_for, keys, self._is_broken = True, (), True
            self._seen = _UNREAD  # it may have been for a lack of descriptors: looked at again
        else:
            self._is_broken = False
            if self._asked_for and not keys:
                log.error("%s holds no keys any more: no key opens anything until it does", FILE_NAME)
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
