"""A data directory at start: the snapshot, the journal after it, and the ledger are brought to one state.

    keys            those that the ledger names are there; refused, or an admin accepts it
    ledger.sqlite   may lag behind the journal: what is missing is folded again
                    may be older than the snapshot says: refused, or another ledger is taken in, or an admin accepts it
                    may be newer than the journal, in a directory that was restored: see below
    snapshot        the newest that can be read
    journal         what came after; the state that was acknowledged last

A ledger that tells of what came after the journal knows erasures that the samples do not. Before anything is served,
the samples that it says are erased, rectified or expired are dropped, as a restore over HTTP drops them: a snapshot is
written, the journal goes on behind it with the entry of that, the files from before are removed. Killed before that
snapshot is there, the next start finds the ledger newer again; killed after it, the next start finds what is left to
do in the snapshot.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import orjson

from oubli.app.errors import JournalError, StartError, StorageError
from oubli.app.ledger.entries import (
    ACCEPTED,
    ACCEPTED_KEY,
    EXPORT,
    LOG_BEGUN,
    REGROWN,
    SIGNING_KEY,
    Entry,
    original_of,
    read_notes,
)
from oubli.app.ledger.keys import KeyNames
from oubli.app.ledger.ledger import Ledger
from oubli.app.service.commands.additions import AddBody
from oubli.app.service.commands.bodies import decode
from oubli.app.service.copies import facts_of
from oubli.app.service.restoration import drop_gone, dropped_fields, ids_of, subjects_of
from oubli.app.service.state import ModelState, inherited, new_epoch
from oubli.app.storage.journal import Record
from oubli.core.errors import FileError, OubliError

if TYPE_CHECKING:
    from pathlib import Path

    from oubli.app.ledger.database import LedgerDatabase
    from oubli.app.ledger.keys import LedgerKeys
    from oubli.app.ledger.ledger import Field
    from oubli.app.storage.journal import Journal
    from oubli.app.storage.snapshots import Recovered, Snapshot
    from oubli.app.storage.storage import Storage
    from oubli.app.times import Clock

_AT_ONCE = 1000  # records folded in one transaction
_IDS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class LedgerChoice:
    """What to do about a ledger that is older than its snapshot, and about keys that are missing.

    Attributes
    ----------
    newer
        A ledger that was downloaded, to be taken in first.
    accept_missing
        Whether to go on without the erasures that are missing.
    accept_missing_keys
        Whether to go on without keys that the ledger names.
    """

    newer: Path | None = None
    accept_missing: bool = False
    accept_missing_keys: bool = False


def recover(
    recovered: Recovered,
    storage: Storage,
    database: LedgerDatabase,
    keys: LedgerKeys,
    clock: Clock,
    choice: LedgerChoice,
) -> tuple[ModelState, Ledger, int, list[str]]:
    """Bring a data directory to the state that was acknowledged last.

    Returns
    -------
    ModelState, Ledger, int, list of str
        What to serve, who goes on with the ledger, how many records of the journal were made again, and what a person
        should be told.

    Raises
    ------
    StartError
        When the files do not belong together, with the remedy.
    """
    snapshot, journal = recovered.snapshot, storage.journal
    facts = snapshot.facts
    storage.lineage = facts.lineage or storage.lineage
    lost = require_keys(database, journal, keys, choice)
    if choice.newer is not None:
        database.adopt(choice.newer, lambda: _require_named(database, keys, choice))
        database.flush()
        lost = keys.missing(_named(database, journal))
    _finish_restore(snapshot, storage)
    fold_journal(database, journal, across_gap=choice.accept_missing)
    accepted = _check_ledger(database, snapshot, choice)
    if facts.restore_notes:
        database.flush()  # the journal is what the ledger's file could be made from again
        _remove_older(storage, facts.seq)
    state = state_of(recovered)
    n_records = replay(state, journal.records(facts.seq))
    ledger = Ledger(database, keys, clock.now_ms)
    state.pending = {one.receipt_id: inherited(one, clock) for one in database.pending()}
    if accepted:
        # What was signed over the missing entries cannot be signed again: another log begins.
        fields: dict[str, Field] = {"snapshot_index": facts.ledger_index, **database.log.new_fields()}
        _write_down(state, storage, database, [ledger.event(ACCEPTED, fields)])
    notes = _catch_up(state, storage, database, ledger, clock)
    if database.log.origin is None:  # an earlier version has written the ledger, or entries were carried over
        _write_down(state, storage, database, [ledger.event(LOG_BEGUN, database.log.new_fields())])
    if lost:
        _write_down(state, storage, database, accepted_keys(ledger, lost))
        notes.append(f"going on without keys that the ledger names: {', '.join(lost.files())}")
    if recovered.regrown:
        _note_regrown(state, ledger, storage, database)
    return state, ledger, n_records, notes


def state_of(recovered: Recovered) -> ModelState:
    """Return the state that a snapshot was written in."""
    facts = recovered.snapshot.facts
    epoch = new_epoch() if facts.epoch is None else facts.epoch
    return ModelState(recovered.model, facts.model_version, epoch, facts.seq, facts.next_id, facts.exports)


def replay(state: ModelState, records: Iterable[Record]) -> int:
    """Apply the journal's records to a model from a snapshot, in their order; return how many there were.

    Raises
    ------
    StartError
        When the model refuses one, or a number is missing.
    """
    n_records = 0
    for record in records:
        if record.seq != state.seq + 1:
            raise StartError(
                f"the journal goes on with record {record.seq} after {state.seq}: a segment is missing. Restore "
                "all files of the data directory from one backup"
            )
        try:
            if record.body:
                body = decode(record.body)
                state.model = body.redo(state.model, state.exports)
                if isinstance(body, AddBody):
                    state.next_id = max(state.next_id, body.next_id)
            elif record.notes:
                state.exports += sum(e["type"] == EXPORT for e in orjson.loads(record.notes).get("entries", ()))
        except (OubliError, ValueError, KeyError, TypeError):
            # The text could hold what was submitted.
            raise StartError(
                f"record {record.seq} of the journal does not fit the model: the files of the data directory are "
                "not of one time. Restore all of them from one backup"
            ) from None
        state.seq, state.version = record.seq, record.version
        n_records += 1
    return n_records


def require_keys(database: LedgerDatabase, journal: Journal, keys: LedgerKeys, choice: LedgerChoice) -> KeyNames:
    """Refuse a directory whose ledger names keys that are not there; return those that an admin goes on without.

    Only then are keys made that nobody has named yet.
    """
    named = _named(database, journal)
    if not choice.accept_missing_keys:
        keys.require(named)
    lost = keys.missing(named)
    keys.complete()
    return lost


def accepted_keys(ledger: Ledger, lost: KeyNames) -> list[bytes]:
    """Make the entries that say which keys an admin went on without."""
    kinds = [
        *(("signing", name) for name in sorted(lost.signing)),
        *(("hashing", name) for name in sorted(lost.hashing)),
    ]
    return [ledger.event(ACCEPTED_KEY, {"key": kind, "lost_key_id": name}) for kind, name in kinds]


def _require_named(database: LedgerDatabase, keys: LedgerKeys, choice: LedgerChoice) -> None:
    if not choice.accept_missing_keys:
        keys.require(database.named_keys())


def _named(database: LedgerDatabase, journal: Journal) -> KeyNames:
    """Return the keys that the ledger names, with those in the journal that it lags behind."""
    named, accepted = database.named_keys(), set()
    for entry in _unfolded(database, journal):
        if entry["type"] == SIGNING_KEY:
            named.signing.add(entry["key_id"])
        elif entry["type"] == ACCEPTED_KEY:
            accepted.add(entry["lost_key_id"])
        if "hashing_key_id" in entry:
            named.hashing.add(entry["hashing_key_id"])
    return named - KeyNames(accepted, accepted)


def _unfolded(database: LedgerDatabase, journal: Journal) -> Iterator[Entry]:
    """Return the entries that the ledger's file does not have yet."""
    for record in journal.records(max(database.applied_seq(), (journal.first_seq or 1) - 1)):
        if record.notes:
            yield from map(original_of, read_notes(record.notes).entries)


