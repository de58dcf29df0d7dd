"""The live model: the state that requests see and mutations change, and the lock that says who may touch it, and when.

Everything short happens on the event loop, one piece after the other, so that it needs no lock against anything
else that is short. Work that leaves the loop for a thread is what this file is about:

    on the loop                                     in a thread
    ---------------------------------------------   --------------------------------------------------------
    short prediction: resolves the tags it meets;   long prediction: reads the live model, which has no tags
      while a thread reads, it looks through them   snapshot: likewise, and mutations wait
    short mutation: writes, once no thread reads    long mutation: reads the live model to copy it, changes
    long mutation, in slices: writes likewise;        the copy; then the loop swaps the two
      in between all have the model as it was
    nothing that needs the trees                    tags are resolved: the loop lends the live model, and takes it
                                                      back before anything else of this table (`own`)

`ModelLock` holds the two sides: a queue of mutations, first come, first served, and the number of readers in threads.
A mutation that waits for a long prediction keeps later long predictions out, so it does not starve.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from oubli.app.errors import BusyError, NotLeaderError, SampleChangedError, StopReason, UnavailableError
from oubli.app.service.model.tag_thread import TagThread
from oubli.core.model import Model
from oubli.core.samples.store import SampleStore

log = logging.getLogger("oubli.service")

Phase = Literal["starting", "ready", "stopping"]
"""What a server is doing, from its first moment to its last."""

Names = AbstractSet[tuple[str, str]]
"""Kinds (`id` or `subject`) and texts."""


def tag_of(store: SampleStore, sample_id: str) -> str:
    """Return the entity tag of a held sample: it changes with all that `GET /samples/{id}` tells of it.

    It is made of the nonce, which is random, of this content alone and erased with it. So it tells nothing of the
    content, and is the same on all nodes.
    """
    part = store.restricted if store.restricted.contains(sample_id) else store
    sample, nonce = part.get(sample_id), part.nonce(sample_id) or secrets.token_bytes()
    times = f"{sample.expires_ms} {sample.restricted_ms}".encode("ascii")
    return f'"{hmac.digest(nonce, times, "sha256")[:16].hex()}"'


def require_tag(store: SampleStore, sample_id: str, tags: AbstractSet[str] | None) -> None:
    """Refuse a held sample whose entity tag is none of some; None, or ``*`` among them, takes any.

    Raises
    ------
    SampleChangedError
        When it is another.
    """
    if tags is not None and "*" not in tags and store.holding(sample_id) and tag_of(store, sample_id) not in tags:
        raise SampleChangedError


@dataclass(slots=True)
class Pending:
    """An erasure that was acknowledged and is not finished: old files still hold what was unlearned.

    Attributes
    ----------
    seq
        Number of its journal record.
    since_ms
        When it was acknowledged, in the steady time of this process (`Clock.steady_ms`).
    is_inherited
        Whether an earlier process acknowledged it: its age is not known for sure, so it is due at once.
    period
        In which it was acknowledged; see `oubli.app.service.erasure.holders`.
    targets
        The keyed hash of what it named, where that was a deletion of this process that has found something.
    """

    seq: int
    since_ms: int
    is_inherited: bool = False
    period: int = 0
    targets: str = ""


@dataclass(slots=True)
class Touched:
    """The names of samples that have changed; the set tree takes them out when it follows.

    Attributes
    ----------
    ids, subjects
        The names that the set tree has not followed yet.
    n
        How many changes there were.
    n_models
        How many times another model has taken the place of the live one.
    event
        Set by each change.
    """

    ids: set[str] = field(default_factory=set)
    subjects: set[str] = field(default_factory=set)
    n: int = 0
    n_models: int = 0
    event: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class ModelState:
    """What is served now. It belongs to the event loop.

    Attributes
    ----------
    model
        Replaced as a whole by long mutations, restores and fits.
    version
        Of the samples, the parameters and the kind.
    epoch
        Names the order in which samples are listed.
    seq
        Number of the newest record of the journal.
    next_id
        Generated ids are at least this number.
    exports
        How many times a snapshot was handed out.
    pending
        Erasures that are not finished, by receipt.
    phase
        Whether the service is starting, ready or stopping.
    period
        How many times the freed memory of the model was overwritten; see `oubli.app.service.erasure.holders`.
    n_resolved
        How many tags were resolved since the start.
    halted
        Why nothing is changed until a restart: an error left the model or the disk in doubt. None when none did.
    hindered
        Why the last change could not be written, although the disk and the model are sound. None when it could.
    following
        Whether another node leads, so that nothing is changed here but by its records.
    leader_url
        Where that node is reached, as far as this one knows.
    is_withdrawn
        Whether nothing is answered from the model, which is not the leader's; see `Role.answers_until`.
    deposed
        Called when a change was refused because another node leads by now.
    tagged
        Set when the model may have tags; the resolver of tags waits for it.
    touched
        What has changed; see `note_change`.
    """

    model: Model
    version: int
    epoch: int
    seq: int = 0
    next_id: int = 0
    exports: int = 0
    following: bool = False
    leader_url: str | None = None
    phase: Phase = field(default="starting", init=False)
    pending: dict[str, Pending] = field(default_factory=dict, init=False)
    period: int = field(default=0, init=False)
    n_resolved: int = field(default=0, init=False)
    halted: StopReason | None = field(default=None, init=False)
    hindered: StopReason | None = field(default=None, init=False)
    is_withdrawn: bool = field(default=False, init=False)
    deposed: Callable[[], object] = field(default=lambda: None, init=False, repr=False)
    tagged: asyncio.Event = field(default_factory=asyncio.Event, init=False, repr=False)
    touched: Touched = field(default_factory=Touched, init=False, repr=False)

    @property
    def stopped(self) -> StopReason | None:
        """Why nothing is changed at present; None when changes are taken."""
        return self.halted or self.hindered

    @property
    def failed(self) -> bool:
        """Whether nothing is changed until a restart."""
        return self.halted is not None

    def count_resolved(self, n_tags: int) -> None:
        """Note that tags were resolved."""
        self.n_resolved += n_tags

    def count_export(self) -> None:
        """Note that a snapshot is handed out."""
        self.exports += 1

    def note_change(self, names: Names | None) -> None:
        """Note that the model has changed: it may have tags, and the set tree has to follow.

        Parameters
        ----------
        names
            At least those of the samples that have changed; None: another model has taken the place of this one.
        """
        touched = self.touched
        touched.n += 1
        if names is None:
            touched.n_models += 1
        else:
            for kind, text in names:
                (touched.ids if kind == "id" else touched.subjects).add(text)
        touched.event.set()
        self.tagged.set()

    def halt(self, reason: StopReason) -> None:
        """Change nothing until a restart; the first reason stays."""
        if self.halted is None:
            log.error("no change is accepted until a restart. %s", reason.text)
        self.halted = self.halted or reason

    def hinder(self, reason: StopReason | None) -> None:
        """Note why changes cannot be written at present, None when they can; the log tells it once."""
        if reason is not None and reason is not self.hindered:
            log.error("changes are refused. %s", reason.text)
        elif reason is None and self.hindered is not None:
            log.warning("changes are accepted again")
        self.hindered = reason

    def require_leading(self) -> None:
        """Refuse what only the node that leads may do; raises `NotLeaderError`."""
        if self.following:
            raise NotLeaderError(self.leader_url)

    def require_changeable(self) -> None:
        """Refuse a change; raises `NotLeaderError`, or `UnavailableError` when nothing is changed until a restart."""
        self.require_leading()
        if self.halted is not None:
            raise UnavailableError("failed")

    def require_started(self) -> None:
        """Refuse a request while the service is starting; raises `UnavailableError`."""
        if self.phase == "starting":
            raise UnavailableError("starting")

    def require_open(self) -> None:
        """Refuse a request for a change; raises as `require_started` and `require_changeable`."""
        self.require_started()
        self.require_changeable()

    def depose(self) -> None:
        """Note that another node leads by now: nothing is changed here any more."""
        if not self.following:
            self.following, self.leader_url = True, None
            self.deposed()


def new_epoch() -> int:
    """Name an order of samples; cursors of another order are refused."""
    return secrets.randbits(48)


# --- the lock


class ModelLock:
    """The order in which requests get at the model.

    Parameters
    ----------
    max_queue
        How many may wait; more are refused. Erasures wait all the same.

    Attributes
    ----------
    max_queue
        The same.
    tag_thread
        To which the live model may be lent while no thread reads it.
    n_readers
        How many threads read the live model.
    is_sliced
        Whether it is being changed in slices.
    """

    def __init__(self, max_queue: int) -> None:
        self.max_queue = max_queue
        self.tag_thread = TagThread()
        self.mutations = asyncio.Lock()
        self._long_reads = asyncio.Lock()
        self._turnstile = asyncio.Lock()
        self._waiting = 0
        self.n_readers = 0
        self._unread = asyncio.Event()
        self._unread.set()
        self.is_sliced = False
        self._gap = asyncio.Event()

    @property
    def frozen(self) -> bool:
        """Whether a thread reads the live model now, or it is changed in slices, so that it must not be written."""
        return self.n_readers > 0 or self.is_sliced

    @property
    def quiet(self) -> bool:
        """Whether no change and no read of the model lasts beyond the current step of the loop."""
        return not self.n_readers and not self.mutations.locked()

    @property
    def free(self) -> bool:
        """Whether a short mutation that does not ``await`` may be made now, without overtaking anyone."""
        return not self.n_readers and not self._waiting and not self.mutations.locked()

    @property
    def waiting(self) -> int:
        """How many requests wait for their turn."""
        return self._waiting

    def own(self) -> None:
        """Have the trees of the live model on the loop, until the next ``await``."""
        if self.tag_thread.is_lent:
            self.tag_thread.take_back()

    def mutation(self, *, refusable: bool = True) -> _Place:
        """Return ``async with`` for a mutation's turn: one at a time, in order of arrival.

        Parameters
        ----------
        refusable
            Whether a full queue raises `BusyError`; false for erasures and for the server's own work.
        """
        return _Place(self, self.mutations, refusable)

    def long_read(self, *, refusable: bool = True) -> _Place:
        """Return ``async with`` for a long prediction's turn; enter `reading` inside it.

        Parameters
        ----------
        refusable
            As for `mutation`.
        """
        return _Place(self, self._long_reads, refusable)

    async def pass_turnstile(self, *, predicts: bool = False) -> None:
        """Wait until no mutation wants the model for itself. Read at once after it, without an ``await``.

        Parameters
        ----------
        predicts
            Whether all that is done is to predict, which can be done between two slices of a mutation as well.
        """
        if predicts and self.is_sliced:
            await self._gap.wait()
        if not (predicts and self.is_sliced):
            async with self._turnstile:
                pass

    async def exclusive(self) -> None:
        """Wait, inside a mutation's turn, until no thread reads the live model.

        What follows must not ``await`` before it has written.
        """
        if self.n_readers:
            async with self._turnstile:
                await self.unread()
        self.own()

    async def unread(self) -> None:
        """Wait until no thread reads the live model. What follows must not ``await`` before it has written."""
        while self.n_readers:
            await self._unread.wait()
        self.own()

    @asynccontextmanager
    async def slices(self) -> AsyncIterator[None]:
        """Change the live model in slices, inside a mutation's turn; only predictions begin in between, see `pause`."""
        async with self._turnstile:
            await self.unread()
            self._gap.clear()
            self.is_sliced = True
            try:
                yield
            finally:
                self.is_sliced = False
                self._gap.set()

    async def pause(self) -> None:
        """Between two slices: let requests be answered, and a long prediction that waits be made in its thread."""
        self._gap.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # what is read from sockets after the first is answered before the second ends
        self._gap.clear()
        await self.unread()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Mark the live model as read by a thread for the length of the block."""
        self.own()
        self.n_readers += 1
        self._unread.clear()
        try:
            yield
        finally:
            self.n_readers -= 1
            if not self.n_readers:
                self._unread.set()

    async def acquire(self, lock: asyncio.Lock, refusable: bool) -> None:
        """Wait for one of the two locks; see `mutation`."""
        if refusable and lock.locked() and self._waiting >= self.max_queue:
            raise BusyError
        self._waiting += 1
        try:
            await lock.acquire()
        finally:
            self._waiting -= 1


class _Place:
    """One place in a queue; a class because ``asynccontextmanager`` costs several microseconds a request."""

    __slots__ = ("_lock", "_owner", "_refusable")

    def __init__(self, owner: ModelLock, lock: asyncio.Lock, refusable: bool) -> None:
        self._owner = owner
        self._lock = lock
        self._refusable = refusable

    async def __aenter__(self) -> None:
        await self._owner.acquire(self._lock, self._refusable)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
