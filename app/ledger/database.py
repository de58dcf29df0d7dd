"""The ledger's database: folds the notes of journal records into the file, and answers questions about the past.

It is made from the journal and may lag behind it. Nothing here is flushed by itself: `flush` is called before the
journal drops what was folded. After a crash at any instant the file is as it was after some record, and folding
continues there. All methods belong to one thread at a time.
"""

import base64
import contextlib
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from oubli.app.errors import FlushFailedError, StartError, StorageError
from oubli.app.ledger.deliveries import DeliveryTable
from oubli.app.ledger.downloads import check_keyed, read_pages
from oubli.app.ledger.entries import (
    ACCEPTED,
    ACCEPTED_KEY,
    CARRIED_OVER,
    EMPTY,
    ERASED,
    RELEASED,
    RESTRICTED,
    RETAINED,
    SIGNING_KEY,
    STATE,
    UNLEARNED,
    By,
    ChainError,
    DeliveryNotes,
    Entry,
    Head,
    IdempotencyRecord,
    Receipt,
    StatusFilter,
    body_of,
    check_entry,
    check_whole,
    hash_sample,
    hash_subject,
    keyed_of,
    make_entry,
    moment_of,
    original_of,
    read_notes,
)
from oubli.app.ledger.file import (
    COLUMNS,
    Cell,
    Opening,
    file_errors,
    insert,
    open_file,
    open_memory,
    replace_only,
)
from oubli.app.ledger.keys import HashingKey, KeyNames, LedgerKeys, signing_key_id
from oubli.app.ledger.log import TILE, Checkpoint, LogTable, NotPublished, is_own, read_checkpoint
from oubli.app.times import parse_time, to_text
from oubli.core.errors import FileError

LEDGER_NAME = "ledger.sqlite"
LOG_NAME = "oubli"
Relation = Literal["same or newer", "older", "forked"]
# What a late addition could bring back; a rectified sample is held.
_DELETIONS = ("deletion", "expiry")
_ERASED_NAME = "0" * 16  # beside a request, in place of a mark: something that it named was erased
_HASHES_AT_ONCE = 500  # in one query
_RECEIPTS = "SELECT content, targets, seq FROM receipts"
_ENTRIES = "SELECT hash, content, hashes FROM entries LEFT JOIN keyed USING (idx)"
_MODEL_VERSION = re.compile(rb'"model_version":([0-9]+)')
_HASHING_KEY = re.compile(rb'"hashing_key_id":"([0-9a-f]+)"')  # in the RFC 8785 form


class LedgerGapError(StartError):
    """The journal continues with an entry that does not follow the ledger's newest: entries between are missing."""


@dataclass(frozen=True, slots=True)
class PendingErasure:
    """An erasure that was acknowledged and is not finished.

    Attributes
    ----------
    receipt_id
        Its receipt.
    acknowledged_ms
        When, in milliseconds since 1970.
    seq
        Number of its journal record; 0 when it came with a downloaded ledger.
    n_samples
        How many samples it has unlearned; 0 when none of what was named was held.
    """

    receipt_id: str
    acknowledged_ms: int
    seq: int
    n_samples: int


# What an entry raises that has the right hash and says what no entry says.
_MISFITS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
)


