"""The keys of the journal's segments: what PostgreSQL keeps can be read with them only.

    <key directory>/segments/<id>.key    64 hexadecimal digits

A segment's records are unreadable everywhere, in tables, in write-ahead logs and in backups of them, as soon as its key
is destroyed. So these files belong in no backup that outlives an erasure. They are whole or not there: written beside
their place, flushed, renamed.
"""

import re
import secrets
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from oubli.app.errors import StartError
from oubli.app.storage.directory import TEMPORARY, flush_directory, make_directory, shred, write_private

SEGMENT_KEYS_NAME = "segments"  # of their directory in the key directory
_SECRET_BYTES = 32
_ID_BYTES = 8
_ID = re.compile(r"[0-9a-f]{16}")
_SUFFIX = ".key"


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The key of one segment.

    Attributes
    ----------
    id
        Tells nothing about the key.
    secret
        32 bytes.
    """

    id: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id) or len(self.secret) != _SECRET_BYTES:
            raise ValueError("a key of a segment has an id of 16 hexadecimal digits and 32 bytes")


class SegmentKeys:
    """The keys of segments in a directory. What the files hold is the truth, so any thread may ask.

    Parameters
    ----------
    directory
        Created, for the owner only, when it is not there.

    Raises
    ------
    StartError
        When it cannot be used, or others may read it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            make_directory(directory)
            mode = stat.S_IMODE(directory.stat().st_mode)
            if mode & 0o077:
                raise StartError(
                    f"the directory {directory} with the journal's keys can be read by others (mode {mode:o}): run "
                    f"`chmod 700 {directory}`"
                )
            for path in directory.glob(TEMPORARY.format("*")):  # of a process that was killed while it wrote
                shred(path)
        except OSError as error:
            raise StartError(
                f"the directory {directory} cannot be used ({error.strerror}): give --key-dir a directory that this "
                "user may write"
            ) from None

    def new(self) -> SegmentKey:
        """Make a key; its file is on the disk when this returns.

        Raises
        ------
        OSError
            When it cannot be written.
        """
        key = SegmentKey(secrets.token_hex(_ID_BYTES), secrets.token_bytes(_SECRET_BYTES))
        self.add(key)
        return key

    def add(self, key: SegmentKey) -> None:
        """Keep a key; its file is on the disk when this returns.

        Raises
        ------
        OSError
            When it cannot be written.
        """
        write_private(self._path(key.id), key.secret.hex().encode("ascii"))

    def get(self, key_id: str) -> SegmentKey | None:
        """Return a key; None when it is not here.

        Raises
        ------
        StartError
            When its file is damaged.
        OSError
            When it cannot be read.
        """
        path = self._path(key_id)
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            return SegmentKey(key_id, bytes.fromhex(text.decode("ascii")))
        except ValueError:
            raise StartError(f"the key file {path} is damaged: restore it from another node") from None

    def fetched(self, key_id: str, fetch: Callable[[str], bytes | None]) -> SegmentKey | None:
        """Return a key, which is fetched and kept when it is not here; None when no node has it.

        Raises
        ------
        StartError
            When its file is damaged.
        OSError
            When it cannot be read or written.
        """
        key = self.get(key_id)
        secret = fetch(key_id) if key is None else None
        if secret is not None:
            key = SegmentKey(key_id, secret)
            self.add(key)
        return key

    def ids(self) -> list[str]:
        """Return the ids of all keys that are here.

        Raises
        ------
        OSError
            When the directory cannot be read.
        """
        paths = self._directory.iterdir()  # `glob` would find nothing where it may not read
        return sorted(path.stem for path in paths if path.suffix == _SUFFIX and _ID.fullmatch(path.stem))

    def destroy(self, ids: Iterable[str]) -> None:
        """Overwrite the files of keys and remove them, both on the disk when this returns; unknown ids are passed over.

        Raises
        ------
        OSError
            When that fails; it can be tried again.
        """
        paths = [path for path in map(self._path, ids) if path.exists()]
        for path in paths:
            shred(path)
        if paths:
            flush_directory(self._directory)

    def _path(self, key_id: str) -> Path:
        if not _ID.fullmatch(key_id):  # it comes from a table, or from another node
            raise ValueError("an id of a key has 16 hexadecimal digits")
        return self._directory / f"{key_id}{_SUFFIX}"