def _write_down(state: ModelState, storage: Storage, database: LedgerDatabase, notes: list[bytes]) -> None:
    """Have the ledger say something, before anything is served."""
    records = [Record(state.seq + i, state.version, b"", one) for i, one in enumerate(notes, 1)]
    state.seq = records[-1].seq
    storage.journal.append(records, reserve=True)
    database.fold_many([(record.seq, record.notes) for record in records])


def _catch_up(state: ModelState, storage: Storage, database: LedgerDatabase, ledger: Ledger, clock: Clock) -> list[str]:
    """Drop what a ledger that is newer than the samples says is gone; return what to tell of it.

    Raises
    ------
    StartError
        When it cannot be told what is gone, or the disk refuses; nothing is served then.
    """
    model, version, told = state.model, state.version, database.last_model_version()
    if told <= version and database.applied_seq() <= state.seq:
        return []
    try:
        gone = database.erased_since(ids_of(model.samples_), version)
        words = database.restricted_since(subjects_of(model.samples_), version)
        kept = database.retained_since(subjects_of(model.samples_), version)
    except FileError:
        raise StartError(
            "the ledger tells of erasures or restrictions after the newest record of the journal, and their hashing "
            "key is gone, so that nobody can tell which samples they were about: restore the files of the key "
            "directory, or all files of the data directory from a newer backup"
        ) from None
    counts = drop_gone(model, gone, clock.now_ms(), words, retained=kept)
    # What happened after the backup was taken is lost, the same versions mean other states there.
    storage.lineage = secrets.token_hex(16)
    state.version, state.epoch = max(version, told) + 1, new_epoch()
    state.seq = max(state.seq, database.applied_seq()) + 1
    state.next_id = _free_id(database, max(state.next_id, model.samples_.next_id), version)
    state.exports = max(state.exports, database.count_of_type(EXPORT))
    fields: dict[str, Field] = {
        "model_version": state.version,
        "snapshot_model_version": version,
        **dropped_fields(counts),
        "at_start": True,
    }
    notes = ledger.event("restore", fields)
    facts = replace(facts_of(state, storage, ledger), restore_notes=notes.decode())
    try:
        storage.write(model, facts)
        _finish_writing(storage, state.seq, state.version, notes)
        database.fold_many([(state.seq, notes)])
        database.flush()
        _remove_older(storage, state.seq)
    except (StorageError, JournalError):
        raise StartError(
            "what the ledger says is erased cannot be dropped, because the data directory cannot be written: make room "
            "there, and start again"
        ) from None
    dropped = f"{counts['deletion']} erased, {counts['rectification']} rectified, {counts['expiry']} expired"
    return [f"the ledger is newer than the samples: what it says is gone was dropped ({dropped})"]


