"""Snapshots: the model in a file, two generations of them.

A new snapshot is written beside the old ones, flushed, read back and compared, and only then takes its name; only
after that older ones go. So at every instant a sound file holds the model as it was at the newest or the second newest
snapshot, and the journal holds what came after either. When something was erased, the older generation holds what must
be gone: then the new snapshot is written twice, and both copies are the generations.
"""

import contextlib
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from oubli.app.errors import EphemeralError, FlushFailedError, NoSnapshotError, StartError, StorageError
from oubli.app.storage.directory import DataDirectory, storage_errors
from oubli.app.storage.journal import Journal
from oubli.app.times import to_text
from oubli.core.bounds import LARGEST_COUNTER, Anything, Fields, Text, WholeText, require
from oubli.core.errors import FileError, NewerFormatError
from oubli.core.estimators import load_own
from oubli.core.model import Model
from oubli.core.persistence import read_metadata

GENERATIONS = 2
_NAME = re.compile(r"snapshot-(\d{8,})\.safetensors", re.ASCII)
# Notes in a file beside the model. An uploaded file has them too: no database, counter or calendar gets a value that
# was not checked here.
_NOTES = Fields(
    optional={
        "model_version": WholeText(),
        "next_id": WholeText(high=LARGEST_COUNTER),
        "lineage": Text(64),
        "epoch": WholeText(),
        "seq": WholeText(high=LARGEST_COUNTER),
        "exports": WholeText(),
        "ledger_index": WholeText(),
        "ledger_hash": Text(64),
        "restore_notes": Text(2**20),
        "snapshot_id": Text(32),
        "created_at": Text(40),
        "digest": Text(128),
    },
    more=Anything(),
)
_TEXTS = frozenset({"lineage", "ledger_hash", "restore_notes"})


