"""A data directory at start: the snapshot, the journal after it, and the ledger are brought to one state.

    keys            those that the ledger names are there; refused, or an admin accepts it
    ledger.sqlite   may lag behind the journal: what is missing is folded again
                    may be older than the snapshot says: refused, or another ledger is taken in, or an admin accepts it
                    may be newer than the journal, in a directory that was restored: see below
                    a new directory may get one that was downloaded, before a model is trained for it
    snapshot        the newest that can be read; without any nothing may have been served yet
    journal         what came after; the state that was acknowledged last

A ledger with entries from after the journal's end knows erasures that the samples do not. Before anything is served,
the samples that it says are erased, rectified or expired are dropped, as a restore over HTTP drops them: a snapshot is
written, the journal continues behind it with the entry of that, the files from before are removed. Killed before that
snapshot is there, the next start finds the ledger newer again; killed after it, the next start finds what is left to
do in the snapshot.

What the ledger says of restrictions is made good as well, so that an older snapshot neither ends a restriction nor
begins one that was released since.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from itertools import chain
from pathlib import Path

import orjson

from oubli.app.errors import JournalError, StartError, StorageError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.downloads import read_lines
from oubli.app.ledger.entries import (
    ACCEPTED,
    ACCEPTED_KEY,
    BEGIN,
    EXPORT,
    LOG_BEGUN,
    REGROWN,
    RELEASED,
    RESTRICTED,
    SIGNING_KEY,
    Entry,
    original_of,
    read_notes,
    tells_only,
)
from oubli.app.ledger.keys import KeyNames, LedgerKeys
from oubli.app.ledger.ledger import Field, Ledger
from oubli.app.service.changes.additions import AddBody
from oubli.app.service.changes.deletions import DeleteBody, ReplaceBody
from oubli.app.service.changes.restrictions import ReleaseBody, RestrictBody, RetainBody
from oubli.app.service.evidence.receipts import inherited
from oubli.app.service.jobs.fits import FitBody
from oubli.app.service.model.live import facts_of
from oubli.app.service.model.state import ModelState, new_epoch
from oubli.app.storage.journal import Journal, Record
from oubli.app.storage.snapshots import Recovered, Snapshot, Storage
from oubli.app.times import Clock, parse_time
from oubli.core.errors import FileError, OubliError
from oubli.core.model import Model
from oubli.core.samples.owners import Mark, Retention
from oubli.core.samples.store import SampleStore

_AT_ONCE = 1000  # records folded in one transaction
_IDS_AT_ONCE = 10_000
KINDS = ("deletion", "rectification", "expiry")
Words = Mapping[str, Entry]
"""The last entry of the ledger about each subject, since a snapshot was taken."""


def drop_gone(
    model: Model,
    gone: Mapping[str, str],
    now_ms: int,
    words: Words | None = None,
    now: SampleStore | None = None,
    retained: Words | None = None,
) -> dict[str, int]:
    """Delete samples from a model without a trace, and restrict whom the ledger says is; return how many went by kind.

    Parameters
    ----------
    model
        No other code uses it.
    gone
        Ids that it holds, and what they were erased by; see `LedgerDatabase.erased_since`.
    now_ms
        The time: samples that have expired by then go too.
    words, now
        See `restrict_again`.
    retained
        See `retain_again`.
    """
    store = model.samples_
    is_changed = restrict_again(model, words or {}, now)
    retain_again(model, retained or {}, now)
    due = [*store.due(now_ms, len(store)), *store.restricted.due_unless_kept(now_ms)]
    kinds = dict.fromkeys(due, "expiry") | dict(gone)
    if kinds:
        model.apply(model.plan_delete(list(kinds)))
    if (kinds or is_changed) and model.guarantee != "exact":
        model.scrub()  # what has left has left its traces
    model.wipe()
    counts = dict.fromkeys(KINDS, 0)
    for kind in kinds.values():
        counts[kind] += 1
    return counts


def ids_of(store: SampleStore) -> list[str]:
    """Return the ids of all samples, restricted or not."""
    return [*store.ids(), *(store.restricted.ids() if len(store.restricted) else ())]


def dropped_fields(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts as the ledger's entry has them."""
    return {
        "dropped_erased": counts["deletion"],
        "dropped_rectified": counts["rectification"],
        "dropped_expired": counts["expiry"],
    }


