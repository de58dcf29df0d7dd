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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from oubli.app.clock import Clock
from oubli.app.errors import StartError, StorageError
from oubli.app.ledger.chain import ACCEPTED, ACCEPTED_KEY, SIGNING_KEY, Entry, original_of
from oubli.app.ledger.database import AuditStore, PendingErasure, compare_head
from oubli.app.ledger.keys import AuditKeys, KeyNames
from oubli.app.ledger.ledger import Auditor, Field
from oubli.app.ledger.notes import read_notes
from oubli.app.service.checkpoint import facts_of
from oubli.app.service.rebuild import new_epoch
from oubli.app.service.replay import EXPORT, Replayed
from oubli.app.service.restoration import drop_gone, dropped_fields
from oubli.app.service.state import Live, Pending
from oubli.app.storage.journal import Journal, JournalError, Record
from oubli.app.storage.keeper import Keeper
from oubli.app.storage.snapshots import Recovered, Snapshot
from oubli.core.errors import FileError

REGROWN = "trees-grown-anew"  # the type of the ledger's entry

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


@dataclass(frozen=True, slots=True)
class Found:
    """What a data directory has led to.

    Attributes
    ----------
    live, auditor
        What to serve, and who goes on with the ledger.
    n_records
        How many records of the journal were made again.
    notes
        What a person should be told.
    """

    live: Live
    auditor: Auditor
    n_records: int
    notes: list[str]


def recover(
    recovered: Recovered,
    keeper: Keeper,
    store: AuditStore,
    keys: AuditKeys,
    clock: Clock,
    choice: LedgerChoice,
) -> Found:
    """Bring a data directory to the state that was acknowledged last.

    Raises
    ------
    StartError
        When the files do not belong together, with the remedy.
    """
    snapshot, journal = recovered.snapshot, keeper.journal
    facts = snapshot.facts
    keeper.lineage = facts.lineage or keeper.lineage
    lost = require_keys(store, journal, keys, choice)
    if choice.newer is not None:
        store.adopt(choice.newer, lambda: _require_named(store, keys, choice))
        store.flush()
        lost = keys.missing(_named(store, journal))
    _finish_restore(snapshot, keeper)
    fold_journal(store, journal, across_gap=choice.accept_missing)
    accepted = _check_ledger(store, snapshot, choice)
    if facts.restore_notes:
        store.flush()  # the journal is what the ledger's file could be made from again
        _remove_older(keeper, facts.seq)
    live_model = Replayed(recovered.model, facts.model_version, facts.next_id, facts.exports, facts.seq)
    live_model.make(journal.records(facts.seq))
    auditor = Auditor.of(store, keys, clock.now_ms)
    live = Live(
        live_model.model,
        live_model.version,
        new_epoch() if facts.epoch is None else facts.epoch,
        seq=live_model.seq,
        next_id=live_model.next_id,
        exports=live_model.exports,
        pending={one.receipt_id: _inherited(one, clock) for one in store.pending()},
    )
    if accepted:
        _write_down(live, keeper, store, [auditor.event(ACCEPTED, {"snapshot_index": facts.ledger_index})])
    notes = _catch_up(live, keeper, store, auditor, clock)
    if lost:
        _write_down(live, keeper, store, accepted_keys(auditor, lost))
        notes.append(f"going on without keys that the ledger names: {', '.join(lost.files())}")
    if recovered.regrown:
        _note_regrown(live, auditor, keeper, store)
    return Found(live, auditor, live_model.n_records, notes)


def require_keys(store: AuditStore, journal: Journal, keys: AuditKeys, choice: LedgerChoice) -> KeyNames:
    """Refuse a directory whose ledger names keys that are not there; return those that an admin goes on without.

    Only then are keys made that nobody has named yet.
    """
    named = _named(store, journal)
    if not choice.accept_missing_keys:
        keys.require(named)
    lost = keys.missing(named)
    keys.complete()
    return lost


def accepted_keys(auditor: Auditor, lost: KeyNames) -> list[bytes]:
    """Make the entries that say which keys an admin went on without."""
    kinds = [
        *(("signing", name) for name in sorted(lost.signing)),
        *(("hashing", name) for name in sorted(lost.hashing)),
    ]
    return [auditor.event(ACCEPTED_KEY, {"key": kind, "lost_key_id": name}) for kind, name in kinds]


def _require_named(store: AuditStore, keys: AuditKeys, choice: LedgerChoice) -> None:
    if not choice.accept_missing_keys:
        keys.require(store.named_keys())


def _named(store: AuditStore, journal: Journal) -> KeyNames:
    """Return the keys that the ledger names, with those in the journal that it lags behind."""
    named, accepted = store.named_keys(), set()
    for entry in _unfolded(store, journal):
        if entry["type"] == SIGNING_KEY:
            named.signing.add(entry["key_id"])
        elif entry["type"] == ACCEPTED_KEY:
            accepted.add(entry["lost_key_id"])
        if "hashing_key_id" in entry:
            named.hashing.add(entry["hashing_key_id"])
    return named - KeyNames(accepted, accepted)


def _unfolded(store: AuditStore, journal: Journal) -> Iterator[Entry]:
    """Return the entries that the ledger's file does not have yet."""
    for record in journal.records(max(store.applied_seq(), (journal.first_seq or 1) - 1)):
        if record.notes:
            yield from map(original_of, read_notes(record.notes).entries)


def _write_down(live: Live, keeper: Keeper, store: AuditStore, notes: list[bytes]) -> None:
    """Have the ledger say something, before anything is served."""
    records = [Record(live.seq + i, live.version, b"", one) for i, one in enumerate(notes, 1)]
    live.seq = records[-1].seq
    keeper.journal.append(records, reserve=True)
    store.fold_many([(record.seq, record.notes) for record in records])