@dataclass(frozen=True, slots=True)
class Facts:
    """What a snapshot says besides the model.

    Attributes
    ----------
    model_version, epoch
        See `oubli.app.service.model.state.ModelState`.
    next_id
        Generated ids are at least this number.
    lineage
        Names the history that versions belong to.
    seq
        Number of the last journal record that the model has applied.
    exports
        How many times a snapshot had been handed out.
    ledger_index, ledger_hash
        The newest entry of the ledger then; an older ledger does not belong to this snapshot.
    restore_notes
        Of a snapshot that a restore wrote: what the journal has to note of it.
    """

    model_version: int = 0
    next_id: int = 0
    lineage: str = ""
    epoch: int | None = None
    seq: int = 0
    exports: int = 0
    ledger_index: int = 0
    ledger_hash: str = ""
    restore_notes: str = ""

    def to_notes(self) -> dict[str, str]:
        """Return everything as texts."""
        return {name: str(value) for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_notes(cls, notes: Mapping[str, str]) -> "Facts":
        """Read texts; a model file that the service did not write has version 0 and no lineage.

        Raises
        ------
        FileError
            When a number is none, or out of range.
        """
        require(dict(notes), _NOTES, "what is noted beside the model")
        known = (one.name for one in fields(cls) if one.name in notes)
        values: dict[str, Any] = {name: notes[name] if name in _TEXTS else int(notes[name]) for name in known}
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of a snapshot file."""

    id: str
    model_version: int
    digest: str
    bytes: int
    created_at: datetime
    path: Path
    facts: Facts


@dataclass(frozen=True, slots=True)
class Recovered:
    """A model read from a snapshot at start, with what a person should be told about it.

    Attributes
    ----------
    model, snapshot
        The model, and the snapshot it is from.
    notes
        Sentences.
    regrown
        Whether the trees were rebuilt from the samples, because no snapshot has sound ones.
    """

    model: Model
    snapshot: Snapshot
    notes: tuple[str, ...]
    regrown: bool = False


class SnapshotStore:
    """The snapshot files of a data directory.

    Parameters
    ----------
    directory
        An open data directory.

    Attributes
    ----------
    is_unchecked
        Whether the newest one has not been read back yet.
    """

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._newest: Snapshot | None = None
        self.is_unchecked = False

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

    @property
    def newest_or_none(self) -> Snapshot | None:
        """The newest snapshot, None when there is none."""
        return self._newest

    def newest_file(self) -> Path | None:
        """Return the newest file, readable or not; None when there is none."""
        return next(iter(self._files()), None)

    def newest_seq(self) -> int | None:
        """Return the number of the last journal record in the newest snapshot, None when there is none."""
        return None if self._newest is None else self._newest.facts.seq

    def newest_facts(self) -> Facts | None:
        """Return what the newest file says besides the model, None when there is none that can be read."""
        newest = next(_readable(self._files()), None)
        return None if newest is None else newest.facts

    def oldest_seq(self) -> int:
        """Return the lowest number of a journal record that a snapshot ends with; -1 when one cannot be read."""
        seqs = []
        for path in self._files():
            try:
                seqs.append(describe(path).facts.seq)
            except FileError:
                seqs.append(-1)
        return min(seqs, default=-1)

    def oldest_at(self) -> datetime | None:
        """Return when the oldest snapshot that is kept was written, None when there is none."""
        return min((one.created_at for one in _readable(self._files())), default=None)

    def holds_model(self) -> bool:
        """Whether the directory holds a model, readable or not."""
        return bool(self._files())

    def recover(self) -> Recovered:
        """Read the newest snapshot, or the one before when the newest is damaged.

        When neither has sound trees, those of the newest whose samples can be read are rebuilt: trees are derived
        from the samples, and what is wrong with them is no reason to lose these.

        Raises
        ------
        StartError
            When the samples of no snapshot can be read, or the newest needs a newer version of Oubli.
        """
        problems: list[str] = []
        for regrow in (False, True):
            for path in self._files():
                try:
                    snapshot = describe(path)
                    loaded = load_own(path, regrow=regrow)
                except (FileError, OSError) as error:
                    if isinstance(error, NewerFormatError):
                        # Falling back would lose what the newer version learned and unlearned.
                        raise StartError(f"{path}: {error.rule}") from None
                    if _is_forbidden(path):  # older files would take its place, or others be asked for
                        raise StartError(
                            f"{path} may not be read by this user: check its permissions. It need not be damaged"
                        ) from None
                    if not regrow:
                        problems.append(f"{path.name} cannot be read: {_rule(error)}")
                    continue
                self._newest = snapshot
                notes = [*problems]
                if loaded.regrown:
                    notes.append(f"the trees were rebuilt from the samples in {path.name}")
                elif problems:
                    notes.append(f"fell back to {path.name}; what came after it is read from the journal")
                return Recovered(loaded.model, snapshot, tuple(notes), bool(loaded.regrown))
        raise StartError(
            f"no snapshot in {self._directory.path} can be read. " + "; ".join(problems) + ". Restore the files from a "
            "backup; or write the ledger into a file with `oubli ledger export FILE`, and train again with an empty "
            "--data-dir, a copy of the keys and --ledger FILE, so that no erased sample comes back"
        )

    def write(self, model: Model, facts: Facts, *, check_later: bool = False) -> Snapshot:
        """Write a snapshot of a model without lazy tags, which must not change during this; older ones stay.

        Parameters
        ----------
        model
            What to write.
        facts
            What to say with it.
        check_later
            Whether `check` reads it back, and not this method.

        Raises
        ------
        StorageError
            When it cannot be written or read back; the files that were there are untouched.
        """
        number = self._next_number()
        extra = {
            **facts.to_notes(),
            "snapshot_id": f"{number:08d}",
            "created_at": to_text(time.time_ns() // 1_000_000),
        }
        with storage_errors(), self._directory.temporary() as temporary:
            model.save(temporary, extra=extra)
            self._newest = self._publish(temporary, number, check=not check_later)
        self.is_unchecked = check_later
        return self._newest

    def check(self) -> None:
        """Read the newest snapshot back; one that is damaged is removed.

        Raises
        ------
        StorageError
            When it is damaged, or cannot be read.
        """
        path = self.newest.path
        with storage_errors():
            try:
                _check(path)
            except StorageError:
                self.take_back(_number(path) - 1, None)
                raise
        self.is_unchecked = False

    def write_again(self) -> None:
        """Write the newest snapshot a second time, as a generation of its own.

        Raises
        ------
        StorageError
            When it cannot be written or read back.
        """
        with storage_errors(), self._directory.temporary() as temporary:
            shutil.copyfile(self.newest.path, temporary)
            self._publish(temporary, self._next_number())

    def newest_number(self) -> int:
        """Return the number of the newest file; see `take_back`."""
        return self._next_number() - 1

    def take_back(self, number: int, newest: Snapshot | None) -> None:
        """Remove the files after one, which a restore has written that did not happen.

        Raises
        ------
        FlushFailedError
            When that is in doubt: a restart could find them.
        """
        try:
            self._directory.remove([path for path in self._files() if _number(path) > number])
        except OSError:
            raise FlushFailedError("a snapshot could not be removed again") from None
        self._newest = newest

    def forget_after(self, seq: int) -> None:
        """Remove snapshots that have applied later records than this.

        Raises
        ------
        StorageError
            When they cannot be removed.
        """
        with storage_errors():
            self._directory.remove([one.path for one in _readable(self._files()) if one.facts.seq > seq])

    def keep_newest(self, n: int = GENERATIONS) -> int:
        """Remove all but the newest files; return the smallest journal number that those kept have applied.

        Raises
        ------
        StorageError
            When they cannot be removed.
        """
        with storage_errors():
            files = self._files()
            self._directory.remove_unfinished()
            self._directory.remove(files[n:])
            seqs = [one.facts.seq for one in _readable(files[:n])]  # a damaged one is no reason to keep the journal
        return min(seqs, default=0)

    def _publish(self, temporary: Path, number: int, *, check: bool = True) -> Snapshot:
        """Check a finished file and give it its name: older files go when it is there, so it must be one to read."""
        temporary.chmod(0o600)
        snapshot = _check(temporary, whole=check)
        return replace(snapshot, path=self._directory.publish(temporary, f"snapshot-{number:08d}.safetensors"))

    def _next_number(self) -> int:
        return max(map(_number, self._files()), default=0) + 1

    def _files(self) -> list[Path]:
        """Return the snapshot files, newest first."""
        files = [path for path in self._directory.path.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(files, key=_number, reverse=True)


def _readable(paths: Iterable[Path]) -> Iterator[Snapshot]:
    """Describe the files that can be read."""
    for path in paths:
        with contextlib.suppress(FileError):
            yield describe(path)


def describe(path: Path) -> Snapshot:
    """Read what the service noted beside the model in a file, and the model's digest; the rest is not checked.

    Raises
    ------
    FileError
        When it is not a sound model file, or what is noted makes no sense.
    """
    document = read_metadata(path)
    notes: dict[str, str] = {**document.get("extra", {}), "digest": document["digest"]}
    size = path.stat()
    facts = Facts.from_notes(notes)
    text = notes.get("created_at")
    try:
        created_at = datetime.fromisoformat(text) if text else datetime.fromtimestamp(size.st_mtime, UTC)
        if created_at.tzinfo is None:
            raise ValueError  # no other can be compared with it
        created_at = created_at.astimezone(UTC)
    except (ValueError, OverflowError):
        raise FileError("its metadata is damaged: take another copy of the file") from None
    return Snapshot(
        id=notes.get("snapshot_id", ""),
        model_version=facts.model_version,
        digest=notes["digest"],
        bytes=size.st_size,
        created_at=created_at,
        path=path,
        facts=facts,
    )


def _check(path: Path, *, whole: bool = True) -> Snapshot:
    """Read a file back as the next start would do it, and return what it says of itself, or only that."""
    try:
        snapshot = describe(path)
        if whole:
            load_own(path)
    except FileError as error:
        raise StorageError(f"the snapshot read back is damaged ({error.rule})") from None
    return snapshot


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("snapshot-"))


def _rule(error: FileError | OSError) -> str:
    return error.rule if isinstance(error, FileError) else (error.strerror or "input/output error")


def _is_forbidden(path: Path) -> bool:
    """Whether a file is there that this user may not read."""
    try:
        path.open("rb").close()
    except PermissionError:
        return True
    except OSError:
        pass
    return False


class Storage:
    """Writes and removes snapshots. Its methods take long: call them in a thread, one at a time.

    Parameters
    ----------
    directory
        Where to keep everything; None keeps nothing.
    snapshots
        The snapshots in it.
    journal
        What makes changes durable between snapshots.

    Attributes
    ----------
    lineage
        Names the history that versions belong to: those of two snapshots can be compared when it is the same.
    """

    def __init__(self, directory: DataDirectory | None, snapshots: SnapshotStore | None, journal: Journal) -> None:
        self._directory = directory
        self._snapshots = snapshots
        self.journal = journal
        self.lineage = secrets.token_hex(16)
        self._follower: tuple[int, int] | None = None

    @property
    def is_ephemeral(self) -> bool:
        """Whether nothing is kept."""
        return self._snapshots is None

    @property
    def path(self) -> Path | None:
        """The data directory."""
        return None if self._directory is None else self._directory.path

    def is_current(self, seq: int) -> bool:
        """Whether the newest snapshot has all records of the journal."""
        if self._snapshots is None:
            return True
        newest = self._snapshots.newest_seq()
        return newest is not None and (newest == seq or (newest, seq) == self._follower)

    def newest_seq(self) -> int:
        """Return the number of the last record in the newest snapshot; 0 when there is none."""
        return 0 if self._snapshots is None else self._snapshots.newest_seq() or 0

    def follow(self, seq: int) -> None:
        """Note that a record says nothing but what the newest snapshot is, so that none is written for it."""
        if self._snapshots is not None and self._snapshots.newest_seq() == seq - 1:
            self._follower = seq - 1, seq

    def write(self, model: Model, facts: Facts, *, twice: bool = False, check_later: bool = False) -> Snapshot:
        """Write a snapshot of a model without lazy tags, which must not change during this.

        Parameters
        ----------
        model
            What to write.
        facts
            What to say with it.
        twice
            Whether to write both generations, because the older one holds erased samples.
        check_later
            Whether `check` reads it back, and not this method.

        Raises
        ------
        StorageError
            When it cannot be written; what was there before still is.
        """
        store = self.snapshots
        snapshot = store.write(model, facts, check_later=check_later)
        if twice:
            store.write_again()
        return snapshot

    @property
    def is_unchecked(self) -> bool:
        """Whether the newest snapshot has not been read back yet."""
        return self._snapshots is not None and self._snapshots.is_unchecked

    def write_instead(self, model: Model, facts: Facts) -> Callable[[], None]:
        """Write both generations of another model than the live one; return what takes them back.

        Raises
        ------
        StorageError
            When they cannot be written; none of them is there.
        FlushFailedError
            When that is in doubt.
        """
        store = self.snapshots
        take_back = partial(store.take_back, store.newest_number(), store.newest_or_none)
        try:
            self.write(model, facts, twice=True)
        except BaseException:
            take_back()
            raise
        return take_back

    def replace_older(self, seq: int) -> None:
        """Make sure that no snapshot is kept that has fewer records than this."""
        store = self.snapshots
        if store.oldest_seq() < seq:
            try:
                store.write_again()
            except StorageError:
                store.keep_newest(1)  # on a full disk: one generation is better than one that must be gone
            else:
                store.keep_newest()

    def close(self) -> None:
        """Let the next server have the directory."""
        self.journal.close()
        if self._directory is not None:
            self._directory.close()

    @property
    def snapshots(self) -> SnapshotStore:
        """The snapshots; raises `EphemeralError` where none are kept."""
        if self._snapshots is None:
            raise EphemeralError
        return self._snapshots
