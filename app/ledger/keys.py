"""The keys of the ledger: one that signs receipts, one that ids are hashed under, and those that came before.

They are outside of snapshots and of the ledger, in a directory that can be set. The newest key is current until it is
rotated. Signing keys that were retired keep their public half, which checks old receipts. Hashing keys that were
retired are kept whole: without them the ledger's hashes cannot be found again, so a restore could not drop what was
erased. One is destroyed only when no snapshot of its time is left.

A third key says where names are in the set tree. Nothing that is kept depends on it: when it is missing, another is
made, and with it another tree.

A server reads its keys when it starts. They are rotated and destroyed while no server runs.

Each key has a file: a few lines that say when it was made and retired, then the key.

    signing-<id>.pem    PKCS #8 while it signs; once retired, the public half alone
    hashing-<id>.key    64 hexadecimal digits
    hashing-<id>.gone   says that this key was destroyed on purpose, and when
    positions-<id>.key  64 hexadecimal digits

A key's id comes from the key itself, so that a file with another key's name is noticed. Files are for their owner only.
They are whole or not there: written beside their place, flushed, renamed.
"""

import base64
import contextlib
import hashlib
import hmac
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from oubli.app.errors import StartError
from oubli.app.storage.directory import flush_directory, make_directory, shred, write_private
from oubli.app.times import TimeError, parse_time, to_text

KEYS_NAME = "keys"  # of their directory in a data directory
SIGNING = "signing"
HASHING = "hashing"
_SUFFIXES = {SIGNING: ".pem", HASHING: ".key", "positions": ".key"}
_GONE = ".gone"
_ID_BYTES = 8
_SECRET_BYTES = 32
_RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw
_MOST_LISTED = 10  # files in a message


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs receipts.

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

    kind: ClassVar[str] = SIGNING
    id: str
    created_ms: int
    retired_ms: int | None
    public: bytes
    private: Ed25519PrivateKey | None

    @classmethod
    def new(cls, created_ms: int) -> Self:
        """Make a key."""
        private = Ed25519PrivateKey.generate()
        public = private.public_key().public_bytes(*_RAW)
        return cls(signing_key_id(public), created_ms, None, public, private)

    @classmethod
    def read(cls, text: str, created_ms: int, retired_ms: int | None) -> Self:
        """Return the key that `text` wrote; raises `ValueError` or `TypeError`."""
        private: Any = None
        if "PRIVATE KEY" in text:
            private = serialization.load_pem_private_key(text.encode("ascii"), None)
            public: Any = private.public_key()
        else:
            public = serialization.load_pem_public_key(text.encode("ascii"))
        if not isinstance(public, Ed25519PublicKey) or (private is None) != (retired_ms is not None):
            raise ValueError
        raw = public.public_bytes(*_RAW)
        return cls(signing_key_id(raw), created_ms, retired_ms, raw, private)

    def text(self) -> str:
        """Return the key as its file holds it."""
        if self.private is not None:
            pem = self.private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        else:
            pem = Ed25519PublicKey.from_public_bytes(self.public).public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        return pem.decode("ascii").strip()

    def retired(self, at_ms: int) -> Self:
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

    kind: ClassVar[str] = HASHING
    id: str
    created_ms: int
    retired_ms: int | None
    secret: bytes
    keyed: hmac.HMAC = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keyed", hmac.new(self.secret, digestmod="sha256"))

    @classmethod
    def new(cls, created_ms: int) -> Self:
        """Make a key."""
        return cls.read(secrets.token_bytes(_SECRET_BYTES).hex(), created_ms, None)

    @classmethod
    def read(cls, text: str, created_ms: int, retired_ms: int | None) -> Self:
        """Return the key that `text` wrote; raises `ValueError`."""
        secret = bytes.fromhex(text.strip())
        if len(secret) != _SECRET_BYTES:
            raise ValueError
        known = hashlib.sha256(f"oubli {cls.kind} key\0".encode("ascii") + secret).digest()[:_ID_BYTES].hex()
        return cls(known, created_ms, retired_ms, secret)

    def text(self) -> str:
        """Return the key as its file holds it."""
        return self.secret.hex()

    def retired(self, at_ms: int) -> Self:
        """Return the key as one that only finds old hashes again."""
        return replace(self, retired_ms=at_ms)


@dataclass(frozen=True, slots=True)
class PositionsKey(HashingKey):
    """A key that says where names are in the set tree."""

    kind: ClassVar[str] = "positions"


K = TypeVar("K", SigningKey, HashingKey, PositionsKey)


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


def _path_of(directory: Path, kind: str, key_id: str) -> Path:
    """Return where a key is kept."""
    return directory / f"{kind}-{key_id}{_SUFFIXES[kind]}"


def files_of(directory: Path, kind: str) -> list[Path]:
    """Return the files with keys of a kind.

    Raises
    ------
    OSError
        When the directory is there and cannot be read: `Path.glob` would find nothing in it.
    """
    try:
        paths = list(directory.iterdir())
    except FileNotFoundError:
        return []
    return sorted(path for path in paths if path.match(f"{kind}-*{_SUFFIXES[kind]}"))


