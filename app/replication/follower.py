"""The follower of a journal: applies the leader's records to the model, the ledger, and the list of erasures.

    journal thread   reads what is new; a notification ends the wait
    event loop       applies short changes in the turn of a mutation, long ones in slices, or on a copy in a thread

A gap, a record that does not fit the model, or a restore (whose record has no body) makes the node rejoin. A journal
that does not have what was applied here was set back: a person has to settle that, and the files stay. They also stay
where a newer version has written records that this one cannot read: the node continues from them when it is upgraded.

Where a segment of the journal begins, a `Boundary` brings the files of the node up to it:

    turn of the mutations   model copied exactly before the segment's first record
    mutations continue      copy written as both generations; ledger flushed, digests in it forgotten
                            older snapshots removed; other holders of erased samples are waited for
                            keys of earlier segments destroyed
                            reported: nothing here holds what was erased before the segment

The digest of the snapshot is compared with that of the leader, both keyed with the key of the segment.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import orjson

from oubli.app.errors import JournalDamagedError, JournalError, StorageError
from oubli.app.ledger.entries import ERASED, EXPORT, REGROWN, RESTORE, UNLEARNED, original_of
from oubli.app.logs import cause_of
from oubli.app.replication.lease import Lease, View
from oubli.app.service.changes.additions import AddBody
from oubli.app.service.changes.command import MANY_NAMES, Names, names_of
from oubli.app.service.changes.deletions import DeleteBody
from oubli.app.service.changes.restrictions import RestrictionBody, RetainBody
from oubli.app.service.compiling import prepare_kernels
from oubli.app.service.jobs.fits import FitBody, another_estimator, refit
from oubli.app.service.memory import let_go_of, without_collector
from oubli.app.service.model.state import Pending
from oubli.app.service.recovery.start import Body, SampleBody, UnknownBodyError, decode
from oubli.app.service.roles import Host
from oubli.app.storage.journal import Record
from oubli.app.storage.postgres.database import Cluster, SegmentRow
from oubli.app.storage.postgres.journal import PostgresJournal
from oubli.app.storage.postgres.records import Positioned
from oubli.app.storage.segment_keys import SegmentKeys
from oubli.app.storage.snapshots import Facts
from oubli.app.times import LONGEST_PAUSE, LOOP_BUDGET, parse_time
from oubli.core.errors import OubliError
from oubli.core.estimators import KINDS
from oubli.core.model import Model
from oubli.core.planning import Plan, Turn

log = logging.getLogger("oubli.cluster")

_PATIENCE = 10.0  # seconds for which work that holds erased samples may continue
_RETRY = 1.0  # seconds


class Boundary:
    """It belongs to the event loop.

    Parameters
    ----------
    service
        Whose model is written.
    keys
        Of the segments.
    lease
        Asks the database.
    erased_seq
        Up to which record nothing here holds what was erased.

    Attributes
    ----------
    erased_seq
        The current number.
    digests_equal
        Whether the digest was the leader's at the last boundary that both have reported; None while that is unknown.
    hindrance
        Why the snapshot that is due could not be written when it was tried last; None when it could.
    """

    def __init__(self, host: Host, keys: SegmentKeys, lease: Lease, erased_seq: int) -> None:
        self._host = host
        self._keys = keys
        self._lease = lease
        self._crossed = 0
        self._mac: tuple[int, bytes] | None = None  # of the last boundary
        self._writing: asyncio.Task[None] | None = None
        seen = () if lease.view is None else lease.view.segments
        self._key_of = {row.first_seq: row.key_id for row in seen}  # of all segments that were seen
        self.erased_seq = erased_seq
        self.digests_equal: bool | None = None
        self.hindrance: str | None = None

    def is_before(self, first_seq: int) -> bool:
        """Whether a segment is known to begin with a record, and was not crossed into."""
        view = self._lease.view
        return (
            first_seq != self._crossed and view is not None and any(row.first_seq == first_seq for row in view.segments)
        )

    def begin_again(self, erased_seq: int) -> None:
        """Follow again, after this node has led."""
        self.erased_seq = max(self.erased_seq, erased_seq)
        self._mac, self.digests_equal = None, None
        self._crossed = 0

    async def cross(self, first_seq: int) -> None:
        """Copy the model, in the turn of a mutation, and do the rest while changes continue."""
        if first_seq == self._crossed:
            return
        await self.settle()
        host, state = self._host, self._host.live.state
        self._crossed = first_seq
        copy = await self._host.live.copied()
        head = await host.disk.database.read(lambda database: database.head())
        host.disk.ledger.rewind(head)
        facts = host.disk.facts(state)
        forgets = bool(state.pending)
        work = self._written(first_seq, copy, facts, state.period - 1, forgets=forgets)
        self._writing = host.live.threads.begin(work, endless=True)

    @property
    def is_busy(self) -> bool:
        """Whether something is being written."""
        return self._writing is not None and not self._writing.done()

    async def settle(self) -> None:
        """Return when nothing is being written any more."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    def compare(self, view: View) -> None:
        """Compare the digest with the leader's, once both are reported."""
        if self._mac is None:
            return
        first_seq, mac = self._mac
        for row in view.segments:
            if row.first_seq == first_seq and row.mac is not None:
                self._mac = None
                self.digests_equal = hmac.compare_digest(row.mac, mac)

    def tell(self, first_seq: int, digest: str) -> None:
        """Tell the digest of this node, which leads, before a segment's first record."""
        epoch = self._lease.epoch

        def post(tables: Cluster) -> None:
            for row in tables.segments():
                mac = self._keyed(row, digest) if row.first_seq == first_seq else None
                if mac is not None and epoch is not None:
                    tables.post_mac(first_seq, mac, epoch)

        self._lease.ask(post)

    def _keyed(self, row: SegmentRow, digest: str) -> bytes | None:
        key = self._keys.get(row.key_id)
        if key is None:  # nothing was written with it yet
            return None
        return hmac.new(key.secret, digest.encode("ascii"), hashlib.sha256).digest()

    async def _written(self, first_seq: int, copy: Model, facts: Facts, period: int, *, forgets: bool) -> None:
        host, is_exact = self._host, copy.guarantee == "exact"
        try:
            with without_collector():
                while True:
                    try:
                        digest = await self._write_snapshot(copy, facts, forgets=forgets)
                        break
                    except StorageError as error:
                        if self.hindrance is None:
                            log.error(
                                "the snapshot of this node cannot be written, and is tried again: %s. Erasures of "
                                "the whole cluster wait for it, and the node falls behind: check its disk",
                                cause_of(error),
                            )
                        self.hindrance = cause_of(error)
                        await asyncio.sleep(_RETRY)
                if self.hindrance is not None:
                    self.hindrance = None
                    log.warning("the snapshot of this node can be written again")
        finally:
            await host.live.threads.save(partial(let_go_of, copy))
            del copy
        await host.live.holders.rid(period, _PATIENCE)
        rows = await self._segments()
        for row in rows:
            if row.first_seq == first_seq and is_exact:
                mac = self._keyed(row, digest)
                self._mac = None if mac is None else (first_seq, mac)
        await host.live.threads.save(partial(self._destroy_keys, first_seq, rows))
        self.erased_seq = max(self.erased_seq, first_seq - 1)

    async def _write_snapshot(self, copy: Model, facts: Facts, *, forgets: bool) -> str:
        host = self._host
        snapshot = await host.live.threads.save(partial(host.disk.storage.write, copy, facts, twice=True))
        now = host.live.clock.steady_ms()
        await host.disk.database.read(lambda database: database.forget_idempotent(now))
        if forgets:  # a digest of before an erasure confirms guesses about what it has erased
            await host.disk.database.read(lambda database: database.forget_states(facts.model_version))
        await host.disk.database.flush()
        await host.live.threads.save(host.disk.storage.snapshots.keep_newest)
        return snapshot.digest

    async def _segments(self) -> Sequence[SegmentRow]:
        while True:
            try:
                return await asyncio.wrap_future(self._lease.ask(lambda tables: tables.segments()))
            except JournalError:
                await asyncio.sleep(_RETRY)

    def _destroy_keys(self, first_seq: int, rows: Sequence[SegmentRow]) -> None:
        """Destroy the keys of earlier segments, those included that the leader has dropped since they were seen."""
        self._key_of.update((row.first_seq, row.key_id) for row in rows)
        gone = [first for first in self._key_of if first < first_seq]
        self._keys.destroy(self._key_of[first] for first in gone)
        for first in gone:
            del self._key_of[first]