def subjects_of(store: SampleStore) -> list[str]:
    """Return the subjects of all samples, restricted or not, each once."""
    return list(dict.fromkeys([*store.subjects.links()[0], *store.restricted.marks]))


def restrict_again(model: Model, words: Words, now: SampleStore | None) -> bool:
    """Restrict and release subjects in a model from a snapshot; whether anything has changed.

    Restricted is who is so now, or was so when the snapshot was taken and was not released since. Of subjects of whom
    nothing is held now, the ledger's last word decides.

    Parameters
    ----------
    model
        No other code uses it.
    words
        What the ledger has told since.
    now
        The samples held now; None when that is not known.
    """
    store = model.samples_
    marks, marks_now = store.restricted.marks, {} if now is None else now.restricted.marks
    restrict: dict[str, Mark] = {}
    release = []
    for subject in subjects_of(store):
        was, word = subject in marks, words.get(subject)
        told = None if word is None else word["type"]
        if subject in marks_now:
            restrict[subject] = marks_now[subject]
        elif told == RESTRICTED and word is not None and (was or now is None or not now.ids_of_subject(subject)):
            restrict[subject] = Mark(parse_time(word["at"]), word["keep"])
        elif was and told == RELEASED:
            release.append(subject)
    ReleaseBody(release).apply(model)
    for subject, mark in restrict.items():
        model.restrict(store.ids_of_subject(subject), {subject: mark})
        if subject in marks:
            marks[subject] = mark
    return bool(release or restrict)


def retain_again(model: Model, words: Words, now: SampleStore | None) -> None:
    """Give subjects in a model from a snapshot the retention periods that they have now.

    Of subjects of whom nothing is held now, the ledger's last word decides, and else the snapshot.

    Parameters
    ----------
    model
        No other code uses it.
    words
        What the ledger has told since.
    now
        The samples held now; None when that is not known.
    """
    store = model.samples_
    for subject in subjects_of(store):
        word, period = words.get(subject), None
        if now is not None and now.held_of(subject):
            period = now.retention_of(subject)
        elif word is None:
            continue
        elif word["seconds"] is not None:
            period = Retention(word["seconds"] * 1000, parse_time(word["at"]))
        if period != store.retention_of(subject):
            period_ms, since_ms = (None, 0) if period is None else period
            RetainBody([subject], period_ms, since_ms).apply(model)


BEGINNING = (SIGNING_KEY, ACCEPTED_KEY, BEGIN)
"""Types of the entries that a start writes before its first snapshot."""


@dataclass(frozen=True, slots=True)
class LedgerChoice:
    """What to do about a ledger that is older than its snapshot, and about keys that are missing.

    Attributes
    ----------
    newer
        A ledger that was downloaded, to be taken in first.
    accept_missing
        Whether to start without the erasures that are missing, also from a download that was cut.
    accept_missing_keys
        Whether to start without keys that the ledger names.
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
        What to serve, the ledger that continues, how many records of the journal were applied, and notes for a person.

    Raises
    ------
    StartError
        When the files do not belong together, with the remedy.
    """
    snapshot, journal = recovered.snapshot, storage.journal
    facts = snapshot.facts
    storage.lineage = facts.lineage or storage.lineage
    lost = take_in(database, journal, keys, choice)
    _finish_restore(snapshot, storage)
    fold_journal(database, journal, across_gap=choice.accept_missing)
    accepted = _check_ledger(database, snapshot, choice)
    if facts.restore_notes:
        database.flush()  # the journal is what the ledger's file could be made from again
        _remove_older(storage, facts.seq)
    state = state_of(recovered)
    n_records = replay(state, journal.records(facts.seq))
    ledger = Ledger(database, keys, clock.now_ms)
    state.pending = inherited(database.pending(), clock)
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