def _free_id(database: LedgerDatabase, first: int, version: int) -> int:
    """Return a number above those that were given out as ids, as far as the ledger knows: by their erasures."""
    while True:
        erased = database.erased_since([str(number) for number in range(first, first + _IDS_AT_ONCE)], version)
        if not erased:
            return first
        first = max(map(int, erased)) + 1


def _note_regrown(state: ModelState, ledger: Ledger, storage: Storage, database: LedgerDatabase) -> None:
    """Write down that the trees were grown anew; those of a kind that is not exact are others now, as after a scrub."""
    state.version += state.model.guarantee != "exact"
    fields: dict[str, Field] = {"model_version": state.version, "kind": state.model.kind}
    _write_down(state, storage, database, [ledger.event(REGROWN, fields)])


def _finish_restore(snapshot: Snapshot, storage: Storage) -> None:
    """Do what is left of a restore when its snapshot was written and the server was killed then."""
    facts, journal = snapshot.facts, storage.journal
    if facts.restore_notes and journal.last_seq < facts.seq:
        _finish_writing(storage, facts.seq, facts.model_version, facts.restore_notes.encode())
    if journal.last_seq < facts.seq:
        raise StartError(
            f"the journal ends with record {journal.last_seq}, and {snapshot.path.name} has taken in {facts.seq}: "
            "segments of the journal are missing. Restore all files of the data directory from one backup, or name the "
            "database with the journal in --journal if it was there"
        )


def _finish_writing(storage: Storage, seq: int, version: int, notes: bytes) -> None:
    """Let the journal go on behind the snapshot of a restore, with the record of that."""
    storage.journal.rotate(seq)
    storage.journal.append([Record(seq, version, b"", notes)], reserve=True)


def _remove_older(storage: Storage, seq: int) -> None:
    """Remove snapshots and segments from before a restore: they may hold what it dropped."""
    try:
        storage.replace_older(seq)
        storage.journal.drop_before(seq)
    except (StorageError, JournalError):
        raise StartError(
            "files from before a restore hold what is erased, and cannot be removed: see to the owner of the data "
            "directory, its permissions and its disk"
        ) from None


def fold_journal(database: LedgerDatabase, journal: Journal, *, across_gap: bool = False) -> None:
    """Bring the ledger's file up to the journal."""
    applied = database.applied_seq()
    first = journal.first_seq
    # A ledger that lags behind the journal's beginning is older than the snapshot; see `_check_ledger`.
    after = applied if first is None or applied + 1 >= first else first - 1
    due: list[tuple[int, bytes]] = []
    for record in journal.records(after):
        if record.notes:
            due.append((record.seq, record.notes))
        if len(due) >= _AT_ONCE:
            database.fold_many(due, across_gap=across_gap)
            due = []
    if due:
        database.fold_many(due, across_gap=across_gap)


def _check_ledger(database: LedgerDatabase, snapshot: Snapshot, choice: LedgerChoice) -> bool:
    """Refuse a ledger that does not hold what the snapshot has seen; whether that was accepted."""
    facts = snapshot.facts
    if not facts.ledger_hash:
        return False
    relation = database.relation_to(facts.ledger_index, facts.ledger_hash)
    if relation == "same or newer":
        return False
    if relation == "older" and choice.accept_missing:
        return True
    if relation == "older":
        raise StartError(
            f"the ledger ends before entry {facts.ledger_index}, which {snapshot.path.name} has seen: erasures are "
            "missing from it, and a restore could bring erased samples back. Give the newer ledger with --ledger FILE "
            "(GET /ledger, one entry a line), or go on without them with --accept-missing-erasures"
        )
    raise StartError(
        f"the ledger and {snapshot.path.name} are of different histories: restore all files of the data directory "
        "from one backup"
    )
