"""Takes in the records of the node that leads: into the model, the ledger, and what is known of erasures.

    journal thread   reads what is new; a notification ends the wait
    event loop       applies short changes in the turn of a mutation, long ones on a copy in a thread
                     at the first record of a segment: see `boundary`

What cannot be followed is never guessed at: a gap, a record that does not fit the model, a restore (whose record has no
body) make the node rejoin. A journal that does not have what was taken in here was set back: that is for a person to
settle, and the files stay. They also stay where a newer version has written what this one cannot read: the node goes on
from them when it is upgraded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from oubli.app.errors import JournalDamagedError, JournalError
from oubli.app.ledger.entries import ERASED, EXPORT, REGROWN, RESTORE, UNLEARNED, original_of
from oubli.app.service.commands.additions import AddBody
from oubli.app.service.commands.bodies import Body, UnknownBodyError, decode
from oubli.app.service.commands.deletions import DeleteBody, ReplaceBody
from oubli.app.service.commands.held import held_of, names_leaving
from oubli.app.service.commands.restrictions import RetainBody
from oubli.app.service.commands.swaps import FitBody
from oubli.app.service.compiling import prepare_kernels
from oubli.app.service.copies import ModelCopier
from oubli.app.service.durations import LONGEST_PAUSE, LOOP_BUDGET, Cost
from oubli.app.service.fitting import another_estimator, refit
from oubli.app.service.state import Pending
from oubli.app.times import parse_time
from oubli.core.errors import OubliError
from oubli.core.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oubli.app.replication.boundary import Boundary
    from oubli.app.service.model_service import ModelService
    from oubli.app.storage.journal import Record
    from oubli.core.model import Model
    from oubli.core.samples.store import SampleStore

log = logging.getLogger("oubli.cluster")

Positioned = tuple[int, int, bytes, "Record"]
Names = set[tuple[str, str]]
_AT_ONCE = 256  # records
_WAIT = 0.2  # seconds for a notification
_RETRY = 0.2  # seconds
_ATTEMPTS = 10  # to read what seems damaged: the key of a segment may be on its way
_SECONDS_A_SAMPLE = 300e-6  # first guess


class RejoinError(Exception):
    """The node cannot go on from what it has; the text says why, for the log."""


class NewerVersionError(Exception):
    """The journal holds what a newer version has written, and this one cannot read."""


class SetBackError(Exception):
    """The journal does not have what was taken in here."""


class Marked(Protocol):
    """See `oubli.app.storage.postgres.mark.PositionMark`."""

    def write(self, seq: int, checksum: bytes) -> None:
        """See there."""


class FollowedJournal(Protocol):
    """What is asked of the journal of another node; see `oubli.app.storage.postgres.journal.PostgresJournal`."""

    @property
    def mark(self) -> Marked:
        """See there."""

    def positioned_records(self, after_seq: int) -> Iterator[Positioned]:
        """See there."""

    def identity_of(self, seq: int) -> tuple[int, bytes] | None:
        """See there."""

    def forget(self) -> None:
        """See there."""

    def wait(self, after_seq: int, timeout: float) -> bool:
        """See there."""


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
        Epoch and checksum of the record that was taken in last; None where they are not known.

    Attributes
    ----------
    is_caught_up
        Whether it has been at the journal's end since it began.
    in_step_at
        When it was there last, in seconds of `time.monotonic`.
    """

    def __init__(
        self,
        service: ModelService,
        journal: FollowedJournal,
        boundary: Boundary,
        last: tuple[int, bytes] | None = None,
    ) -> None:
        self._service = service
        self._state = service.state
        self._journal = journal
        self._boundary = boundary
        self._copier = ModelCopier(service.state, service.lock, service.threads)
        self._cost = Cost(_SECONDS_A_SAMPLE)
        self._last = last
        self._is_ending = False
        service.holders.register("records", lambda _: journal.forget())
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
                batch = await self._service.threads.write(self._read)
            except JournalDamagedError as error:
                n_damaged += 1
                if n_damaged >= _ATTEMPTS:
                    raise RejoinError("records that come next cannot be read") from error
                await asyncio.sleep(_RETRY)
                continue
            except JournalError:
                await asyncio.sleep(_RETRY)
                continue
            n_damaged, is_at_end = 0, not batch
            await self._take_in_all(batch)
            if is_at_end:
                self.is_caught_up, self.in_step_at = True, time.monotonic()
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
                batch = await self._service.threads.write(partial(self._read, wait=0))
            except JournalDamagedError as error:
                raise RejoinError("records that come next cannot be read") from error
            if not batch:
                return
            await self._take_in_all(batch)  # which empties it

    # --- reading, in the thread of the journal

    def _read(self, wait: float = _WAIT) -> list[Positioned]:
        after = self._state.seq
        found = self._next(after)
        if not found and wait:
            self._journal.wait(after, wait)
            found = self._next(after)
        if found and self._last is not None and found[0][1] != self._last[0]:
            self._require_same(after, self._last)
        return found

    def _next(self, after: int) -> list[Positioned]:
        return list(islice(self._journal.positioned_records(after), _AT_ONCE))

    def _require_same(self, seq: int, last: tuple[int, bytes]) -> None:
        """Check, where another node leads, that it goes on from the record that was taken in here."""
        found = self._journal.identity_of(seq)
        # Without one its segment was dropped, which needs that this node had taken it in.
        if found is not None and found[1] != last[1]:
            raise SetBackError

    # --- taking in, on the event loop

    async def _take_in_all(self, batch: list[Positioned]) -> None:
        """Take in records and let go of each: at a boundary nothing here holds those before it any more."""
        lock = self._service.lock
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
            self._service.moved()
            await asyncio.sleep(0)

    async def _cross_idly(self) -> None:
        """Cross into a segment that has no record yet."""
        if self._boundary.is_before(self._state.seq + 1):
            async with self._service.lock.mutation(refusable=False):
                await self._boundary.cross(self._state.seq + 1)

    def _require_followable(self, record: Record, content: dict[str, Any]) -> None:
        if not record.body and any(entry["type"] in (RESTORE, REGROWN) for entry in content.get("entries", ())):
            raise RejoinError("another model has taken the place of this one")

    async def _take_in(self, record: Record, content: dict[str, Any]) -> None:
        service, state = self._service, self._state
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
            state.tell(names)
        state.seq, state.version = record.seq, record.version
        service.database.write([record])
        for carrier in content.get("entries", ()):
            self._note(original_of(carrier), record)

    def _note(self, entry: dict[str, Any], record: Record) -> None:
        state = self._state
        if entry["type"] == UNLEARNED:
            since_ms = self._service.clock.steady_since(parse_time(entry["unlearned_at"]))
            state.pending[entry["receipt"]] = Pending(record.seq, since_ms, period=state.period)
        elif entry["type"] == ERASED:
            for name in entry["receipts"]:
                state.pending.pop(name, None)
        elif entry["type"] == EXPORT and not record.body:
            state.count_export()

    async def _redo(self, body: Body) -> Names | None:
        """Change the model; return the names of what has changed, None for everything."""
        service, state = self._service, self._state
        model = state.model
        if isinstance(body, FitBody):
            await self._refit(body)
            return None
        names = names_of(body, model)
        n_items = sum(kind == "id" for kind, _ in names)
        if not self._cost.is_short(n_items) or takes_long(body, model):
            with service.lock.reading():
                copy = await service.threads.save(partial(_redone, model, body, state.exports))
            state.model = copy
            await self._copier.let_go(model)
            return names
        if service.lock.n_readers:
            await service.lock.exclusive()
        service.lock.own()
        started = time.perf_counter()
        state.model = body.redo(model, state.exports)
        self._cost.observe(n_items, time.perf_counter() - started)
        return names

    async def _refit(self, body: FitBody) -> None:
        service, state = self._service, self._state
        old = state.model
        if (body.kind, old.task) not in KINDS:
            raise UnknownBodyError("a kind of another version")
        with service.holders.hold("fit", is_served_next=True):
            samples = await self._copier.cleaned(lambda model: model.samples_.copy())
            estimator = another_estimator(body.kind, body.parameters, old)
            chosen = estimator.parameters_of_model()
            await service.threads.compile(partial(prepare_kernels, body.kind, old.schema_, chosen))
            state.model = await service.threads.build(partial(refit, estimator, samples))
        await self._copier.let_go(old)


