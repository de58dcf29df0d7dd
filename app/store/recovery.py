"""A data directory at start: the snapshot, the journal after it, and the ledger are brought to one state.

ledger.sqlite   may lag behind the journal: what is missing is folded again
may be older than the snapshot says: refused, or another ledger is taken in, or an admin accepts it
snapshot        the newest that can be read
journal         what came after; the state that was acknowledged last
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.audit.auditor import Auditor, Field
from app.audit.keys import AuditKeys
from app.audit.store import AuditStore, compare_head
from app.errors import StartError
from app.journal.journal import Journal, Record
from app.live import Live, Pending
from app.replacing import new_epoch
from app.store.keeper import Keeper
from app.store.replay import Replayed
from app.store.snapshots import Recovered, Snapshot

REGROWN = "trees-grown-anew"  # the type of the ledger's entry

_AT_ONCE = 1000  # records folded in one transaction


@dataclass(frozen=True, slots=True)
class LedgerChoice:
    """What to do about a ledger that is older than its snapshot.

    Attributes
    ----------
    newer
        A ledger that was downloaded, to be taken in first.
    accept_missing
        Whether to go on without the erasures that are missing.
    """

    newer: Path | None = None
    accept_missing: bool = False


def recover(
    recovered: Recovered,
    keeper: Keeper,
    store: AuditStore,
    keys: AuditKeys,
    now_ms: Callable[[], int],
    choice: LedgerChoice,
) -> tuple[Live, Auditor, int]:
    """Bring a data directory to the state that was acknowledged last.

    Returns
    -------
    live, auditor, n_records
        What to serve, who goes on with the ledger, and how many records of the journal were made again.

    Raises
    ------
    StartError
        When the files do not belong together, with the remedy.
    """
    snapshot, journal = recovered.snapshot, keeper.journal
    facts = snapshot.facts
    keeper.lineage = facts.lineage or keeper.lineage
    if choice.newer is not None:
        store.adopt(choice.newer)
    _finish_restore(snapshot, journal)
    fold_journal(store, journal, across_gap=choice.accept_missing)
    accepted = _check_ledger(store, snapshot, choice)
    live_model = Replayed(recovered.model, facts.model_version, facts.next_id, facts.exports, facts.seq)
    live_model.make(journal.records(facts.seq))
    auditor = Auditor.of(store, keys, now_ms)
    live = Live(
        live_model.model,
        live_model.version,
        new_epoch() if facts.epoch is None else facts.epoch,
        seq=live_model.seq,
        next_id=live_model.next_id,
        exports=live_model.exports,
        pending={one.receipt_id: Pending(one.seq, one.acknowledged_ms) for one in store.pending()},
    )
    if accepted:
        live.seq += 1
        fields: dict[str, Field] = {"snapshot_index": facts.ledger_index}
        record = Record(live.seq, live.version, b"", auditor.event("accepted-missing-erasures", fields))
        journal.append([record], reserve=True)
        store.fold_many([(record.seq, record.notes)])
    if recovered.regrown:
        _note_regrown(live, auditor, journal, store)
    return live, auditor, live_model.n_records


def _note_regrown(live: Live, auditor: Auditor, journal: Journal, store: AuditStore) -> None:
    """Write down that the trees were grown anew; those of a kind that is not exact are others now, as after a scrub."""
    live.seq += 1
    live.version += live.model.guarantee != "exact"
    fields: dict[str, Field] = {"model_version": live.version, "kind": live.model.kind}
    record = Record(live.seq, live.version, b"", auditor.event(REGROWN, fields))
    journal.append([record], reserve=True)
    store.fold_many([(record.seq, record.notes)])


def _finish_restore(snapshot: Snapshot, journal: Journal) -> None:
    """Write the record of a restore whose snapshot was written just before the server was killed."""
    facts = snapshot.facts
    if facts.restore_notes and journal.last_seq < facts.seq:
        journal.rotate(facts.seq)
        record = Record(facts.seq, facts.model_version, b"", facts.restore_notes.encode())
        journal.append([record], reserve=True)
    if journal.last_seq < facts.seq:
        raise StartError(
            f"the journal ends with record {journal.last_seq}, and {snapshot.path.name} has taken in {facts.seq}: "
            "segments of the journal are missing. Restore all files of the data directory from one backup"
        )


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