class LedgerDatabase:
    """The ledger: entries, receipts, repeated requests.

    Parameters
    ----------
    path
        Of the file, made when there is none; None keeps it in memory.
    keys
        That sign and hash.
    log_name
        Of the logs that begin here.

    Attributes
    ----------
    deliveries
        The queue of deliveries.
    log
        The tree over the entries, and its checkpoints.

    Raises
    ------
    StartError
        When the file cannot be used, or is damaged.
    """

    def __init__(self, path: Path | None, keys: LedgerKeys, *, log_name: str = LOG_NAME) -> None:
        self._connection = open_memory() if path is None else open_file(path)
        self._keys = keys
        self._applied_seq: int
        self._witnessed_ms: int
        try:
            self.deliveries = DeliveryTable(self._connection)
            with file_errors():
                self.log = LogTable(self._connection, log_name)
            row = self._one("SELECT idx, hash FROM entries ORDER BY idx DESC LIMIT 1")
            self._head = EMPTY if row is None else Head(*row)
            ((self._applied_seq, self._witnessed_ms),) = self._all("SELECT applied_seq, witnessed_ms FROM state")
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        with file_errors():
            self._connection.close()

    # --- writing

    def fold_many(self, records: Sequence[tuple[int, bytes]], *, across_gap: bool = False) -> None:
        """Apply notes of journal records, all or none; those that were applied before are skipped.

        It can be tried again when it has failed.

        Parameters
        ----------
        records
            Numbers and notes, in order.
        across_gap
            What to do about entries that do not follow the ledger's newest: refuse them, or carry them over as the
            content of new entries. The latter is for an operator who continues without the entries that are missing.

        Raises
        ------
        LedgerGapError
            When entries are missing.
        StorageError
            When the file cannot be written.
        """
        with self._transaction():
            for seq, notes in records:
                if seq > self._applied_seq:
                    self._fold(seq, notes, across_gap=across_gap)
                    self._applied_seq = seq
            self._write_state()

    def flush(self) -> None:
        """Return when everything that was folded is on the disk.

        Raises
        ------
        StorageError
            When that fails.
        """
        row = self._one("PRAGMA wal_checkpoint(TRUNCATE)")
        if row is not None and row[0]:
            raise StorageError("the write-ahead log of the ledger's file could not be checkpointed")

    def copy_to(self, path: Path) -> None:
        """Write a copy of the file, as it is now, into a new one.

        Raises
        ------
        StorageError
            When it cannot be written.
        """
        with file_errors(), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            self._connection.backup(other)
            other.execute("PRAGMA journal_mode=DELETE").fetchall()  # one file, without those beside it

    def witness(self, now_ms: int) -> None:
        """Write the time down, so that a start after quiet days does not take them for a leap of the clock."""
        with self._transaction():
            self._witnessed_ms = max(self._witnessed_ms, now_ms)
            self._write_state()

    def forget_idempotent(self, now_ms: int) -> None:
        """Forget repeated requests whose time is over, and all but the keys of those that named what was erased."""
        with self._transaction():
            for record in self._requests("key IN (SELECT key FROM named WHERE name = ?)", _ERASED_NAME):
                self._write_request(record.spent())
            for record in self._requests("expires_ms <= ?", now_ms):
                self._connection.execute("DELETE FROM named WHERE key = ?", (record.key,))
                self._connection.execute("DELETE FROM idempotency WHERE key = ?", (record.key,))

    def forget_states(self, before: int) -> None:
        """Forget salt and digest of the states of versions before one."""
        with self._transaction():
            self._forget_states(before)

    def sign_checkpoint(self) -> Checkpoint | None:
        """Sign the head of the log; None before there is one."""
        with self._transaction():
            return self.log.sign(self._keys.signing)

    def publish(self, checkpoint: Checkpoint) -> None:
        """Answer a checkpoint from now on."""
        with self._transaction():
            self.log.publish(checkpoint)

    def adopt(self, path: Path, *, may_be_cut: bool = False) -> int:
        """Load a downloaded ledger that continues this one; return how many entries were new.

        Parameters
        ----------
        path
            See `downloads`.
        may_be_cut
            Whether to take a file that does not end with the signed head of its entries, too. This is for an operator
            who continues without the missing entries.

        Raises
        ------
        StartError
            When the file is damaged or was changed, ends before the ledger's end, does not continue this one, or has
            another history.
        """
        n_new, last, is_whole = 0, None, False
        with self._transaction():
            for entries, signed_head in read_pages(path):
                try:
                    for entry in entries:
                        last, is_whole = self._check_adopted(entry, last), False
                        if last.index > self._head.index:
                            check_keyed(entry)
                            self._append(entry, check_entry(entry, self._head), 0, {})
                            n_new += 1
                    is_whole |= last is not None and signed_head is not None and self._is_signed(signed_head, last)
                except (ChainError, *_MISFITS) as error:
                    how = error if isinstance(error, ChainError) else "an entry is not one of Oubli"
                    raise StartError(
                        f"the ledger {path} is not loaded: {how}. Download it again with `oubli ledger fetch` from the "
                        "server that wrote it last"
                    ) from None
            if not is_whole and not may_be_cut:
                raise StartError(
                    f"the ledger {path} is not taken in: it ends before the ledger's end, with entry "
                    f"{last.index if last else 0} and no signed head, so that erasures may be missing from it. "
                    "Download all of it with `oubli ledger fetch`, or start without what is missing with "
                    "--accept-missing erasures"
                )
        return n_new

    def _is_signed(self, note: str, head: Head) -> bool:
        """Whether a key that entries tell has signed the log up to an entry that is here."""
        checkpoint = read_checkpoint(note)
        told = [self._entry_at(index) for (index,) in self._all("SELECT idx FROM signing_keys")]
        found = [(entry["key_id"], base64.b64decode(entry["public_key"])) for entry in map(original_of, told)]
        keys = [public for key_id, public in found if signing_key_id(public) == key_id]
        is_of_head = checkpoint.size == head.index and checkpoint.root == self.log.tree.root(head.index)
        return is_of_head and is_own(note, keys)

    def _check_adopted(self, entry: Any, last: Head | None) -> Head:
        """Check an entry against the one before in the file, and against the one of the same index here."""
        if last is None:
            check_whole(entry, 1)
        else:
            check_entry(entry, last)
        here = self.hash_at(entry["index"])
        if here is not None and here != entry["hash"]:
            raise ChainError(
                entry["index"], "differs from the one in the data directory: the two have different histories"
            )
        return Head.of(entry)

    def _fold(self, seq: int, notes: bytes, *, across_gap: bool) -> None:
        content = read_notes(notes)
        if content.request is not None:
            erased = "SELECT 1 FROM receipts WHERE id = ? AND status = 'erased'"  # by an earlier request
            is_over = self._one(erased, content.request.receipt) is not None
            self.deliveries.add_request(replace(content.request, state="completed") if is_over else content.request)
        for entry in content.entries:
            if self.hash_at(entry["index"]) == entry["hash"]:
                continue  # it came with a downloaded ledger
            try:
                body = check_entry(entry, self._head)
            except ChainError as error:
                if not across_gap:
                    raise LedgerGapError(
                        f"the ledger ends with entry {self._head.index}, and the journal continues with another than "
                        f"the next ({error}): erasures are missing from the ledger. Give the newer ledger with "
                        "--ledger FILE (`oubli ledger fetch`), or start without them with --accept-missing erasures"
                    ) from None
                self._carry_over(entry, seq, content.signatures, content.push)
            else:
                self._append(entry, body, seq, content.signatures, content.push)
        if content.deliveries is not None:
            self._note_deliveries(content.deliveries)
        for mark in content.erased:
            for (key,) in self._connection.execute("SELECT key FROM named WHERE name = ?", (mark,)).fetchall():
                self._write_name(_ERASED_NAME, key)
        if content.idempotency is not None:
            self._write_request(content.idempotency)

    def _carry_over(self, entry: Entry, seq: int, signatures: dict[str, str], push: Sequence[str]) -> None:
        at_ms = max(moment_of(entry), self.highest_ms() or 0)
        carried = {name: value for name, value in entry.items() if name not in ("keyed", "opening")}
        carrier = make_entry(self._head, CARRIED_OVER, to_text(at_ms), {"entry": carried})
        if "keyed" in entry:
            carrier["keyed"] = entry["keyed"]
        self._append(carrier, body_of(carrier), seq, signatures, push)

    def _note_deliveries(self, notes: DeliveryNotes) -> None:
        for receipt_id in notes.overdue:
            for receipt, _, _ in self._receipts("WHERE id = ? AND status = 'unlearned'", receipt_id):
                self.deliveries.add(notes.push, receipt.id, receipt.ref, "overdue", notes.at_ms)
        self.deliveries.note(notes)

    def _append(
        self, entry: Entry, body: bytes, seq: int, signatures: dict[str, str], push: Sequence[str] = ()
    ) -> None:
        """Write an entry that follows the newest, and what it means for receipts."""
        cells = (entry["index"], entry["hash"], body)
        self._connection.execute("INSERT INTO entries (idx, hash, content) VALUES (?, ?, ?)", cells)
        self._head = Head.of(entry)
        self.log.append(entry, body)
        original = original_of(entry)
        if original["type"] == UNLEARNED:
            receipt = Receipt.begun(original, signatures.get(str(original["index"]), ""))
            receipt = receipt if receipt.signature else receipt.signed(self._keys)
            keyed = keyed_of(entry)
            self._write_receipt("DO NOTHING", receipt, keyed["targets"], seq)
            if keyed is not original:
                kept = (entry["index"], receipt.id, orjson.dumps(keyed))
                insert(self._connection, "keyed", kept)
            self._push(receipt, moment_of(entry), push)
        elif original["type"] == ERASED:
            version = 0
            for name in original["receipts"]:
                found = self._connection.execute(f"{_RECEIPTS} WHERE id = ? AND status = 'unlearned'", (name,))
                for receipt, targets, seq_then in map(_read_receipt, found.fetchall()):
                    now = receipt.erased_by(original).signed(self._keys)
                    change = "DO UPDATE SET status = excluded.status, content = excluded.content, "
                    self._write_receipt(f"{change}checksum = excluded.checksum", now, targets, seq_then)
                    self._push(now, moment_of(entry), push)
                    version = max(version, now.model_version)
            self._forget_states(version)
        elif original["type"] == SIGNING_KEY:
            query = "INSERT INTO signing_keys (id, idx) VALUES (?, ?) ON CONFLICT (id) DO NOTHING"
            self._connection.execute(query, (original["key_id"], entry["index"]))
        elif entry["type"] == STATE:
            self._write_opening(entry["index"], entry["model_version"], Opening(**entry.get("opening") or {}))

    def _push(self, receipt: Receipt, at_ms: int, targets: Sequence[str]) -> None:
        """Have a state of a receipt told, and that of the request that it was made for."""
        self.deliveries.add(targets, receipt.id, receipt.ref, receipt.status, at_ms)
        state = "completed" if receipt.status == "erased" else "in_progress"
        for request in self.deliveries.requests_of(receipt.id):
            self.deliveries.add(request.callbacks, request.id, None, state, at_ms)

    def _write_receipt(self, when_there: str, receipt: Receipt, targets: str, seq: int) -> None:
        content = orjson.dumps(receipt.content())
        cells = (receipt.id, receipt.ref, receipt.kind, receipt.status, targets, receipt.unlearned, seq, content)
        insert(self._connection, "receipts", cells, then=f"ON CONFLICT (id) {when_there}")

    def _write_request(self, record: IdempotencyRecord) -> None:
        """Write what is known of a request that may be repeated, and which names its body held."""
        self._connection.execute("DELETE FROM named WHERE key = ?", (record.key,))
        *cells, names = astuple(record)
        insert(self._connection, "idempotency", cells, instead="OR REPLACE")
        for name in names:
            self._write_name(name, record.key)

    def _forget_states(self, before: int) -> None:
        """Forget salt and digest of all states of earlier versions."""
        query = "SELECT idx, model_version, schema FROM model_states WHERE salt IS NOT NULL AND model_version < ?"
        for index, version, schema in self._all(query, before):
            self._write_opening(index, version, Opening(schema=schema))

    def _write_opening(self, index: int, model_version: int, opening: Opening) -> None:
        insert(self._connection, "model_states", (index, model_version, *opening), instead="OR REPLACE")

    def _write_name(self, name: str, key: str) -> None:
        insert(self._connection, "named", (name, key), instead="OR IGNORE")

    def _write_state(self) -> None:
        replace_only(self._connection, "state", (self._applied_seq, self._witnessed_ms))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing; what is remembered of the file goes with it."""
        before, mark = (self._head, self._applied_seq, self._witnessed_ms), self.log.mark()
        with file_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._head, self._applied_seq, self._witnessed_ms = before
                self.log.rewind(mark)
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    # --- reading

    def head(self) -> Head:
        """Return the newest entry."""
        return self._head

    def applied_seq(self) -> int:
        """Return the number of the last journal record that was applied."""
        return self._applied_seq

    def highest_ms(self) -> int | None:
        """Return the highest time that was written down, in milliseconds since 1970; None when none was."""
        newest = self.entries(self._head.index - 1, 1)
        latest = max(self._witnessed_ms, moment_of(newest[0]) if newest else 0)
        return latest or None

    def introduces(self, key_id: str) -> bool:
        """Whether an entry holds a signing key's public half."""
        return self._one("SELECT 1 FROM signing_keys WHERE id = ?", key_id) is not None

    def entries(self, after_index: int, limit: int) -> list[Entry]:
        """Return the entries after one, in order."""
        return list(self._entries("WHERE idx > ? ORDER BY idx LIMIT ?", after_index, limit))

    def entries_of(self, receipt: Receipt) -> list[Entry]:
        """Return the entry that began an erasure and, where its receipt is in the last state, the one that ended it."""
        row = self._one("SELECT idx FROM keyed WHERE receipt = ?", receipt.id)
        # Earlier versions kept nothing that leads from a receipt to its entry.
        row = row or self._one("SELECT idx FROM entries WHERE instr(content, CAST(? AS BLOB)) ORDER BY idx", receipt.id)
        found = self.entries(row[0] - 1, 1)
        if receipt.status == "erased":
            last = self.entries(receipt.ledger_index - 1, 1)
            if not last or last[0]["hash"] != receipt.ledger_head:  # it was carried over
                where = "WHERE idx > ? AND instr(content, CAST(? AS BLOB)) ORDER BY idx LIMIT 1"
                last = list(self._entries(where, row[0], f'"hash":"{receipt.ledger_head}"'))
            found += last
        return found

    def page(self, after_index: int, limit: int, *, signs: bool) -> dict[str, Any]:
        """Return a page of the ledger as it is answered; see `GET /ledger`.

        Parameters
        ----------
        after_index, limit
            The entry that it begins behind, and the most entries.
        signs
            Whether the last page gets the signed head of the log.
        """
        found = self.entries(after_index, limit + 1)
        entries, is_last = found[:limit], len(found) <= limit
        # Beside the entries: it is not part of what is hashed.
        keyed = {str(entry["index"]): entry.pop("keyed") for entry in entries if "keyed" in entry}
        signed = None
        if signs and is_last:
            try:
                signed = self.sign_checkpoint()
            except StorageError as error:  # a full disk is no reason not to answer the entries
                if isinstance(error, FlushFailedError):
                    raise
        return {
            "entries": entries,
            "keyed": keyed,
            "next": None if is_last else str(entries[-1]["index"]),
            "checkpoint": None if signed is None else signed.note,
        }

    def entry_proof(self, index: int) -> str | NotPublished | None:
        """Return a proof that an entry is in the log; None when there is no such entry."""
        found = self.entries(index - 1, 1) if index > 0 else []
        return self.log.proof(found[0], [], {}) if found else None

    def erasure_proof(
        self, receipt_id: str, is_overdue: Callable[[str], bool], *, durable: bool
    ) -> str | NotPublished | None:
        """Return a proof that the entries of an erasure are in the log, with its receipt; None without such a receipt.

        Parameters
        ----------
        receipt_id
            Of the erasure.
        is_overdue
            Whether an erasure that is not finished should be.
        durable
            Whether what the receipt says survives the process, as answers say it.
        """
        receipt = self.receipt(receipt_id, is_overdue)
        if receipt is None:
            return None
        begun, *finished = self.entries_of(receipt)
        keyed = keyed_of(begun)
        extra: dict[str, Any] = {"receipt": {**receipt.content(), "durable": durable}}
        extra |= {name: keyed[name] for name in ("target_leaves", "sample_leaves") if name in keyed}
        return self.log.proof(begun, finished, extra)

    def entry_bundle(self, number: int, width: int) -> bytes | None:
        """Return the entries below the first hashes of a tile, each behind its length; None without so many."""
        if number * TILE + width > self.log.tree.size:
            return None
        bodies = [body_of(entry) for entry in self.entries(number * TILE, width)]
        return b"".join(len(body).to_bytes(2, "big") + body for body in bodies)

    def states_page(self, after: int, limit: int) -> list[Entry]:
        """Return the entries of states of the model after one, in order."""
        found = self._all("SELECT idx FROM model_states WHERE idx > ? ORDER BY idx LIMIT ?", after, limit)
        return [self._entry_at(index) for (index,) in found]

    def state_at(self, index: int) -> tuple[Entry, Opening] | None:
        """Return the entry of a state of the model with what belongs to it; None when it is not that of a state."""
        row = self._one("SELECT salt, digest, schema FROM model_states WHERE idx = ?", index)
        return None if row is None else (self._entry_at(index), Opening(*row))

    def states_of(self, model_version: int) -> list[tuple[Entry, Opening]]:
        """Return all states of a version of the model, the newest first."""
        found = self._all("SELECT idx FROM model_states WHERE model_version = ? ORDER BY idx DESC", model_version)
        return [state for (index,) in found if (state := self.state_at(index)) is not None]

    def _entry_at(self, index: int) -> Entry:
        return self.entries(index - 1, 1)[0]

    def hashing_key_of(self, receipt: Receipt) -> str | None:
        """Return the key that the openings of an erasure are made with; None where there are none."""
        entry = original_of(self.entries_of(receipt)[0])
        return str(entry["hashing_key_id"]) if "targets_root" in entry else None

    def has_signed(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint is of the log and one of our keys has signed it."""
        return checkpoint.origin == self.log.origin and is_own(
            checkpoint.note, [key.public for key in self._keys.all_signing]
        )

    def hash_at(self, index: int) -> str | None:
        """Return the hash of an entry; None when there is none."""
        row = self._one("SELECT hash FROM entries WHERE idx = ?", index)
        return None if row is None else str(row[0])

    def relation_to(self, index: int, hash: str) -> Relation:  # noqa: A002 - what it is called everywhere
        """Return how the ledger stands to one that ended with an entry.

        A ledger whose operator continued without missing entries counts as newer than what is missing.
        """
        known = EMPTY.hash if index == EMPTY.index else self.hash_at(index)
        # Up to the highest of these indices an operator continued without missing entries.
        accepted = (entry["snapshot_index"] for entry, _ in self._of_type(ACCEPTED))
        if known == hash or max(accepted, default=-1) >= index:
            return "same or newer"
        return "older" if known is None else "forked"

    def last_model_version(self) -> int:
        """Return the highest version of the model that an entry tells."""
        return max(map(int, self._found_in_entries(b'"model_version":', _MODEL_VERSION)), default=0)

    def count_of_type(self, kind: str) -> int:
        """Return how many entries are of a type."""
        ((count,),) = self._all("SELECT count(*) FROM entries WHERE instr(content, ?)", _type_mark(kind))
        return int(count)

    def named_keys(self) -> KeyNames:
        """Return the keys that entries name, less those that an operator went on without."""
        accepted = {entry["lost_key_id"] for entry, _ in self._of_type(ACCEPTED_KEY)}
        signing = {name for (name,) in self._all("SELECT id FROM signing_keys")}
        hashing = {name.decode("ascii") for name in self._found_in_entries(b'"hashing_key_id":', _HASHING_KEY)}
        return KeyNames(signing - accepted, hashing - accepted)

    def receipt(self, receipt_id: str, is_overdue: Callable[[str], bool]) -> Receipt | None:
        """Return a receipt as it is now.

        Parameters
        ----------
        receipt_id
            Which.
        is_overdue
            Whether the erasure of a receipt that is not erased should be.
        """
        return next(self._states_now(is_overdue, "WHERE id = ?", receipt_id), None)

    def receipts_page(
        self,
        after: int,
        limit: int,
        is_overdue: Callable[[str], bool],
        *,
        ref: str | None = None,
        status: StatusFilter | None = None,
        newest_first: bool = False,
    ) -> tuple[list[Receipt], int | None]:
        """Return receipts in the order in which they were made; see `receipt`.

        Parameters
        ----------
        after
            Where the page before ended; 0 for the first page.
        limit
            Most receipts.
        is_overdue
            Whether the erasure of a receipt that is not erased should be.
        ref
            The case number; None for all.
        status
            `overdue`: those that are not erased and should be; None for all.
        newest_first
            Whether the order is the other way.

        Returns
        -------
        list of Receipt, int or None
            The receipts, and where the page ends; None when it is the last.
        """
        conditions: list[str] = ["number < ?" if newest_first and after else "number > ?"]
        cells: list[Cell] = [after]
        stored = "unlearned" if status == "overdue" else status
        if ref is not None:
            conditions.append("ref = ?")
            cells.append(ref)
        if stored is not None:
            # Written into the text, so that the index of those that wait is used.
            conditions.append(f"status = '{stored}'")
        order = "number DESC" if newest_first else "number"
        query = f"SELECT number, content FROM receipts WHERE {' AND '.join(conditions)} ORDER BY {order}"  # noqa: S608
        found: list[tuple[int, Receipt]] = []
        with file_errors():
            for number, content in self._connection.execute(query, cells):
                receipt = Receipt.from_content(orjson.loads(content))
                if status == "overdue" and not is_overdue(receipt.id):
                    continue
                found.append((number, receipt))
                if len(found) > limit:
                    break
        page = found[:limit]
        return [one.now(is_overdue, self._keys) for _, one in page], page[-1][0] if found[limit:] else None

    def last_receipt_of(self, targets: Sequence[str], is_overdue: Callable[[str], bool]) -> Receipt | None:
        """Return the receipt of the last erasure of exactly these targets that found something; see `receipt`.

        Parameters
        ----------
        targets
            Keyed hashes of the set, one for each key; see `Ledger.target_hashes`.
        """
        rest = (
            f"WHERE targets IN ({_marks(targets)}) AND kind IN ({_marks(_DELETIONS)}) AND n_samples > 0 "
            "ORDER BY number DESC LIMIT 1"
        )
        return next(self._states_now(is_overdue, rest, *targets, *_DELETIONS), None)

    def found_by(self, receipt_id: str, names: Sequence[str], by: By) -> dict[str, int]:
        """Return of which of the names that an erasure was asked for something was held, and how many samples.

        Parameters
        ----------
        receipt_id
            Of the erasure. None are found where its hashing key is gone.
        names, by
            The ids or subjects, as they were asked for.
        """
        mark = b'"receipt":"%b"' % receipt_id.encode("ascii")
        for entry in self._entries("WHERE instr(content, ?) ORDER BY idx DESC", mark):
            for key in self._keys.hashing:
                if key.id != original_of(entry)["hashing_key_id"]:
                    continue
                keyed = keyed_of(entry)
                if by == "ids":
                    held = set(keyed["samples"])
                    return {name: 1 for name in names if hash_sample(key, name) in held}
                counts = dict(zip(keyed.get("subjects", ()), keyed.get("subject_samples", ()), strict=True))
                hashes = {name: hash_subject(key, name) for name in names}
                return {name: counts[known] for name, known in hashes.items() if known in counts}
        return {}

    def pending(self) -> list[PendingErasure]:
        """Return the erasures that are not finished, the oldest first."""
        return [
            PendingErasure(receipt.id, parse_time(receipt.unlearned_at), seq, receipt.unlearned)
            for receipt, _, seq in self._receipts("WHERE status = 'unlearned' ORDER BY number")
        ]

    def erased_since(self, ids: Sequence[str], model_version: int) -> dict[str, str]:
        """Return which of some ids were erased by a later version than this, and by what.

        Raises
        ------
        FileError
            When erasures since then cannot be told, because their hashing key was destroyed.
        """
        kinds: dict[str, str] = {}
        used: dict[str, None] = {}  # ids of keys, in the order in which they were used
        for entry, carrier in self._of_type(UNLEARNED):
            for known in keyed_of(carrier)["samples"] if entry["model_version"] > model_version else ():
                used[entry["hashing_key_id"]] = None
                _count(kinds, known, entry["kind"])
        found: dict[str, str] = {}
        for key in self._hashing_keys(
            used, "erasures whose hashing key is gone, so it is unknown which of its samples were erased since"
        ):
            for name in ids:
                kind = kinds.get(hash_sample(key, name))
                if kind is not None:
                    _count(found, name, kind)
        return found

    def restricted_since(self, subjects: Sequence[str], model_version: int) -> dict[str, Entry]:
        """Return the last entry about each of some subjects that were restricted or released by a later version.

        Raises
        ------
        FileError
            When restrictions since then cannot be told, because their hashing key was destroyed.
        """
        return self._last_words(subjects, model_version, (RESTRICTED, RELEASED))

    def retained_since(self, subjects: Sequence[str], model_version: int) -> dict[str, Entry]:
        """Return the last entry about each of some subjects whose retention a later version has set; see above."""
        return self._last_words(subjects, model_version, (RETAINED,))

    def _last_words(self, subjects: Sequence[str], model_version: int, kinds: Sequence[str]) -> dict[str, Entry]:
        last: dict[str, tuple[int, Entry]] = {}  # by keyed hash: place in the chain, and entry
        used: dict[str, None] = {}
        for kind in kinds:
            for entry, carrier in self._of_type(kind):
                if entry["model_version"] <= model_version:
                    continue
                used[entry["hashing_key_id"]] = None
                for known in entry["subjects"]:
                    if known not in last or last[known][0] < carrier["index"]:
                        last[known] = carrier["index"], entry
        found: dict[str, tuple[int, Entry]] = {}
        for key in self._hashing_keys(
            used,
            "restrictions or retention periods whose hashing key is gone, so it is unknown whose samples they were "
            "about",
        ):
            for subject in subjects:
                word = last.get(hash_subject(key, subject))
                if word is not None and (subject not in found or found[subject][0] < word[0]):
                    found[subject] = word
        return {subject: entry for subject, (_, entry) in found.items()}

    def receipts_about(self, targets: Sequence[str], is_overdue: Callable[[str], bool]) -> list[Receipt]:
        """Return the receipts of erasures and rectifications of exactly these targets, the oldest first; see `receipt`.

        Parameters
        ----------
        targets
            Keyed hashes of sets of ids or subjects; see `Ledger.target_hashes`.
        """
        found: dict[str, Receipt] = {}
        for start in range(0, len(targets), _HASHES_AT_ONCE):
            some = targets[start : start + _HASHES_AT_ONCE]
            for receipt in self._states_now(is_overdue, f"WHERE targets IN ({_marks(some)}) ORDER BY number", *some):
                found[receipt.id] = receipt
        return sorted(found.values(), key=lambda receipt: receipt.unlearned_at)

    def recently_erased(self, since_ms: int) -> list[tuple[str, int]]:
        """Return the keyed hashes of samples that were deleted or expired since a time, with when; the oldest first."""
        found: list[tuple[str, int]] = []
        for entry in self._entries("ORDER BY idx DESC"):
            if moment_of(entry) < since_ms:
                break
            original = original_of(entry)
            if original["type"] != UNLEARNED or original["kind"] not in _DELETIONS:
                continue
            at_ms = parse_time(original["unlearned_at"])
            if at_ms >= since_ms:
                found.extend((known, at_ms) for known in reversed(keyed_of(entry)["samples"]))
        found.reverse()
        return found

    def idempotent(self, key_hash: str, now_ms: int) -> IdempotencyRecord | None:
        """Return what is known of a request that is repeated.

        Parameters
        ----------
        key_hash
            Keyed hash of the caller's key.
        now_ms
            The time; what has expired by then is not known any more, and is forgotten by `forget_idempotent`.
        """
        return next(iter(self._requests("key = ? AND expires_ms > ?", key_hash, now_ms)), None)

    def _hashing_keys(self, ids: Iterable[str], older_than: str) -> list[HashingKey]:
        """Return the hashing keys of some ids; `FileError` for a snapshot that needs one that was destroyed."""
        keys = {key.id: key for key in self._keys.hashing}
        if not keys.keys() >= set(ids):
            raise FileError(f"it is older than {older_than}: use a newer snapshot")
        return [keys[one] for one in ids]

    # --- the tables

    def _all(self, query: str, *cells: Cell) -> list[Any]:
        with file_errors():
            return self._connection.execute(query, cells).fetchall()

    def _one(self, query: str, *cells: Cell) -> Any:
        """Return the first row, None when there is none."""
        with file_errors():
            return self._connection.execute(query, cells).fetchone()

    def _entries(self, rest: str, *cells: Cell) -> Iterator[Entry]:
        """Read entries one by one: there can be more of them than memory has room for."""
        with file_errors():
            for known, body, keyed in self._connection.execute(f"{_ENTRIES} {rest}", cells):
                entry = {**orjson.loads(body), "hash": known}
                if keyed is not None:
                    entry["keyed"] = orjson.loads(keyed)
                yield entry

    def _of_type(self, kind: str) -> Iterator[tuple[Entry, Entry]]:
        """Return the entries of a type, each with the one that carries it over, or with itself."""
        for carrier in self._entries("WHERE instr(content, ?) ORDER BY idx", _type_mark(kind)):
            entry = original_of(carrier)
            if entry["type"] == kind:
                yield entry, carrier

    def _found_in_entries(self, name: bytes, pattern: re.Pattern[bytes]) -> Iterator[bytes]:
        """Return what follows a name in entries of whatever type."""
        with file_errors():
            for (content,) in self._connection.execute("SELECT content FROM entries WHERE instr(content, ?)", (name,)):
                yield from pattern.findall(content)

    def _receipts(self, rest: str, *cells: Cell) -> list[tuple[Receipt, str, int]]:
        """Return receipts as they were written, the hashes of their targets, and the numbers of their records."""
        return list(map(_read_receipt, self._all(f"{_RECEIPTS} {rest}", *cells)))

    def _requests(self, condition: str, *cells: Cell) -> list[IdempotencyRecord]:
        """Return what is known of repeatable requests, without the names in their bodies."""
        query = f"SELECT {COLUMNS['idempotency']} FROM idempotency WHERE {condition}"  # noqa: S608 - ours
        return [IdempotencyRecord(*row) for row in self._all(query, *cells)]

    def _states_now(self, is_overdue: Callable[[str], bool], rest: str, *cells: Cell) -> Iterator[Receipt]:
        return (receipt.now(is_overdue, self._keys) for receipt, _, _ in self._receipts(rest, *cells))


def _read_receipt(row: tuple[bytes, str, int]) -> tuple[Receipt, str, int]:
    content, targets, seq = row
    return Receipt.from_content(orjson.loads(content)), targets, seq


def _type_mark(kind: str) -> bytes:
    return b'"type":"%b"' % kind.encode("ascii")


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _count(kinds: dict[str, str], name: str, kind: str) -> None:
    """Note what a sample was erased by: rectified and deleted, in whatever order, is deleted."""
    if kind != "rectification" or name not in kinds:
        kinds[name] = kind
