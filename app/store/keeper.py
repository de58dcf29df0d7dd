"""What keeps the model of a service: the data directory with all that is in it, or nothing."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from app.erased import ErasedIds
from app.errors import EphemeralError, StorageError
from app.model import ServedModel, load_model, read_notes
from app.outcomes import Restored
from app.store.directory import DataDirectory, storage_errors
from app.store.reservations import Marks, Reservations
from app.store.snapshots import Snapshot, SnapshotStore, describe


class Keeper:
    """Writes snapshots and reservations. Its methods take long: call them in a thread, one at a time.

    Parameters
    ----------
    directory
        Where to keep everything; None keeps nothing.

    Attributes
    ----------
    lineage
        Names the history that versions belong to: those of two snapshots can be compared when it is the same.
    id_floor
        Generated ids are at least this number: those below were given out in a past that the model does not
        remember, before a crash or a restore.
    """

    def __init__(self, directory: DataDirectory | None) -> None:
        self._directory = directory
        self.lineage = secrets.token_hex(16)
        self.reservations = Reservations(directory)
        self.id_floor = self.reservations.marks.next_id
        self.snapshots = None if directory is None else SnapshotStore(directory)

    @property
    def is_ephemeral(self) -> bool:
        """Whether nothing is kept."""
        return self._directory is None

    @property
    def path(self) -> Path | None:
        """The data directory."""
        return None if self._directory is None else self._directory.path

    @property
    def newest(self) -> Snapshot:
        """The newest snapshot; raises `NoSnapshotError` when there is none, `EphemeralError` when there never is."""
        return self._store().newest

    def adopt(self, snapshot: Snapshot) -> None:
        """Go on with the history of a snapshot that was recovered."""
        self.lineage = snapshot.lineage or self.lineage
        self.id_floor = max(self.id_floor, snapshot.next_id)

    def is_current(self, model_version: int) -> bool:
        """Whether nothing would be lost if the process ended now."""
        return self.snapshots is None or self.snapshots.newest_version() == model_version

    def reserve(self, needed: Marks) -> None:
        """Reserve ids and versions; raises `StorageError` when the disk refuses."""
        with storage_errors():
            self.reservations.reserve(needed)

    def write(self, model: ServedModel, model_version: int, epoch: int) -> Snapshot:
        """Write a snapshot of a model without lazy tags."""
        snapshot = self._store().write(
            model,
            model_version=model_version,
            next_id=max(model.samples_.next_id, self.id_floor),
            lineage=self.lineage,
            epoch=epoch,
        )
        # The snapshot stands whether or not the marks can be set back: too high is safe.
        with contextlib.suppress(StorageError), storage_errors():
            self.reservations.settle(Marks(snapshot.next_id, model_version))
        return snapshot

    def restore(
        self, path: Path, live: ServedModel, erased: ErasedIds, model_version: int, epoch: int
    ) -> tuple[ServedModel, Restored]:
        """Load a snapshot file, drop what was erased or rectified after it, and write the rest as the new snapshot.

        Parameters
        ----------
        path
            The file; it stays where it is.
        live
            The model that will be replaced.
        erased
            What was erased and rectified, as far as it is known.
        model_version, epoch
            Of the model that is returned.

        Raises
        ------
        FileError
            When the file is not a sound model file.
        StorageError
            When the new snapshot cannot be written.
        """
        taken = describe(path, read_notes(path))
        model = load_model(path)
        # Versions of another history cannot be compared: then everything known to be erased is dropped.
        since = taken.model_version if taken.lineage == self.lineage else -1
        gone, n_rectified = erased.since(model.samples_.ids(), since)
        if gone:
            model.delete(gone)
        model.resolve()
        store = model.samples_
        self.id_floor = max(self.id_floor, live.samples_.next_id, taken.next_id)
        n_lost = sum(not store.contains(name) for name in live.samples_.ids())
        if not self.is_ephemeral:
            self.write(model, model_version, epoch)
        return model, Restored(
            snapshot_model_version=taken.model_version,
            n_samples=model.n_samples_,
            dropped_erased=len(gone) - n_rectified,
            dropped_rectified=n_rectified,
            no_longer_held=n_lost,
            model_version=model_version,
        )

    def close(self) -> None:
        """Let the next server have the directory."""
        if self._directory is not None:
            self._directory.close()

    def _store(self) -> SnapshotStore:
        if self.snapshots is None:
            raise EphemeralError
        return self.snapshots