_AT_ONCE = 256  # records
_WAIT = 0.2  # seconds for a notification
_RETRY_READ = 0.2  # seconds
_ATTEMPTS = 10  # to read what seems damaged: the key of a segment may be on its way


class RejoinError(Exception):
    """The node cannot continue from its files; the text says why, for the log."""


class NewerVersionError(Exception):
    """The journal holds what a newer version has written, and this one cannot read."""


class SetBackError(Exception):
    """The journal does not have what this node has applied."""


class Follower:
    """Follows the journal. It belongs to the event loop.

    Parameters
    ----------
    service
        Whose model follows.
    journal
        What is followed; used in the thread of the journal.
    boundary
        What is done where segments begin.
    last
        Epoch and checksum of the record that was applied last; None where they are unknown.

    Attributes
    ----------
    is_caught_up
        Whether it has been at the journal's end since it began.
    in_step_at
        When it was there last, in seconds of `time.monotonic`.
    """

    def __init__(
        self,
        host: Host,
        journal: PostgresJournal,
        boundary: Boundary,
        last: tuple[int, bytes] | None = None,
    ) -> None:
        self._host = host
        self._state = host.live.state
        self._journal = journal
        self._boundary = boundary
        self._last = last
        self._is_ending = False
        host.live.holders.register("records", lambda _: journal.forget())
        self.is_caught_up = False
        self.in_step_at = time.monotonic()

    async def run(self) -> None:
        """Follow until `end` is called.

        Raises
        ------
        RejoinError
            When the node has to begin with another snapshot.
        SetBackError
            When the journal was set back.
        NewerVersionError
            When a record is of a newer version.
        """
        n_damaged = 0
        while not self._is_ending:
            try:
                batch = await self._host.live.threads.write(self._read)
            except JournalDamagedError as error:
                n_damaged += 1
                if n_damaged >= _ATTEMPTS:
                    raise RejoinError("records that come next cannot be read") from error
                await asyncio.sleep(_RETRY_READ)
                continue
            except JournalError:
                await asyncio.sleep(_RETRY_READ)
                continue
            n_damaged, is_at_end = 0, not batch
            await self._take_in_all(batch)
            if is_at_end:
                await self._cross_idly()

    def end(self) -> None:
        """Have `run` return after what it is at."""
        self._is_ending = True

    async def catch_up(self) -> None:
        """Take in all records that there are; for a node that leads from now on, so that no more come.

        Raises
        ------
        RejoinError, SetBackError, NewerVersionError
            When that cannot be.
        JournalError
            When they cannot be read.
        """
        while True:
            try:
                batch = await self._host.live.threads.write(partial(self._read, wait=0))
            except JournalDamagedError as error:
                raise RejoinError("records that come next cannot be read") from error
            if not batch:
                return
            await self._take_in_all(batch)  # which empties it

    # --- reading, in the thread of the journal

    def _read(self, wait: float = _WAIT) -> list[Positioned]:
        after = self._state.seq
        found = self._next(after)
        if not found:  # a leader that writes all the time leaves no longer pause
            self.is_caught_up, self.in_step_at = True, time.monotonic()
        if not found and wait:
            self._journal.wait(after, wait)
            found = self._next(after)
        if found and self._last is not None and found[0][1] != self._last[0]:
            self._require_same(after, self._last)
        return found

    def _next(self, after: int) -> list[Positioned]:
        return list(islice(self._journal.positioned_records(after), _AT_ONCE))

    def _require_same(self, seq: int, last: tuple[int, bytes]) -> None:
        """Check, where another node leads, that it continues from the record that was applied here."""
        found = self._journal.identity_of(seq)
        # Without one its segment was dropped, which needs that this node had taken it in.
        if found is not None and found[1] != last[1]:
            raise SetBackError

    # --- taking in, on the event loop

    async def _take_in_all(self, batch: list[Positioned]) -> None:
        """Take in records and let go of each: at a boundary nothing here holds those before it any more."""
        lock = self._host.live.lock
        batch.reverse()
        while batch:
            async with lock.mutation(refusable=False):
                end = time.monotonic() + LOOP_BUDGET
                while batch:
                    segment, epoch, checksum, record = batch.pop()
                    if record.seq != self._state.seq + 1:
                        raise RejoinError("a record of the journal is missing")
                    content = orjson.loads(record.notes) if record.notes else {}
                    self._require_followable(record, content)
                    if segment == record.seq:
                        await self._boundary.cross(segment)
                    await self._take_in(record, content)
                    self._last = epoch, checksum
                    self._journal.mark.write(record.seq, checksum)
                    del record, content
                    if time.monotonic() >= end:
                        break
            self._host.moved()
            await asyncio.sleep(0)

    async def _cross_idly(self) -> None:
        """Cross into a segment that has no record yet."""
        if self._boundary.is_before(self._state.seq + 1):
            async with self._host.live.lock.mutation(refusable=False):
                await self._boundary.cross(self._state.seq + 1)

    def _require_followable(self, record: Record, content: dict[str, Any]) -> None:
        if not record.body and any(entry["type"] in (RESTORE, REGROWN) for entry in content.get("entries", ())):
            raise RejoinError("the leader has replaced the model")

    async def _take_in(self, record: Record, content: dict[str, Any]) -> None:
        host, state = self._host, self._state
        if record.body:
            try:
                body = decode(record.body)
                names = await self._redo(body)
            except UnknownBodyError as error:
                raise NewerVersionError from error
            except (OubliError, ValueError, KeyError, TypeError) as error:
                raise RejoinError("a record does not fit the model") from error
            if isinstance(body, AddBody):
                state.next_id = max(state.next_id, body.next_id)
            state.note_change(names)
        state.seq, state.version = record.seq, record.version
        host.disk.database.write([record])
        for carrier in content.get("entries", ()):
            self._note(original_of(carrier), record)

    def _note(self, entry: dict[str, Any], record: Record) -> None:
        state = self._state
        if entry["type"] == UNLEARNED:
            since_ms = self._host.live.clock.steady_since(parse_time(entry["unlearned_at"]))
            state.pending[entry["receipt"]] = Pending(record.seq, since_ms, period=state.period)
        elif entry["type"] == ERASED:
            for name in entry["receipts"]:
                state.pending.pop(name, None)
        elif entry["type"] == EXPORT and not record.body:
            state.count_export()

    async def _redo(self, body: Body) -> Names | None:
        """Change the model; return the names of what has changed, None for everything."""
        host, state = self._host, self._state
        model = state.model
        if isinstance(body, FitBody):
            await self._refit(body)
            return None
        plan_it = partial(_planned, body, model, state.exports)
        if isinstance(body, AddBody | DeleteBody) and len(body.ids) > MANY_NAMES:
            with host.live.lock.reading():
                plan, names = await host.live.threads.save(plan_it)
        else:
            plan, names = plan_it()
        n_samples = sum(kind == "id" for kind, _ in names)
        takes_long = model.seconds_to_change(n_samples) > LONGEST_PAUSE if plan is None else plan.takes_long
        if takes_long and plan is not None and model.can_be_sliced(plan):
            await host.live.resolve()
            await host.live.change_in_slices(plan)
            return names
        if takes_long:
            with host.live.lock.reading():
                state.model = await host.live.threads.save(partial(_redone, model, body, state.exports))
            await host.live.let_go(model)
            return names
        if host.live.lock.n_readers:
            await host.live.lock.exclusive()
        host.live.lock.own()
        if plan is None:
            body.redo(model, state.exports)
        else:
            model.apply(plan)
        return names

    async def _refit(self, body: FitBody) -> None:
        host, state = self._host, self._state
        old = state.model
        if (body.kind, old.task) not in KINDS:
            raise UnknownBodyError("a kind that this version does not have")
        with host.live.holders.hold("fit", is_served_next=True):
            samples = await self._host.live.cleaned(lambda model: model.samples_.copy())
            estimator = another_estimator(body.kind, body.parameters, old)
            chosen = estimator.parameters_of_model()
            await host.live.threads.compile(partial(prepare_kernels, body.kind, old.schema_, chosen))
            state.model = await host.live.threads.build(partial(refit, estimator, samples))
        await self._host.live.let_go(old)


def _planned(body: SampleBody, model: Model, exports: int) -> tuple[Plan | None, Names]:
    """Plan a change; return the plan, where the model makes one, and the ids and subjects that it is about."""
    if not isinstance(body, RestrictionBody):
        plan = body.plan(model, exports, Turn(longest_pause=LONGEST_PAUSE))
        return plan, names_of(plan.ids, plan.subjects)
    held = () if isinstance(body, RetainBody) else map(model.samples_.held_of, body.subjects)
    return None, names_of(chain.from_iterable(held), body.subjects)


def _redone(model: Model, body: SampleBody, exports: int) -> Model:
    """Apply a change to a copy, and return it."""
    copy = body.redo(model.copy(), exports)
    copy.build_planted()
    return copy
