"""The data directory with everything that is in it, opened; or what stands in for it where nothing is kept."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from oubli.app.clock import Clock
from oubli.app.errors import StartError
from oubli.app.ledger.database import AuditStore
from oubli.app.ledger.keys import AuditKeys
from oubli.app.ledger.ledger import Auditor, Field
from oubli.app.service.checkpoint import facts_of
from oubli.app.service.model_service import Records
from oubli.app.service.rebuild import new_epoch
from oubli.app.service.recovery import LedgerChoice, accepted_keys, fold_journal, recover, require_keys
from oubli.app.service.state import Live
from oubli.app.storage.directory import DataDirectory
from oubli.app.storage.journal import Record
from oubli.app.storage.keeper import Keeper
from oubli.app.storage.memory_journal import MemoryJournal
from oubli.app.storage.models import ServedModel
from oubli.app.storage.snapshots import Recovered, SnapshotStore
from oubli.app.storage.sqlite_journal import SqliteJournal

LEDGER_NAME = "ledger.sqlite"
KEYS_NAME = "keys"


@dataclass(slots=True)
class Opened:
    """What is kept, and what keeps it.

    Attributes
    ----------
    keeper
        Snapshots and journal.
    keys
        Of the ledger.
    store
        The ledger's file.
    snapshots
        None where nothing is kept.
    new_clock
        Makes the clock of the service from the highest time that was written down.
    notes
        What a person should be told of the recovery.
    """

    keeper: Keeper
    keys: AuditKeys
    store: AuditStore
    snapshots: SnapshotStore | None
    new_clock: Callable[[int | None], Clock] = Clock
    notes: list[str] = field(default_factory=list)

    @property
    def holds_model(self) -> bool:
        """Whether there is something to recover."""
        return self.snapshots is not None and self.snapshots.holds_model()

    def begin(self, model: ServedModel, choice: LedgerChoice | None = None) -> tuple[Live, Records]:
        """Begin a history with a model, and write its first snapshot.

        A start that was cut short before its first snapshot has left records without changes; this one goes on after.

        Raises
        ------
        StorageError, JournalError
            When it cannot be written.
        StartError
            When the journal holds changes to a model that is not there.
        """
        journal = self.keeper.journal
        if any(record.body for record in journal.records((journal.first_seq or 1) - 1)):
            raise StartError(
                "the journal in the data directory holds changes to a model whose snapshots are gone: restore all "
                "files of the data directory from one backup, or begin with an empty one"
            )
        lost = require_keys(self.store, journal, self.keys, choice or LedgerChoice())
        fold_journal(self.store, journal)
        clock, live = self.new_clock(self.store.highest_ms()), Live(model, 1, new_epoch(), seq=journal.last_seq + 1)
        auditor = Auditor.of(self.store, self.keys, clock.now_ms)
        model.resolve()
        fields: dict[str, Field] = {
            "model_version": live.version,
            "kind": model.kind,
            "hashing_key_id": self.keys.hashing[0].id,
        }
        notes = [*accepted_keys(auditor, lost), auditor.event("begin", fields)]
        records = [Record(journal.last_seq + i, live.version, b"", one) for i, one in enumerate(notes, 1)]
        journal.append(records)
        live.seq = journal.last_seq
        self.store.fold_many([(record.seq, record.notes) for record in records])
        if not self.keeper.is_ephemeral:
            self.store.flush()
            self.keeper.write(model, facts_of(live, self.keeper, auditor))
        return live, Records(auditor, self.store, clock)

    def recover(self, recovered: Recovered, choice: LedgerChoice | None = None) -> tuple[Live, Records, int]:
        """Go on where the directory ends; see `recovery.recover`."""
        clock = self.new_clock(self.store.highest_ms())
        found = recover(recovered, self.keeper, self.store, self.keys, clock, choice or LedgerChoice())
        clock.witness(self.store.highest_ms() or 0)  # the journal may have held later entries
        self.notes += found.notes
        if recovered.regrown:
            # The next start need not grow them again, nor rely on files whose trees are not sound.
            found.live.model.resolve()
            self.store.flush()
            self.keeper.write(found.live.model, facts_of(found.live, self.keeper, found.auditor))
        return found.live, Records(found.auditor, self.store, clock), found.n_records

    def close(self) -> None:
        """Let the next server have the directory."""
        self.store.close()
        self.keeper.close()


def open_directory(
    path: Path,
    key_dir: Path | None = None,
    *,
    new_clock: Callable[[int | None], Clock] = Clock,
    now: Callable[[], float] = time.time,
) -> Opened:
    """Open a data directory.

    Parameters
    ----------
    path
        Of the directory.
    key_dir
        Where the keys of the ledger are; by default in the directory.
    new_clock, now
        Make the clock of the service, and tell the machine's time in seconds since 1970.

    Raises
    ------
    StartError
        When it cannot be used, or another server uses it.
    """
    with contextlib.ExitStack() as opened:
        directory = DataDirectory(path)
        opened.callback(directory.close)
        snapshots = SnapshotStore(directory)
        keys = AuditKeys(key_dir or path / KEYS_NAME, complete=False)
        journal = SqliteJournal(path, now=now)
        opened.callback(journal.close)
        store = AuditStore(path / LEDGER_NAME, keys)
        opened.pop_all()
    return Opened(Keeper(directory, snapshots, journal), keys, store, snapshots, new_clock)


def open_nothing() -> Opened:
    """Return what stands in for a data directory where nothing is kept."""
    keys = AuditKeys(None)
    return Opened(Keeper(None, None, MemoryJournal()), keys, AuditStore(None, keys), None)
