"""Rebuild tagged subtrees while nothing else is to do, so that later requests do not wait for it.

With a core to spare a thread does it whenever the event loop is about to wait, see `tag_thread`; the next request that
needs the trees takes them back. Without one the loop does it itself, in slices, when no request has come for a moment.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from oubli.app.service.lock import ModelLock
from oubli.app.service.state import ModelState, Names
from oubli.core.errors import UnusableModelError
from oubli.core.model import Model

log = logging.getLogger("oubli.service")

TAG_SLICE = 0.002  # seconds of one piece of long work that resolves tags; requests are answered in between
QUIET_SECONDS = 0.005  # without a request before idle work begins
SLICE_SECONDS = 0.0005  # aimed at for one piece; a request that arrives meanwhile waits for the rest of it
# From so many queries on since the last change, which may have met tags, the next change waits for tags to be resolved
# for so many seconds at most. Longer waits make changes much slower and queries hardly any faster.
MANY_QUERIES = 4
LONGEST_WAIT = 0.005
_MOST_TAGS = 4096
_SHORT_LOAN = 0.0003  # seconds; after a loan that was shorter ...
_PAUSE = 0.001  # ... so many must have passed without a request before the next one ...
_HELD_BACK = 16  # ... for so many times


class TagSlices:
    """Resolve some tags at a time, as many as fit a time.

    Parameters
    ----------
    seconds
        Aimed at for one slice. A single tag can take longer; it is the smallest piece there is.
    count
        Told how many tags a slice has resolved; None: nobody.
    """

    def __init__(self, seconds: float, count: Callable[[int], object] | None = None) -> None:
        self._seconds = seconds
        self._count = count
        self._n_tags = 1

    def step(self, model: Model) -> bool:
        """Resolve one slice; return whether tags are left."""
        started = time.perf_counter()
        try:
            n_resolved = model.resolve(max_tags=self._n_tags)
        except UnusableModelError:
            return False
        spent = time.perf_counter() - started
        if self._count is not None:
            self._count(n_resolved)
        if spent > self._seconds:
            self._n_tags = max(1, self._n_tags // 2)
        elif spent < self._seconds / 2:
            self._n_tags = min(_MOST_TAGS, 2 * self._n_tags)
        return model.n_lazy_tags_ > 0


class IdleResolver:
    """The background task that resolves tags between requests.

    Parameters
    ----------
    state
        Has the live model.
    lock
        Says whether anyone is using the model, and lends it.
    has_core
        Whether a thread may use another core for it.

    Attributes
    ----------
    last_request
        When a request was answered, in seconds of `time.monotonic`.
    tagged
        Set when there may be tags, and whenever the model is lent.
    n_queries
        That were answered since the last change while there were tags.
    """

    def __init__(self, state: ModelState, lock: ModelLock, *, has_core: bool = False) -> None:
        self._state = state
        self._lock = lock
        self._has_core = has_core
        self._slices = TagSlices(SLICE_SECONDS, state.count_resolved)
        self.tagged = asyncio.Event()
        self.last_request = 0.0
        self.n_queries = 0
        self._in_flight = 0
        self._n_held_back = 0
        state.listeners.append(self._note_change)

    def _note_change(self, names: Names | None) -> None:
        """Note that a change may have left tags."""
        del names
        self.tagged.set()

    def request_begins(self) -> None:
        """Note that a request is being handled: idle work on the loop stops."""
        self._in_flight += 1

    def request_ends(self) -> None:
        """Note that a request was answered."""
        self._in_flight -= 1
        self.last_request = time.monotonic()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await self.tagged.wait()
                model = self._state.model
                if self._has_core and model.is_usable and model.yields_:
                    await self._lend()
                else:
                    await self._take_slice()
        finally:
            self._lock.tag_thread.close()

    async def _lend(self) -> None:
        """Lend the model when the loop is about to wait, until somebody needs it or nothing is left to do.

        Taking it back costs some tens of microseconds. Where requests follow one another so closely that nothing is
        gained for that, it is lent in longer pauses only, and now and then tried again.
        """
        await self._lock.unread()
        answered, model = self.last_request, self._state.model
        self._n_held_back -= self._n_held_back > 0
        await asyncio.sleep(_PAUSE if self._n_held_back else 0)  # what has come meanwhile comes first
        has_changed = self.last_request != answered or self._state.model is not model
        if has_changed or self._lock.frozen or not self.tagged.is_set():
            return
        thread = self._lock.tag_thread
        try:
            lent = thread.lend(model)
        except RuntimeError:  # the system has no more threads
            self._has_core = False
            return
        begun = time.monotonic()
        self._state.count_resolved(await lent)
        if self._has_tags() and time.monotonic() - begun < _SHORT_LOAN:
            self._n_held_back = _HELD_BACK
        if thread.error is not None:
            _tell(thread.error)
            self.tagged.clear()
        elif not self._has_tags():
            self.tagged.clear()

    def _has_tags(self) -> bool:
        model = self._state.model  # it may be another one by now
        return model.is_usable and model.n_lazy_tags_ > 0

    async def _take_slice(self) -> None:
        """Resolve some tags here, if nothing else is to do; a change that waits for the disk is nothing to do."""
        if self._in_flight or self._quiet_for() < QUIET_SECONDS or self._lock.frozen:
            await asyncio.sleep(QUIET_SECONDS)
        elif not self._step():
            self.tagged.clear()
        else:
            await asyncio.sleep(0)

    def _step(self) -> bool:
        """Resolve one slice here; whether tags are left, and can be resolved."""
        try:
            return self._slices.step(self._state.model)
        except Exception as error:
            _tell(error)
            return False

    def is_idle(self) -> bool:
        """Whether there has been no request for a moment, and nobody is at work on the model."""
        return not self._in_flight and self._quiet_for() >= QUIET_SECONDS and self._lock.quiet

    def _quiet_for(self) -> float:
        return time.monotonic() - self.last_request

    async def keep_up(self) -> None:
        """Before a change is made: have the tags of earlier ones resolved if many queries would meet them.

        In slices, between requests, and not for long. Otherwise changes that come one after the other leave more tags
        than queries resolve, and each query that meets them keeps all others waiting.
        """
        n_queries, self.n_queries = self.n_queries, 0
        end = time.monotonic() + LONGEST_WAIT
        while n_queries >= MANY_QUERIES and self._has_tags() and time.monotonic() < end:
            if self._lock.frozen:
                return
            self._lock.own()
            if not self._step():
                return
            await asyncio.sleep(0)


def _tell(error: BaseException) -> None:
    """Log what ended work in the background: queries resolve the tags that they meet, and say what they cannot do."""
    log.error("tags could not be resolved in the background (%s)", type(error).__name__)