SampleBody = AddBody | DeleteBody | ReplaceBody | RestrictBody | ReleaseBody | RetainBody
Body = SampleBody | FitBody
_KINDS: dict[str, type[Body]] = {
    "add": AddBody,
    "delete": DeleteBody,
    "replace": ReplaceBody,
    "restrict": RestrictBody,
    "release": ReleaseBody,
    "retain": RetainBody,
    "fit": FitBody,
}


class UnknownBodyError(ValueError):
    """A body is none that this version writes: a newer version has written it."""


def decode(body: bytes) -> Body:
    """Return the body that a record holds.

    Raises
    ------
    UnknownBodyError
        When it is none that this version writes.
    """
    content = orjson.loads(body)
    kind = _KINDS.get(str(content.get("do", ""))) if isinstance(content, dict) else None
    if kind is None or not _required(kind) <= set(content) <= {field.name for field in fields(kind)}:
        raise UnknownBodyError("a body of another version")
    del content["do"]
    return kind(**content)


def _required(kind: type[Body]) -> set[str]:
    """Return the names that a body has since the first version."""
    return {field.name for field in fields(kind) if not field.init or field.default is MISSING}


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
                f"the journal continues with record {record.seq} after {state.seq}: a segment is missing. Restore "
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


def take_in(database: LedgerDatabase, journal: Journal, keys: LedgerKeys, choice: LedgerChoice) -> KeyNames:
    """Take in the ledger that was downloaded, if there is one, and return the keys that an admin continues without.

    Raises
    ------
    StartError
        When it cannot be taken in, or names keys that are not there; nothing has changed.
    """
    lost = require_keys(database, journal, keys, choice)
    if choice.newer is not None:
        database.adopt(choice.newer, may_be_cut=choice.accept_missing)
        database.flush()
    return lost


def require_keys(database: LedgerDatabase, journal: Journal, keys: LedgerKeys, choice: LedgerChoice) -> KeyNames:
    """Refuse a directory whose ledgers name keys that are not there; return those that an admin continues without.

    Only then are new keys made.
    """
    named = _named(database, journal, choice)
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


def _named(database: LedgerDatabase, journal: Journal, choice: LedgerChoice) -> KeyNames:
    """Return the keys that the ledger names, with those in the journal that it lags behind and in a download."""
    named, accepted = database.named_keys(), set()
    given = () if choice.newer is None else read_lines(choice.newer)
    for entry in chain(_unfolded(database, journal), given):
        with contextlib.suppress(LookupError, TypeError):  # taking a download in says what is wrong with it
            original = original_of(entry)
            if original["type"] == SIGNING_KEY:
                named.signing.add(str(original["key_id"]))
            elif original["type"] == ACCEPTED_KEY:
                accepted.add(str(original["lost_key_id"]))
            if "hashing_key_id" in original:
                named.hashing.add(str(original["hashing_key_id"]))
    return named - KeyNames(accepted, accepted)


def _unfolded(database: LedgerDatabase, journal: Journal) -> Iterator[Entry]:
    """Return the entries that the ledger's file does not have yet."""
    for record in journal.records(max(database.applied_seq(), (journal.first_seq or 1) - 1)):
        if record.notes:
            yield from read_notes(record.notes).entries


def _write_down(state: ModelState, storage: Storage, database: LedgerDatabase, notes: list[bytes]) -> None:
    """Have the ledger say something, before anything is served."""
    records = [Record(state.seq + i, state.version, b"", one) for i, one in enumerate(notes, 1)]
    state.seq = records[-1].seq
    storage.journal.append(records, reserve=True)
    database.fold_many([(record.seq, record.notes) for record in records])