def _write_key(directory: Path, key: SigningKey | HashingKey) -> None:
    """Write a key, replacing what its file held; on the disk when this returns. A failure leaves the file as it was."""
    lines = [f"Created: {to_text(key.created_ms)}"]
    if key.retired_ms is not None:
        lines.append(f"Retired: {to_text(key.retired_ms)}")
    content = "\n".join([*lines, "", key.text(), ""]).encode("ascii")
    write_private(_path_of(directory, key.kind, key.id), content)


def _read_key(path: Path, of: type[K]) -> K:
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
                f"the key file {path} can be read or written by others (mode {mode:o}): run `chmod 600 {path}`. If "
                "somebody could have read it, rotate the key with `oubli ledger rotate-keys`"
            )
        head, _, text = path.read_bytes().decode("ascii").partition("\n\n")
        times = dict(line.split(": ", 1) for line in head.splitlines())
        retired_ms = parse_time(times["Retired"]) if "Retired" in times else None
        key = of.read(text, parse_time(times["Created"]), retired_ms)
        if _path_of(path.parent, key.kind, key.id) != path:
            raise ValueError
    except OSError as error:
        raise StartError(f"the key file {path} cannot be read ({error.strerror}): check its owner") from None
    except (ValueError, TypeError, KeyError, TimeError, UnsupportedAlgorithm, InternalError):
        raise StartError(f"the key file {path} is damaged: restore it from a backup") from None
    return key


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
        of_kinds = ((SIGNING, self.signing), (HASHING, self.hashing))
        return [f"{kind}-{key_id}{_SUFFIXES[kind]}" for kind, ids in of_kinds for key_id in sorted(ids)]


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
        self._signing = self._read(SigningKey)
        self._hashing = self._read(HashingKey)
        self._positions = self._read(PositionsKey)
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
            with self._errors():
                make_directory(self._directory)
        self._signing = self._usable(self._signing, SigningKey)
        self._hashing = self._usable(self._hashing, HashingKey)
        self._positions = self._usable(self._positions, PositionsKey)

    def require(self, named: KeyNames) -> None:
        """Raise when keys are missing that a ledger names.

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
                "Without hashing keys the server cannot tell which ids were erased, so that erased samples could be "
                "added or restored again; without signing keys receipts cannot be checked. Restore these files from a "
                "backup, or name their directory with --key-dir. To do without them for good, start once with "
                "--accept-missing keys"
            )

    def missing(self, named: KeyNames) -> KeyNames:
        """Return those of some keys that are not here and were not destroyed on purpose."""
        notes = [] if self._directory is None else self._directory.glob(f"{HASHING}-*{_GONE}")
        gone = {path.stem.removeprefix(f"{HASHING}-") for path in notes}
        return named - KeyNames({key.id for key in self._signing}, {key.id for key in self._hashing} | gone)

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
        if kind == SIGNING:
            return self._rotate(self._signing, SigningKey, not_before_ms)
        return self._rotate(self._hashing, HashingKey, not_before_ms)

    def destroy_hashing_key(self, key_id: str, restorable_since: int | None) -> None:
        """Destroy a retired hashing key: from then on the hashes that were made with it cannot be found again.

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
                "a snapshot from the time of this hashing key can still be restored, and only the key shows what was "
                "erased since: write two newer snapshots (POST /model/scrub), then try again"
            )
        if self._directory is not None:
            path = _path_of(self._directory, key.kind, key.id)
            with self._errors():
                # The note is first, so that a process that is killed in between leaves no key that looks lost.
                write_private(path.with_suffix(_GONE), f"Destroyed: {to_text(self._now_ms())}\n".encode("ascii"))
                shred(path)
                flush_directory(self._directory)
        self._hashing.remove(key)

    def _rotate(self, keys: list[K], of: type[K], not_before_ms: int) -> str:
        at_ms = max(self._now_ms(), not_before_ms, keys[0].created_ms + 1)  # decides which key is the newest
        # The new key is there before the old one goes: killed in between, the next start retires the old one.
        new = self._kept(of.new(at_ms))
        keys[:1] = [new, self._kept(keys[0].retired(at_ms))]
        return new.id

    def _read(self, of: type[K]) -> list[K]:
        with self._errors():
            paths = [] if self._directory is None else files_of(self._directory, of.kind)
        return [_read_key(path, of) for path in paths]

    def _usable(self, keys: list[K], of: type[K]) -> list[K]:
        """Return the keys, the current one first and made if need be; only it is not retired."""
        keys = sorted(keys, key=lambda key: (key.retired_ms is None, key.created_ms, key.id), reverse=True)
        if not keys or keys[0].retired_ms is not None:
            keys.insert(0, self._kept(of.new(self._now_ms())))
        # More than one is left where a rotation was cut short.
        usable = keys[:1]
        for key in keys[1:]:
            usable.append(key if key.retired_ms is not None else self._kept(key.retired(keys[0].created_ms)))
        return usable

    def _kept(self, key: K) -> K:
        if self._directory is not None:
            with self._errors():
                _write_key(self._directory, key)
        return key

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StartError(
                f"the key directory {self._directory} cannot be used ({error.strerror}): give --key-dir a directory "
                "that this user may write"
            ) from None
