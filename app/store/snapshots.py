"""Snapshots: the model in a file, two generations of them.

A new snapshot is written beside the old ones, flushed, read back and compared, and only then takes its name; only
after that the third oldest goes. So at every instant a sound file holds the model as it was at the newest or the
second newest snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.errors import NoSnapshotError, StartError, StorageError
from app.model import ServedModel, load_model, read_notes
from app.store.directory import DataDirectory, storage_errors
from core.errors import FileError, NewerFormatError

GENERATIONS = 2
_NAME = re.compile(r"snapshot-(\d{8,})\.safetensors")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a snapshot file."""

    id: str
    model_version: int
    digest: str
    bytes: int
    created_at: datetime
    path: Path
    next_id: int
    lineage: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Recovered:
    """A model read from a snapshot at start, with what a person should be told about it."""

    model: ServedModel
    snapshot: Snapshot
    notes: tuple[str, ...]


class SnapshotStore:
    """The snapshot files of a data directory.

    Parameters
    ----------
    directory
        An open data directory.
    """

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._newest: Snapshot | None = None

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot.

        Raises
        ------
        NoSnapshotError
            When none was written or recovered yet.
        """
        if self._newest is None:
            raise NoSnapshotError
        return self._newest

    def newest_version(self) -> int | None:
        """Return the model version of the newest snapshot, None when there is none."""
        return None if self._newest is None else self._newest.model_version

    def holds_model(self) -> bool:
        """Whether the directory holds a model, readable or not."""
        return bool(self._files())

    def recover(self) -> Recovered:
        """Read the newest snapshot, or the one before when the newest is damaged.

        Raises
        ------
        StartError
            When no snapshot can be read, or the newest needs a newer version of Oubli.
        """
        problems: list[str] = []
        for path in self._files():
            try:
                snapshot = describe(path, read_notes(path))
                model = load_model(path)
            except (FileError, OSError) as error:
                if isinstance(error, NewerFormatError):
                    # Falling back would lose what the newer version learned and unlearned.
                    raise StartError(f"{path}: {error.rule}") from None
                problems.append(f"{path.name} cannot be read: {_rule(error)}")
                continue
            self._newest = snapshot
            notes = [*problems]
            if problems:
                written = f"{snapshot.created_at:%Y-%m-%d %H:%M} UTC"
                notes.append(f"fell back to {path.name}, written {written}: later changes are lost")
            return Recovered(model, snapshot, tuple(notes))
        raise StartError(
            f"no snapshot in {self._directory.path} can be read. " + "; ".join(problems) + ". Restore the files from a "
            "backup, or start with another --data-dir (or an empty one) to train again"
        )

    def write(self, model: ServedModel, *, model_version: int, next_id: int, lineage: str, epoch: int) -> Snapshot:
        """Write a snapshot of a model without lazy tags that nobody changes meanwhile.

        Raises
        ------
        StorageError
            When it cannot be written or read back; the files that were there are untouched.
        """
        number = max(map(_number, self._files()), default=0) + 1
        name = f"snapshot-{number:08d}.safetensors"
        extra = {
            "snapshot_id": f"{number:08d}",
            "model_version": str(model_version),
            "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "next_id": str(next_id),
            "lineage": lineage,
            "epoch": str(epoch),
        }
        with storage_errors(), self._directory.temporary() as temporary:
            model.save(temporary, extra=extra)
            temporary.chmod(0o600)
            try:
                notes = read_notes(temporary, whole=True)
            except FileError:
                raise StorageError("the snapshot read back is damaged") from None
            path = self._directory.publish(temporary, name)
            self._newest = describe(path, notes)
            self._directory.remove(self._files()[GENERATIONS:])
        return self._newest

    def _files(self) -> list[Path]:
        """Return the snapshot files, newest first."""
        files = [path for path in self._directory.path.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(files, key=_number, reverse=True)


def describe(path: Path, notes: Mapping[str, str]) -> Snapshot:
    """Read a snapshot's metadata; a model file that the service did not write has version 0 and no lineage.

    Raises
    ------
    FileError
        When it is there and makes no sense.
    """
    size = path.stat()
    try:
        epoch = notes.get("epoch")
        created_at = notes.get("created_at")
        return Snapshot(
            id=notes.get("snapshot_id", ""),
            model_version=int(notes.get("model_version", "0")),
            digest=notes.get("digest", ""),
            bytes=size.st_size,
            created_at=datetime.fromisoformat(created_at) if created_at else datetime.fromtimestamp(size.st_mtime, UTC),
            path=path,
            next_id=int(notes.get("next_id", "0")),
            lineage=notes.get("lineage", ""),
            epoch=None if epoch is None else int(epoch),
        )
    except ValueError:
        raise FileError("its metadata is damaged: take another copy of the file") from None


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("snapshot-"))


def _rule(error: FileError | OSError) -> str:
    return error.rule if isinstance(error, FileError) else (error.strerror or "input/output error")
