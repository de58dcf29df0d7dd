"""Snapshots."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oubli.client.messages import Flow, NextChunk, Request, Work
from oubli.client.operations.requests import posting, reading
from oubli.client.results import Restored, Snapshot, read
from oubli.client.session import Session


def snapshot(session: Session) -> Flow[Snapshot]:
    """Have the server write a snapshot now, and return what is known of it."""
    return read(Snapshot, (yield from session.ask(posting("/snapshot"))))


def newest_snapshot(session: Session) -> Flow[Snapshot]:
    """Return what is known of the newest snapshot.

    Raises
    ------
    NotFoundError, EphemeralError
        When there is none.
    """
    # Its version is that of the time when it was written, which says nothing about the model.
    return read(Snapshot, (yield from session.ask(reading("/snapshot"))))


def download_snapshot(session: Session, path: str | os.PathLike[str]) -> Flow[int]:
    """Download the newest snapshot and return its size.

    It holds every sample: the file can be read by its owner alone. It is there when all of it has arrived, and not
    before; one of the same name is overwritten then.

    Parameters
    ----------
    path : path
        Of the file.
    """
    target = Path(path)
    partial = target.with_name(target.name + ".part")
    answer = yield from session.exchange(Request("GET", "/snapshot/file", is_streamed=True))
    file = yield Work(lambda: _private(partial))
    try:
        while (chunk := (yield NextChunk(answer.stream))) is not None:
            yield Work(lambda chunk=chunk: file.write(chunk))  # type: ignore[misc]
        size: int = yield Work(lambda: _finish(file, partial, target))
        return size
    finally:
        file.close()
        partial.unlink(missing_ok=True)


def restore_snapshot(session: Session, path: str | os.PathLike[str]) -> Flow[Restored]:
    """Replace the model by that of a snapshot file, less what was erased, rectified or expired since.

    Parameters
    ----------
    path : path
        Of the file.

    Returns
    -------
    Restored
    """
    answer = yield from session.ask(Request("PUT", "/snapshot/file", body=Path(path)))
    return read(Restored, answer)


def _private(path: Path) -> Any:
    """Open a new file that only its owner can read."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _finish(file: Any, partial: Path, target: Path) -> int:
    """Give a file that is whole its name, on the disk as well, and return its size."""
    file.flush()
    os.fsync(file.fileno())
    size = int(file.tell())
    partial.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size
