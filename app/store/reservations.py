"""High-water marks: what was given out once is never given out again, crash or not.

Samples live in memory until a snapshot is written, so a crash takes the newest of them along. Their generated ids and
the model versions that were answered must not come back with another meaning. Before they are given out, a block of
them is therefore reserved in a small file that is flushed to the disk; after a crash counting goes on above the
reserved blocks. A snapshot holds the exact counts, so the marks can be set back to them as soon as it is written.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from app.errors import StartError
from app.store.directory import DataDirectory

FILE_NAME = "reserved.json"
BLOCK = 10_000  # one flush for so many; a crash skips at most so many


@dataclass(frozen=True, slots=True)
class Marks:
    """The first generated id that is still free, and the highest model version that may have been answered."""

    next_id: int = 0
    model_version: int = 0

    def covers(self, other: Marks) -> bool:
        """Whether nothing of `other` lies above these marks."""
        return other.next_id <= self.next_id and other.model_version <= self.model_version

    def highest(self, other: Marks) -> Marks:
        """Return the higher of each."""
        return Marks(max(self.next_id, other.next_id), max(self.model_version, other.model_version))


class Reservations:
    """The marks of a data directory, or of nothing when there is none.

    Parameters
    ----------
    directory
        Where to keep them; None when nothing is kept.
    """

    def __init__(self, directory: DataDirectory | None) -> None:
        self._directory = directory
        self.marks = Marks() if directory is None else _read(directory.path / FILE_NAME)

    def covers(self, needed: Marks) -> bool:
        """Whether `needed` may be given out without a write."""
        return self._directory is None or self.marks.covers(needed)

    def reserve(self, needed: Marks) -> None:
        """Make room for `needed` and a block beyond it; returns when it is on the disk."""
        if not self.covers(needed):
            highest = self.marks.highest(needed)
            self._write(Marks(highest.next_id + BLOCK, highest.model_version + BLOCK))

    def settle(self, exact: Marks) -> None:
        """Set the marks to what a snapshot on the disk holds."""
        if self._directory is not None and self.marks != exact:
            self._write(exact)

    def _write(self, marks: Marks) -> None:
        if self._directory is None:
            return
        with self._directory.temporary() as path:
            path.write_text(json.dumps({"format": 1, **asdict(marks)}) + "\n", encoding="ascii")
            self._directory.publish(path, FILE_NAME)
        self.marks = marks


def _read(path: Path) -> Marks:
    try:
        values = json.loads(path.read_text(encoding="ascii"))
        if values["format"] != 1:
            raise StartError(f"{path} was written by a newer version of Oubli: start that version, or a later one")
        marks = Marks(int(values["next_id"]), int(values["model_version"]))
    except FileNotFoundError:
        return Marks()
    except (OSError, ValueError, TypeError, KeyError):
        raise StartError(
            f"{path} cannot be read: restore it from a backup of the data directory. It keeps ids and versions from "
            "being given out twice; if you remove it, counting goes on from the newest snapshot"
        ) from None
    return marks
