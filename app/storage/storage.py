"""What the model of a service is kept in: the data directory with all that is in it, or nothing."""

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

from oubli.app.errors import EphemeralError, StorageError
from oubli.app.storage.directory import DataDirectory
from oubli.app.storage.journal import Journal
from oubli.app.storage.snapshots import Facts, Snapshot, SnapshotStore
from oubli.core.model import Model


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
        """Whether the newest snapshot has taken in all records of the journal."""
        if self._snapshots is None:
            return True
        newest = self._snapshots.newest_seq()
        return newest is not None and (newest == seq or (newest, seq) == self._follower)

    def newest_seq(self) -> int:
        """Return the number of the last record that the newest snapshot has taken in; 0 when there is none."""
        return 0 if self._snapshots is None else self._snapshots.newest_seq() or 0

    def follow(self, seq: int) -> None:
        """Note that a record says nothing but what the newest snapshot is, so that none is written for it."""
        if self._snapshots is not None and self._snapshots.newest_seq() == seq - 1:
            self._follower = seq - 1, seq

    def write(self, model: Model, facts: Facts, *, twice: bool = False, check_later: bool = False) -> Snapshot:
        """Write a snapshot of a model without lazy tags that nobody changes meanwhile.

        Parameters
        ----------
        model
            What to write.
        facts
            What to say with it.
        twice
            Whether to write both generations anew, because the older one holds what must be gone.
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

    def check(self) -> None:
        """Read the newest snapshot back; see `SnapshotStore.check`."""
        self.snapshots.check()

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
        """Make sure that no snapshot is kept that has taken in fewer records than this."""
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
