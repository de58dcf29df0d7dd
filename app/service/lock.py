"""Who may touch the live model, and when.

Everything short happens on the event loop, one piece after the other, so that it needs no lock against anything
else that is short. Work that leaves the loop for a thread is what this file is about:

    on the loop                                     in a thread
    ---------------------------------------------   --------------------------------------------------------
    short prediction: resolves the tags it meets;   long prediction: reads the live model, which has no tags
      while a thread reads, it looks through them   snapshot: likewise, and mutations wait
    short mutation: writes, once no thread reads    long mutation: reads the live model to copy it, changes
                                                      the copy; then the loop swaps the two
    nothing that needs the trees                    tags are resolved: the loop lends the live model, and takes it
                                                      back before anything else of this table (`own`)

`ModelLock` holds the two sides: a queue of mutations, first come, first served, and the number of readers in threads.
A mutation that waits for a long prediction keeps later long predictions out, so it does not starve.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from oubli.app.errors import BusyError
from oubli.app.service.tag_thread import TagThread


class ModelLock:
    """The order in which requests get at the model.

    Parameters
    ----------
    max_queue
        How many may wait; more are refused. Erasures wait all the same.

    Attributes
    ----------
    tag_thread
        To which the live model may be lent while nobody reads it.
    """

    def __init__(self, max_queue: int) -> None:
        self._max_queue = max_queue
        self.tag_thread = TagThread()
        self.mutations = asyncio.Lock()
        self._long_reads = asyncio.Lock()
        self._turnstile = asyncio.Lock()
        self._waiting = 0
        self.n_readers = 0
        self._unread = asyncio.Event()
        self._unread.set()

    @property
    def frozen(self) -> bool:
        """Whether a thread reads the live model now, so that nobody may write it."""
        return self.n_readers > 0

    @property
    def quiet(self) -> bool:
        """Whether nobody changes or reads the model beyond the current step of the loop."""
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

    def mutation(self, *, refusable: bool = True) -> "_Place":
        """Return ``async with`` for a mutation's turn: one at a time, in order of arrival.

        Parameters
        ----------
        refusable
            Whether a full queue raises `BusyError`; false for erasures and for the server's own work.
        """
        return _Place(self, self.mutations, refusable)

    def long_read(self, *, refusable: bool = True) -> "_Place":
        """Return ``async with`` for a long prediction's turn; enter `reading` inside it.

        Parameters
        ----------
        refusable
            As for `mutation`.
        """
        return _Place(self, self._long_reads, refusable)

    async def pass_turnstile(self) -> None:
        """Wait until no mutation wants the model for itself. Read at once after it, without an ``await``."""
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
        if refusable and lock.locked() and self._waiting >= self._max_queue:
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
