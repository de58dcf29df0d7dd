"""Starts that are killed at some of their steps: the directory is copied at that instant, and started again."""

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pytest

from oubli.app.ledger.database import LedgerDatabase
from oubli.app.storage.journal import SqliteJournal
from oubli.app.storage.snapshots import SnapshotStore

STEPS: dict[Any, tuple[str, ...]] = {
    os: ("fsync", "replace", "unlink"),
    SqliteJournal: ("append", "rotate", "drop_before"),
    LedgerDatabase: ("adopt", "fold_many", "flush"),
    SnapshotStore: ("write", "write_again", "keep_newest"),
}


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class Kept:
    """A data directory as it was, and the ledger and the version of the model as they were at the end."""

    folder: Path
    version: int = 0

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    def copy(self, target: Path) -> Self:
        shutil.copytree(self.folder, target)
        return replace(self, folder=target)

    def lose(self, *patterns: str) -> None:
        for pattern in patterns:
            for path in self.data.glob(pattern):
                path.unlink()


def steps_of(
    kept: Kept, start: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch, kill: int | None = None
) -> int:
    """Start, counting steps in the data directory; at one of them copy the directory and end. Return the steps."""
    n_steps = 0

    def counted(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        nonlocal n_steps
        n_steps += 1
        if n_steps == kill:
            shutil.copytree(kept.data, kept.folder / "killed")
            raise KilledError
        return function(*arguments, **options)

    with monkeypatch.context() as patched:
        for owner, names in STEPS.items():
            for name in names:
                wrapper = functools.partial(counted, getattr(owner, name))
                patched.setattr(owner, name, wrapper if owner is os else functools.partialmethod(wrapper))
        try:
            start(kept)
        except KilledError:
            patched.undo()
            shutil.rmtree(kept.data)
            (kept.folder / "killed").rename(kept.data)
    return n_steps


def kills(
    kept: Kept, start: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch, folder: Path, every: int
) -> Iterator[tuple[int, Any]]:
    """Kill a start at some of its steps, each time in a copy; give the step and what is left."""
    n_steps = steps_of(kept.copy(folder / "dry"), start, monkeypatch)
    assert n_steps > 10
    for kill in range(1 + n_steps % every, n_steps + 1, every):
        killed = kept.copy(folder / f"kill{kill}")
        assert steps_of(killed, start, monkeypatch, kill) >= kill
        yield kill, killed
        shutil.rmtree(killed.folder)
