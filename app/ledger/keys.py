"""The keys of the ledger: one that signs receipts, one that ids are hashed under, and those that came before.

They are outside of snapshots and of the ledger, in a directory that can be set; see `key_files`. The newest key is
current, until it is rotated. Signing keys that were retired keep their public half, which old receipts are checked
with. Hashing keys that were retired are kept whole: without them nobody can tell whose hashes the ledger holds, so that
a restore could not drop what was erased. One is destroyed only when no snapshot of its time is left.

A third key says where names are in the set tree. Nothing that is kept depends on it: when it is not there, another is
made, and the tree is another one then.

A server reads its keys when it starts. They are rotated and destroyed while none runs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from oubli.app.errors import StartError
from oubli.app.ledger.key_files import (
    HASHING,
    POSITIONS,
    SIGNING,
    HashingKey,
    PositionsKey,
    SigningKey,
    destroy_key,
    destroyed_in,
    file_names,
    files_of,
    new_hashing_key,
    new_positions_key,
    new_signing_key,
    read_key,
    write_key,
)
from oubli.app.storage.directory import make_directory

KEYS_NAME = "keys"  # of their directory in a data directory
K = TypeVar("K", SigningKey, HashingKey, PositionsKey)
_MOST_LISTED = 10  # files in a message


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class KeyNames:
    """Keys by their ids.

    Attributes
    ----------
    signing, hashing
        Of those that sign, and of those that ids are hashed under.
    """

    signing: set[str] = field(default_factory=set)
    hashing: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.signing or self.hashing)

    def __sub__(self, other: "KeyNames") -> "KeyNames":
        return KeyNames(self.signing - other.signing, self.hashing - other.hashing)

    def files(self) -> list[str]:
        """Return what their files are called."""
        return [*file_names(SIGNING, self.signing), *file_names(HASHING, self.hashing)]


class LedgerKeys:
    """The keys in a directory; what is not there yet is made.

    Parameters
    ----------
    directory
        Created, for the owner only, when it is not there. None: keys that are kept nowhere.
    now_ms
        The time, in milliseconds since 1970.
    complete
        Whether to make at once what is not there. Otherwise `complete` does, when it is known that nothing is lost;
        until then nothing can be signed or hashed.

    Raises
    ------
    StartError
        When the directory or a file in it cannot be used, or others may read a key.
    """

    def __init__(self, directory: Path | None, now_ms: Callable[[], int] = _wall_ms, *, complete: bool = True) -> None:
        self._directory = directory
        self._now_ms = now_ms
        self._signing = self._read(SIGNING, SigningKey)
        self._hashing = self._read(HASHING, HashingKey)
        self._positions = self._read(POSITIONS, PositionsKey)
        if complete:
            self.complete()

    def complete(self) -> None:
        """Make the keys that are not there yet, and finish a rotation that was cut short.

        Raises
        ------
        StartError
            When that cannot be written.
        """
        if self._directory is not None:
            try:
                make_directory(self._directory)
            except OSError as error:
                raise self._unusable(error) from None
        self._signing = self._usable(self._signing, new_signing_key)
        self._hashing = self._usable(self._hashing, new_hashing_key)
        self._positions = self._usable(self._positions, new_positions_key)

    def require(self, named: KeyNames) -> None:
        """Refuse to go on when keys are missing that a ledger names.

        Raises
        ------
        StartError
            With the names of their files.
        """
        missing = self.missing(named)
        if missing:
            files = missing.files()
            listed = ", ".join(files[:_MOST_LISTED]) + (", ..." if len(files) > _MOST_LISTED else "")
            raise StartError(
                f"the ledger names keys that are not in the key directory {self._directory}: {listed}. "
                "Without hashing keys nobody can tell which ids were erased, so that erased samples could be added or "
                "restored again; without signing keys receipts cannot be checked. Restore these files from a backup, "
                "or name their directory with --key-dir. To go on without them for good, start once with "
                "--accept-missing-keys"
            )

    def missing(self, named: KeyNames) -> KeyNames:
        """Return those of some keys that are not here and were not destroyed on purpose."""
        gone = set() if self._directory is None else destroyed_in(self._directory)
        here = KeyNames({key.id for key in self._signing}, {key.id for key in self._hashing} | gone)
        return named - here

    @property
    def signing(self) -> SigningKey:
        """The key that signs."""
        return self._signing[0]

    def public_keys(self) -> list[dict[str, Any]]:
        """Return the public halves, the current one first."""
        return [key.describe() for key in self._signing]

    @property
    def all_signing(self) -> tuple[SigningKey, ...]:
        """The keys that sign or signed, the current one first."""
        return tuple(self._signing)

    @property
    def hashing(self) -> tuple[HashingKey, ...]:
        """The keys that ids are or were hashed under, the current one first."""
        return tuple(self._hashing)

    @property
    def positions(self) -> PositionsKey:
        """The key that says where names are in the set tree."""
        return self._positions[0]

    def signer(self, key_id: str) -> SigningKey:
        """Return the key with this id if it can sign, else the current one."""
        for key in self._signing:
            if key.id == key_id and key.private is not None:
                return key
        return self.signing

    def rotate(self, kind: Literal["signing", "hashing"], not_before_ms: int = 0) -> str:
        """Make a new key current and retire the one before; return the new one's id.

        Parameters
        ----------
        kind
            Which.
        not_before_ms
            The highest time that was written down: the old key was in use then, whatever the clock says now.

        Raises
        ------
        StartError
            When it cannot be written.
        """
        if kind == "signing":
            return self._rotate(self._signing, new_signing_key, not_before_ms)
        return self._rotate(self._hashing, new_hashing_key, not_before_ms)

    def destroy_hashing_key(self, key_id: str, restorable_since: int | None) -> None:
        """Destroy a retired hashing key: from then on nobody can tell whose hashes were made with it.

        Parameters
        ----------
        key_id
            Which.
        restorable_since
            When the oldest snapshot was written that may still be restored, in milliseconds since 1970; None when
            there is none.

        Raises
        ------
        StartError
            When there is no such key, it is in use, or a snapshot of its time can be restored.
        """
        key = next((key for key in self._hashing if key.id == key_id), None)
        if key is None:
            raise StartError("there is no hashing key with this id: see the files in the key directory")
        if key.retired_ms is None:
            raise StartError("this hashing key is in use: run `oubli ledger rotate-keys hashing` first")
        if restorable_since is not None and restorable_since <= key.retired_ms:
            raise StartError(
                "a snapshot from the time of this hashing key can still be restored, and only the key tells what was "
                "erased since: write two newer snapshots first (POST /model/scrub), then try again"
            )
        if self._directory is not None:
            try:
                destroy_key(self._directory, key, self._now_ms())
            except OSError as error:
                raise self._unusable(error) from None
        self._hashing.remove(key)

    def _rotate(self, keys: list[K], make: Callable[[int], K], not_before_ms: int) -> str:
        at_ms = max(self._now_ms(), not_before_ms, keys[0].created_ms + 1)  # decides which key is the newest
        # The new key is there before the old one goes: killed in between, the next start retires the old one.
        new = self._kept(make(at_ms))
        keys[:1] = [new, self._retired(keys[0], at_ms)]
        return new.id

    def _read(self, kind: str, of: type[K]) -> list[K]:
        paths = [] if self._directory is None else files_of(self._directory, kind)
        return [key for path in paths if isinstance(key := read_key(path, kind), of)]

    def _usable(self, keys: list[K], make: Callable[[int], K]) -> list[K]:
        """Return the keys, the current one first and made if need be; only it is not retired."""
        keys = sorted(keys, key=lambda key: (key.retired_ms is None, key.created_ms, key.id), reverse=True)
        if not keys or keys[0].retired_ms is not None:
            keys.insert(0, self._kept(make(self._now_ms())))
        # More than one is left where a rotation was cut short.
        usable = keys[:1]
        for key in keys[1:]:
            usable.append(key if key.retired_ms is not None else self._retired(key, keys[0].created_ms))
        return usable

    def _retired(self, key: K, at_ms: int) -> K:
        return self._kept(key.retired(at_ms))

    def _kept(self, key: K) -> K:
        if self._directory is not None:
            try:
                write_key(self._directory, key)
            except OSError as error:
                raise self._unusable(error) from None
        return key

    def _unusable(self, error: OSError) -> StartError:
        return StartError(
            f"the key directory {self._directory} cannot be used ({error.strerror}): give --key-dir a directory that "
            "this user may write"
        )