def names_of(body: Body, model: Model) -> Names:
    """Return the ids and subjects that a change is about, before it is made; what leaves by itself is among them."""
    store = model.samples_
    names: Names = set()
    match body:
        case AddBody():
            names.update(("id", name) for name in body.ids)
            names.update(("subject", one) for one in body.subjects or () if one is not None)
            names |= names_leaving(model, len(body.ids)) if body.ids else set()
        case DeleteBody():
            names.update(("id", name) for name in body.ids)
            names |= _subjects_of(store, body.ids)
        case ReplaceBody():
            names.add(("id", body.id))
            names |= _subjects_of(store, [body.id])
            if body.subject is not None:
                names.add(("subject", body.subject))
        case FitBody():
            pass
        case _:
            names.update(("subject", one) for one in body.subjects)
            if not isinstance(body, RetainBody):
                names.update(("id", name) for one in body.subjects for name in held_of(store, one))
    return names


def _subjects_of(store: SampleStore, ids: Any) -> Names:
    found = ((store.holding(name) or store).subject(name) for name in ids if store.holding(name) is not None)
    return {("subject", subject) for subject in found if subject is not None}


def takes_long(body: Body, model: Model) -> bool:
    """Whether a change sets off long work in the model."""
    store = model.samples_
    if isinstance(body, AddBody) and body.ids:
        return model.takes_long(store.prepare(body.rows, body.labels, body.ids), (), 0, LONGEST_PAUSE)
    if isinstance(body, DeleteBody | ReplaceBody):
        ids = [name for name in (body.ids if isinstance(body, DeleteBody) else (body.id,)) if store.contains(name)]
        return bool(ids) and model.takes_long(None, ids, 0, LONGEST_PAUSE)
    return False


def _redone(model: Model, body: Body, exports: int) -> Model:
    """Apply a change to a copy."""
    copy = model.copy()
    copy = body.redo(copy, exports)
    copy.resolve()  # or the first predictions would do it on the event loop
    return copy