def _catch_up(state: ModelState, storage: Storage, database: LedgerDatabase, ledger: Ledger, clock: Clock) -> list[str]:
    """Drop what a ledger that is newer than the samples says is gone; return notes on it.

    Raises
    ------
    StartError
        When it cannot be told what is gone, or the disk refuses; nothing is served then.
    """
    model, version, told = state.model, state.version, database.last_model_version()
    if told <= version and database.applied_seq() <= state.seq:
        return []
    counts = drop_known(model, version, database, clock)
    # What happened after the backup was taken is lost, the same versions mean other states there.
    storage.lineage = secrets.token_hex(16)
    state.version, state.epoch = max(version, told) + 1, new_epoch()
    state.seq = max(state.seq, database.applied_seq()) + 1
    state.next_id = free_id(database, max(state.next_id, model.samples_.next_id), version)
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
    return [dropped_note(counts)]


def drop_known(model: Model, version: int, database: LedgerDatabase, clock: Clock) -> dict[str, int]:
    """Drop from a model what the ledger says is gone since a version, and restrict whom it says is; return the counts.

    Raises
    ------
    StartError
        When it cannot be told what is gone.
    """
    ids, subjects = ids_of(model.samples_), subjects_of(model.samples_)
    try:
        gone = database.erased_since(ids, version)
        words = database.restricted_since(subjects, version)
        kept = database.retained_since(subjects, version)
    except FileError:
        raise StartError(
            "the ledger tells of erasures or restrictions of which the samples do not know, and their hashing key is "
            "gone, so that these samples cannot be identified: restore the files of the key directory, or "
            "all files of the data directory from a newer backup"
        ) from None
    return drop_gone(model, gone, clock.now_ms(), words, retained=kept)


def dropped_note(counts: dict[str, int]) -> str:
    """Tell a person what was dropped."""
    dropped = f"{counts['deletion']} erased, {counts['rectification']} rectified, {counts['expiry']} expired"
    return f"the ledger is newer than the samples: what it says is gone was dropped ({dropped})"


def require_unserved(database: LedgerDatabase, journal: Journal, path: Path) -> None:
    """Refuse a directory without snapshots in which a model was served; a start that was cut short is gone on from.

    Such a start has written nothing but that a model begins. A ledger that it took in has no records in the journal.

    Raises
    ------
    StartError
        With the remedies.
    """
    is_first = (journal.first_seq or 1) == 1 and database.applied_seq() <= journal.last_seq
    if not is_first or any(one.body or not tells_only(one.notes, BEGINNING) for one in journal.records(0)):
        raise StartError(
            f"there is no snapshot in {path}, and its journal or ledger tells of a model that was served from there. "
            "No other is trained in its place: what was added is not in the data file, and what was erased may be. "
            "Restore all files of the data directory from one backup. Without a backup, write the ledger into a file "
            "with `oubli ledger export FILE`, and start with an empty --data-dir, a copy of the keys and --ledger FILE"
        )


def free_id(database: LedgerDatabase, first: int, version: int) -> int:
    """Return a number above those that were given out as ids, as far as the ledger knows: by their erasures."""
    while True:
        erased = database.erased_since([str(number) for number in range(first, first + _IDS_AT_ONCE)], version)
        if not erased:
            return first
        first = max(map(int, erased)) + 1


def _note_regrown(state: ModelState, ledger: Ledger, storage: Storage, database: LedgerDatabase) -> None:
    """Write down that the trees were grown again; those of a kind that is not exact have changed, as after a scrub."""
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
    """Continue the journal behind the snapshot of a restore, with the record of that."""
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
            "(`oubli ledger fetch`), or start without them with --accept-missing erasures"
        )
    raise StartError(
        f"the ledger and {snapshot.path.name} are of different histories: restore all files of the data directory "
        "from one backup"
    )
