"""The side of the ledger that belongs to the event loop: makes entries and signed receipts, in memory only.

What it makes becomes true when the journal has it. A commit that fails is taken back with `rewind`.

The database is made from the notes and may lag behind the journal, also across a crash. It is written by `LedgerWorker`
in a thread, when no request waits or when many records have collected: a thread at work beside the event loop makes
every request wait for its turn at the interpreter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from oubli.app.errors import FlushFailedError, StorageError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.entries import (
    DISCLOSURE_LIMITS,
    ERASED,
    EVENT_TYPE,
    RESERVED_TYPES,
    SIGNING_KEY,
    STATE,
    UNLEARNED,
    By,
    Entry,
    Head,
    Receipt,
    ReceiptKind,
    as_text,
    entry_notes,
    hash_sample,
    hash_subject,
    hash_targets,
    keyed_hash,
    leaves_of,
    make_entry,
    marks_of,
    opening_of,
    root_of,
    sign,
)
from oubli.app.ledger.file import Opening
from oubli.app.ledger.keys import LedgerKeys
from oubli.app.ledger.log import log_key
from oubli.app.logs import cause_of
from oubli.app.storage.journal import Record
from oubli.app.threads import Threads
from oubli.app.times import Clock, to_text

log = logging.getLogger("oubli.service")

T = TypeVar("T")
Notes = bytes
Field = str | int | bool | None
# Words of this program, numbers, versions, times: too poor for a name and an address.
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,127}")
_RETRY = 1.0  # seconds
_WAIT = 0.02  # seconds between two checks whether no request waits
_MOST = 2000  # records that may wait
_RESERVED = frozenset({"index", "previous", "type", "at", "hash"})


class Unlearned(NamedTuple):
    """The receipt, notes and hashes of an erasure.

    Attributes
    ----------
    receipt, notes
        For the caller, and for the journal.
    hashes
        The keyed hashes of the samples, under the current key.
    """

    receipt: Receipt
    notes: Notes
    hashes: list[str]


class Ledger:
    """Makes entries and receipts, from the end of a ledger on. It belongs to the event loop.

    Parameters
    ----------
    database
        The ledger so far.
    keys
        That sign and hash.
    now_ms
        The time of events: that of the service's clock, so that a leap that is not confirmed is not written down.
        Without it there is a clock of its own that goes by the same rules.

    Attributes
    ----------
    head
        The newest entry.
    """

    def __init__(self, database: LedgerDatabase, keys: LedgerKeys, now_ms: Callable[[], int] | None = None) -> None:
        latest, self.head = database.highest_ms(), database.head()
        self._keys = keys
        self._signing, self._hashing = keys.signing, keys.hashing  # they are rotated while no server runs
        self._now_ms = Clock(latest).now_ms if now_ms is None else now_ms
        self._latest_ms = latest or 0  # no later entry has an earlier time
        # Index of the entry that told the current signing key, or of a later one; None when none did.
        self._introduced_at = self.head.index if database.introduces(keys.signing.id) else None
        self._text = (0, to_text(0))  # a time and how it is written: an erasure has the same one thrice

    def resume(self, head: Head, latest_ms: int, *, is_introduced: bool) -> None:
        """Continue where another node has ended.

        Parameters
        ----------
        head
            The newest entry of the database.
        latest_ms
            The highest time in it.
        is_introduced
            Whether an entry introduces the key that signs here.
        """
        self.head = head
        self._latest_ms = max(self._latest_ms, latest_ms)
        self._introduced_at = head.index if is_introduced else None

    @property
    def signing_id(self) -> str:
        """The id of the current signing key."""
        return self._signing.id

    def unlearned(
        self,
        *,
        kind: ReceiptKind,
        guarantee: str,
        disclosure: str,
        requested: int,
        unlearned_ids: Sequence[str],
        targets: Sequence[str],
        by: By,
        absent: int,
        ref: str | None,
        model_version: int,
        received_at: int,
        unlearned_at: int,
        exported: int,
        deadline_ms: int,
        found: Mapping[str, int] | None = None,
        push: Sequence[str] = (),
    ) -> Unlearned:
        """Make the entry and the receipt of an erasure.

        Parameters
        ----------
        kind, guarantee, disclosure, requested, absent, model_version
            See `receipts.Receipt`.
        unlearned_ids
            Samples that no prediction depends on any more; only their keyed hashes are kept.
        targets, by
            The ids or subjects named; only a keyed hash of the set is kept.
        ref
            The caller's case number, a UUID.
        received_at, unlearned_at
            When, in milliseconds since 1970; it was not received later than it was unlearned, whatever two clocks say.
        exported
            Snapshots that were handed out while one of the samples was held.
        deadline_ms
            How long it may take from now until no file holds anything of it.
        found
            Where subjects are named: those of whom something was held, and how many samples; only keyed hashes are
            kept of them.
        push
            Targets to which it is delivered.
        """
        entries = self._introduction()
        key, hashing = self._signing, self._hashing[0]
        receipt_id, hashes = _new_id(), [hash_sample(hashing, name) for name in unlearned_ids]
        opening = opening_of(hashing, receipt_id)
        target_leaves = leaves_of(opening, by, targets)
        is_same = by == "ids" and list(targets) == list(unlearned_ids)
        targets_root = samples_root = root_of(target_leaves)
        keyed: dict[str, Any] = {
            "samples": hashes,
            "targets": hash_targets(hashing, targets, by),
            "target_leaves": as_text(target_leaves),
        }
        if not is_same:
            sample_leaves = leaves_of(opening, "ids", unlearned_ids)
            samples_root = root_of(sample_leaves)
            keyed["sample_leaves"] = as_text(sample_leaves)
        if found:
            keyed["subjects"] = [hash_subject(hashing, subject) for subject in found]
            keyed["subject_samples"] = list(found.values())
        entry = self._append(
            UNLEARNED,
            unlearned_at,
            {
                "receipt": receipt_id,
                "ref": None if ref is None else str(uuid.UUID(ref)),
                "kind": kind,
                "guarantee": guarantee,
                "disclosure": disclosure,
                "disclosure_limits": DISCLOSURE_LIMITS[disclosure],
                "by": by,
                "held": absent < requested,
                "requested": requested,
                "unlearned": len(unlearned_ids),
                "absent": absent,
                "exported_snapshots": exported,
                "model_version": model_version,
                "received_at": self._to_text(min(received_at, unlearned_at)),
                "unlearned_at": self._to_text(unlearned_at),
                "deadline": to_text(unlearned_at + deadline_ms),
                "key_id": key.id,
                "hashing_key_id": hashing.id,
                "samples_root": samples_root,
                "targets_root": targets_root,
            },
        )
        entry["keyed"] = keyed
        entries.append(entry)
        draft = Receipt.begun(entry)
        signature = sign(key, draft.signed_form())
        named = {("subject" if by == "subjects" else "id", name) for name in targets}
        named.update(("id", name) for name in unlearned_ids)
        marks = [mark for one in self._hashing for mark in marks_of(one, named)]
        notes = entry_notes(entries, {str(entry["index"]): signature}, push, marks)
        return Unlearned(Receipt(*draft[:-1], signature), notes, hashes)

    def erased(
        self,
        receipt_ids: Sequence[str],
        *,
        erased_at: int,
        deadline_ms: int,
        overdue: Sequence[str] = (),
        push: Sequence[str] = (),
    ) -> Notes:
        """Make the one entry that says that erasures are finished.

        Parameters
        ----------
        receipt_ids
            Their receipts.
        erased_at
            Since when no file holds anything of them, in milliseconds since 1970.
        deadline_ms
            How long each was allowed to take, from its acknowledgement.
        overdue
            The receipts of those that took longer.
        push
            Targets to which it is delivered.
        """
        entries = self._introduction()
        fields = {
            "receipts": [str(uuid.UUID(name)) for name in receipt_ids],
            "erased_at": to_text(erased_at),
            "deadline_ms": deadline_ms,
            "overdue": [str(uuid.UUID(name)) for name in overdue],
            "key_id": self._signing.id,
        }
        entries.append(self._append(ERASED, erased_at, fields))
        return entry_notes(entries, push=push)

    def restriction(
        self,
        *,
        kind: Literal["restricted", "released", "retained"],
        at_ms: int,
        subjects: Sequence[str],
        fields: Mapping[str, Field],
    ) -> tuple[Entry, Notes]:
        """Make the entry of subjects that are restricted, released or kept for some time; return it with its notes.

        Parameters
        ----------
        kind
            Which of the three.
        at_ms
            When, in milliseconds since 1970.
        subjects
            Those named, whether something is held of them or not; only their keyed hashes are kept.
        fields
            Counts, the case number, and words of this program.
        """
        entries, hashing = self._introduction(), self._hashing[0]
        known = [hash_subject(hashing, subject) for subject in subjects]
        entry = self._append(kind, at_ms, {**fields, "hashing_key_id": hashing.id, "subjects": known})
        return entry, entry_notes([*entries, entry])

    def model_state(self, fields: Mapping[str, Field], opening: Opening) -> tuple[Entry, Notes]:
        """Make the entry of a state of the model; return it with its notes. See `states`."""
        entries = self._introduction()
        entry = self._append(STATE, self._now_ms(), fields)
        entry["opening"] = opening._asdict()
        return entry, entry_notes([*entries, entry])

    def event(self, kind: str, fields: Mapping[str, Field]) -> Notes:
        """Make the entry of something else that happened.

        Parameters
        ----------
        kind
            Its type, such as ``"restore"``.
        fields
            Numbers, and words of this program.

        Raises
        ------
        ValueError
            When a field could be free text, or has a name that entries use themselves.
        """
        if not EVENT_TYPE.fullmatch(kind) or kind in RESERVED_TYPES or not _RESERVED.isdisjoint(fields):
            raise ValueError("an event needs a type of its own, and no field that every entry has")
        for value in fields.values():
            if isinstance(value, str) and not _WORD.fullmatch(value):
                raise ValueError("an event may hold numbers and single words, but no free text")
        entries = self._introduction()
        entries.append(self._append(kind, self._now_ms(), fields))
        return entry_notes(entries)

    def rewind(self, head: Head) -> None:
        """Forget the entries after a head: the journal does not have them."""
        self.head = head
        if self._introduced_at is not None and self._introduced_at > head.index:
            self._introduced_at = None

    def hashes_of(self, sample_id: str) -> tuple[str, ...]:
        """Return the keyed hashes of an id under every key that is known, the current one first."""
        return tuple(hash_sample(key, sample_id) for key in self._hashing)

    def target_hashes(self, names: Iterable[str], by: By) -> tuple[str, ...]:
        """Return the keyed hashes of a set of ids or subjects under every key that is known, the current one first."""
        names = list(names)
        return tuple(hash_targets(key, names, by) for key in self._hashing)

    def marks(self, names: Iterable[tuple[str, str]]) -> list[str]:
        """Return short keyed hashes of ids and subjects, by which an erasure finds the requests that named them."""
        return marks_of(self._hashing[0], names)

    def hash_text(self, text: str) -> str:
        """Return the keyed hash of any other text under the current key."""
        return self.text_hashes(text)[0]

    def text_hashes(self, text: str) -> tuple[str, ...]:
        """Return the keyed hashes of any other text under every key that is known, the current one first."""
        return tuple(keyed_hash(key, b"text\0" + text.encode("utf-8")) for key in self._hashing)

    def opening_of(self, receipt_id: str, key_id: str) -> bytes | None:
        """Return the opening of an erasure; None when the hashing key is gone that it was made with."""
        key = next((key for key in self._hashing if key.id == key_id), None)
        return None if key is None else opening_of(key, receipt_id)

    def sign(self, content: bytes) -> tuple[str, str]:
        """Return the id of the current signing key, and its signature of something that is not in the ledger."""
        return self._signing.id, sign(self._signing, content)

    def public_keys(self, origin: str | None = None) -> list[dict[str, Any]]:
        """Return the public keys that receipts and checkpoints are checked with, the current one first.

        Parameters
        ----------
        origin
            Of the log; None before there is one.
        """
        made = (None if origin is None else log_key(origin, key.public) for key in self._keys.all_signing)
        return [{**key, "log_key": text} for key, text in zip(self._keys.public_keys(), made, strict=True)]

    def _introduction(self) -> list[Entry]:
        """Return the entry that tells the signing key, if there is none yet."""
        if self._introduced_at is not None:
            return []
        key = self._signing.describe()
        fields = {name: key[name] for name in ("key_id", "algorithm", "public_key")}
        entry = self._append(SIGNING_KEY, self._now_ms(), fields)
        self._introduced_at = entry["index"]
        return [entry]

    def _append(self, kind: str, at_ms: int, fields: Mapping[str, Any]) -> Entry:
        self._latest_ms = max(self._latest_ms, at_ms)
        entry = make_entry(self.head, kind, self._to_text(self._latest_ms), fields)
        self.head = Head.of(entry)
        return entry

    def _to_text(self, at_ms: int) -> str:
        if self._text[0] != at_ms:
            self._text = (at_ms, to_text(at_ms))
        return self._text[1]


def _new_id() -> str:
    """Return a random UUID, as `uuid.uuid4` writes it."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


