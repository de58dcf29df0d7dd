"""Snapshot files on their way in: kept on the disk until they are restored, under no name.

A file without a name is gone with the process, whatever ends it. While it is open it can hold samples that were erased
since it was written, so an erasure is not finished before it is gone: one that comes in for too long is dropped. A file
that is whole is restored without what was erased; see `rebuild`.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from oubli.app.errors import UploadError
from oubli.app.service.erasure.holders import Holders
from oubli.app.storage.directory import TEMPORARY, flush_directory

_CHUNK = 4 * 2**20  # bytes that are written to the file at once, in a thread


@dataclass(frozen=True, slots=True)
class UploadPolicy:
    """How long an upload may take.

    Attributes
    ----------
    pause
        Most seconds between two pieces.
    deadline
        Most seconds in all.
    """

    pause: float = 30.0
    deadline: float = 3600.0


class Upload:
    """One file that comes in.

    Attributes
    ----------
    path
        Opens the file, as long as the upload is open.
    """

    def __init__(self, file: BinaryIO, holders: Holders, policy: UploadPolicy) -> None:
        self.path = Path(f"/dev/fd/{file.fileno()}")
        self._file = file
        self._policy = policy
        self._receiving: asyncio.Future[int] | None = None
        self._hold = holders.hold("uploads", self._end)

    async def take(self, stream: AsyncIterator[bytes]) -> int:
        """Write the file as it comes in, so that it is never in memory as a whole; return its length.

        Raises
        ------
        UploadError
            When it takes too long, or could hold what was erased since it began.
        OSError
            When it cannot be written.
        """
        if self._hold.is_ended:
            raise UploadError("erased")
        self._receiving = asyncio.ensure_future(self._receive(stream))
        try:
            return await self._receiving
        except TimeoutError:
            raise UploadError("slow") from None
        except asyncio.CancelledError:
            if self._hold.is_ended:
                raise UploadError("erased") from None
            raise
        finally:
            self._receiving = None

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        self._hold.let_go()

    async def _receive(self, stream: AsyncIterator[bytes]) -> int:
        length = 0
        buffer = bytearray()
        end_at = time.monotonic() + self._policy.deadline
        try:
            while True:
                async with asyncio.timeout(min(self._policy.pause, max(end_at - time.monotonic(), 0))):
                    chunk = await anext(stream, None)
                if chunk is None:
                    break
                length += len(chunk)
                buffer += chunk
                if len(buffer) >= _CHUNK:
                    await self._write(buffer)
                    _empty(buffer)
            if buffer:
                await self._write(buffer)
            self._file.seek(0)  # where opening it by its number shares the place
        finally:
            _empty(buffer)
        return length

    async def _write(self, buffer: bytearray) -> None:
        """Write a piece; returns when the thread has, also when this is cancelled: the file is closed after it."""
        writing = asyncio.ensure_future(asyncio.to_thread(_write_all, self._file, buffer))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise

    def _end(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()


class Uploads:
    """Opens files for uploads.

    Parameters
    ----------
    directory
        Where they are; None: where temporary files are.
    holders
        The registry.
    policy
        How long they may take.
    """

    def __init__(self, directory: Path | None, holders: Holders, policy: UploadPolicy) -> None:
        self._directory = directory
        self._holders = holders
        self._policy = policy

    @contextmanager
    def open(self) -> Iterator[Upload]:
        """Open a file for the length of the block.

        Raises
        ------
        OSError
            When it cannot be made.
        """
        upload = Upload(_nameless_file(self._directory), self._holders, self._policy)
        try:
            yield upload
        finally:
            upload.close()


def _nameless_file(directory: Path | None) -> BinaryIO:
    """Make a file whose name is gone before anything is in it, also after a power loss."""
    prefix, suffix = TEMPORARY.split("{}")
    descriptor, name = tempfile.mkstemp(dir=directory, prefix=prefix, suffix=suffix)
    try:
        Path(name).unlink(missing_ok=True)  # `remove_unfinished` may have come first, in its thread
        if directory is not None:
            flush_directory(directory)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "w+b", buffering=0)


def _write_all(file: BinaryIO, buffer: bytearray) -> None:
    with memoryview(buffer) as rest:
        done = 0
        while done < len(rest):
            done += file.write(rest[done:])


def _empty(buffer: bytearray) -> None:
    """Overwrite a buffer before it is freed."""
    buffer[:] = bytes(len(buffer))
    buffer.clear()