def _catch_up(live: Live, keeper: Keeper, store: AuditStore, auditor: Auditor, clock: Clock) -> list[str]:
    """Drop what a ledger that is newer than the samples says is gone; return what to tell of it.

    Raises
    ------
    StartError
        When it cannot be told what is gone, or the disk refuses; nothing is served then.
    """
    model, version, told = live.model, live.version, store.last_model_version()
    if told <= version and store.applied_seq() <= live.seq:
        return []
    try:
        gone = store.erased_since(model.samples_.ids(), version)
    except FileError:
        raise StartError(
            "the ledger tells of erasures after the newest record of the journal, and their hashing key is gone, so "
            "that nobody can tell which samples they were about: restore the files of the key directory, or all files "
            "of the data directory from a newer backup"
        ) from None
    counts = drop_gone(model, gone, clock.now_ms())
    # What happened after the backup was taken is lost, the same versions mean other states there.
    keeper.lineage = secrets.token_hex(16)
    live.version, live.epoch = max(version, told) + 1, new_epoch()
    live.seq = max(live.seq, store.applied_seq()) + 1
    live.next_id = _free_id(store, max(live.next_id, model.samples_.next_id), version)
    live.exports = max(live.exports, store.count_of_type(EXPORT))
    fields: dict[str, Field] = {
        "model_version": live.version,
        "snapshot_model_version": version,
        **dropped_fields(counts),
        "at_start": True,
    }
    notes = auditor.event("restore", fields)
    facts = replace(facts_of(live, keeper, auditor), restore_notes=notes.decode())
    try:
        keeper.write(model, facts)
        _finish_writing(keeper, live.seq, live.version, notes)
        store.fold_many([(live.seq, notes)])
        store.flush()
        _remove_older(keeper, live.seq)
    except (StorageError, JournalError):
        raise StartError(
            "what the ledger says is erased cannot be dropped, because the data directory cannot be written: make room "
            "there, and start again"
        ) from None
    dropped = f"{counts['deletion']} erased, {counts['rectification']} rectified, {counts['expiry']} expired"
    return [f"the ledger is newer than the samples: what it says is gone was dropped ({dropped})"]


def _free_id(store: AuditStore, first: int, version: int) -> int:
    """Return a number above those that were given out as ids, as far as the ledger knows: by their erasures."""
    while True:
        erased = store.erased_since([str(number) for number in range(first, first + _IDS_AT_ONCE)], version)
        if not erased:
            return first
        first = max(map(int, erased)) + 1


def _note_regrown(live: Live, auditor: Auditor, keeper: Keeper, store: AuditStore) -> None:
    """Write down that the trees were grown anew; those of a kind that is not exact are others now, as after a scrub."""
    live.version += live.model.guarantee != "exact"
    fields: dict[str, Field] = {"model_version": live.version, "kind": live.model.kind}
    _write_down(live, keeper, store, [auditor.event(REGROWN, fields)])


def _inherited(erasure: PendingErasure, clock: Clock) -> Pending:
    """Return an erasure that an earlier process has not finished; it has waited for as long as any clock says."""
    at_ms = erasure.acknowledged_ms
    return Pending(erasure.seq, min(clock.steady_since(at_ms), clock.steady_since_wall(at_ms)), is_inherited=True)


def _finish_restore(snapshot: Snapshot, keeper: Keeper) -> None:
    """Do what is left of a restore when its snapshot was written and the server was killed then."""
    facts, journal = snapshot.facts, keeper.journal
    if facts.restore_notes and journal.last_seq < facts.seq:
        _finish_writing(keeper, facts.seq, facts.model_version, facts.restore_notes.encode())
    if journal.last_seq < facts.seq:
        raise StartError(
            f"the journal ends with record {journal.last_seq}, and {snapshot.path.name} has taken in {facts.seq}: "
            "segments of the journal are missing. Restore all files of the data directory from one backup"
        )


def _finish_writing(keeper: Keeper, seq: int, version: int, notes: bytes) -> None:
    """Let the journal go on behind the snapshot of a restore, with the record of that."""
    keeper.journal.rotate(seq)
    keeper.journal.append([Record(seq, version, b"", notes)], reserve=True)


def _remove_older(keeper: Keeper, seq: int) -> None:
    """Remove snapshots and segments from before a restore: they may hold what it dropped."""
    try:
        keeper.replace_older(seq)
        keeper.journal.drop_before(seq)
    except (StorageError, JournalError):
        raise StartError(
            "files from before a restore hold what is erased, and cannot be removed: see to the owner of the data "
            "directory, its permissions and its disk"
        ) from None


def fold_journal(store: AuditStore, journal: Journal, *, across_gap: bool = False) -> None:
    """Bring the ledger's file up to the journal."""
    applied = store.applied_seq()
    first = journal.first_seq
    # A ledger that lags behind the journal's beginning is older than the snapshot; see `_check_ledger`.
    after = applied if first is None or applied + 1 >= first else first - 1
    due: list[tuple[int, bytes]] = []
    for record in journal.records(after):
        if record.notes:
            due.append((record.seq, record.notes))
        if len(due) >= _AT_ONCE:
            store.fold_many(due, across_gap=across_gap)
            due = []
    if due:
        store.fold_many(due, across_gap=across_gap)


def _check_ledger(store: AuditStore, snapshot: Snapshot, choice: LedgerChoice) -> bool:
    """Refuse a ledger that does not hold what the snapshot has seen; whether that was accepted."""
    facts = snapshot.facts
    if not facts.ledger_hash:
        return False
    relation = compare_head(store, facts.ledger_index, facts.ledger_hash)
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