# --- what was erased lately


class Tombstones:
    """The ids erased so lately that a late retry could bring a person back; known by keyed hashes only.

    Parameters
    ----------
    period_ms
        How long an id is remembered; 0 remembers nothing.
    hashes
        Returns the keyed hashes of an id: one for each key that is known, the current one first.
    now_ms
        The steady time: a clock that is set must neither end the period nor prolong it.
    erased
        Hash and steady time of what was erased before, oldest first.
    """

    def __init__(
        self,
        period_ms: int,
        hashes: Callable[[str], Sequence[str]],
        now_ms: Callable[[], int],
        erased: Iterable[tuple[str, int]] = (),
    ) -> None:
        self._period_ms = period_ms
        self._hashes = hashes
        self._now_ms = now_ms
        # Many are kept: half of a hash names an id as well, and places in order need no times of their own.
        self._times: dict[bytes, int] = {}
        self._order: deque[bytes] = deque()
        self._n_stale: Counter[bytes] = Counter()  # places in order of what was erased again since
        self.replace(erased)

    def replace(self, erased: Iterable[tuple[str, int]]) -> None:
        """Remember these instead, given as at the beginning."""
        self._times.clear()
        self._order.clear()
        self._n_stale.clear()
        for known, at in erased:
            self._remember(known, at)

    def add(self, hashes: Iterable[str], at_ms: int) -> None:
        """Note that ids were erased, by their hashes under the current key."""
        if self._period_ms:
            self._forget()
            for known in hashes:
                self._remember(known, at_ms)

    def holds(self, sample_id: str) -> bool:
        """Whether an id was erased within the period."""
        self._forget()
        return bool(self._times) and any(_half(known) in self._times for known in self._hashes(sample_id))

    def _remember(self, known: str, at_ms: int) -> None:
        half = _half(known)
        if half in self._times:
            self._n_stale[half] += 1
        self._times[half] = at_ms
        self._order.append(half)

    def _forget(self) -> None:
        end = self._now_ms() - self._period_ms
        while self._order:
            half = self._order[0]
            if half in self._n_stale:
                self._n_stale[half] -= 1
                if not self._n_stale[half]:
                    del self._n_stale[half]
            elif self._times[half] > end:
                return
            else:
                del self._times[half]
            self._order.popleft()


def _half(known: str) -> bytes:
    return bytes.fromhex(known[:32])


# --- its database


@dataclass(eq=False, repr=False)
class LedgerWorker:
    """The one user of the ledger's database while the server runs.

    Parameters
    ----------
    database
        The ledger's.
    threads
        One is for it.
    is_idle
        Whether no request waits at present.
    failed
        Called when the database and the journal do not fit together.
    """

    _database: LedgerDatabase
    _threads: Threads
    _is_idle: Callable[[], bool]
    _failed: Callable[[], object]
    _due: list[tuple[int, bytes]] = field(default_factory=list, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _bells: list[asyncio.Event] = field(default_factory=list, init=False)

    def bell(self) -> asyncio.Event:
        """Return an event that is set whenever there is something new."""
        self._bells.append(asyncio.Event())
        return self._bells[-1]

    def write(self, records: Sequence[Record]) -> None:
        """Have the notes of records written, soon and in order."""
        due = [(record.seq, record.notes) for record in records if record.notes]
        if due:
            self._due.extend(due)
            self._wake.set()
            for bell in self._bells:
                bell.set()

    @property
    def n_due(self) -> int:
        """How many records of the journal are not in the database."""
        return len(self._due)

    async def read(self, question: Callable[[LedgerDatabase], T]) -> T:
        """Ask the database, after all that was written before."""
        return await self._threads.audit(partial(self._ask, question))

    async def flush(self) -> None:
        """Return when all that was written is on the disk."""
        await self.read(lambda database: database.flush())

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    async def run(self) -> None:
        """Write what is due, until cancelled or failed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not await self._write_due():
                return

    async def _write_due(self) -> bool:
        """Write what is due when no request waits; false when nothing can be written any more."""
        told = False
        while len(self._due) < _MOST and not self._is_idle():  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(_WAIT)
        while True:
            try:
                await self._threads.audit(self._drain)
                return True
            except FlushFailedError:
                log.error("a flush of the ledger's file failed")
                self._failed()
                return False
            except StorageError:
                # A full disk, say. The journal has it all, and what is not written waits here.
                if not told:
                    log.error(
                        "the ledger's file cannot be written, and it is tried again: free disk space, and check its "
                        "permissions"
                    )
                told = True
                await asyncio.sleep(_RETRY)
            except Exception as error:
                log.error("the ledger cannot apply the journal's records: %s", cause_of(error))
                self._failed()
                return False

    def _ask(self, question: Callable[[LedgerDatabase], T]) -> T:
        self._drain()
        return question(self._database)

    def _drain(self) -> None:
        """Runs in the ledger's thread; during this the loop only appends to the list."""
        due = self._due
        while due:
            n = len(due)
            self._database.fold_many(due[:n])
            del due[:n]
