"""Reading the live model for long: in a thread, without tags, while changes wait and short predictions go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from oubli.app.service.background import TAG_SLICE, TagSlices
from oubli.app.service.stages import end_stage

if TYPE_CHECKING:
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.state import ModelState
    from oubli.app.threads import Run, Threads
    from oubli.core.model import Model

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class LongReader:
    """Reads the live model for long.

    Parameters
    ----------
    state
        Has the live model.
    lock, threads
        Who may touch the model, and the threads.
    """

    _state: ModelState
    _lock: ModelLock
    _threads: Threads

    async def read(self, work: Callable[[Model], T], run: Run, *, refusable: bool = True) -> tuple[T, int]:
        """Call something with the live model when all its tags are resolved; return its result and the model version.

        It goes on to its end even if whoever asks is gone.

        Parameters
        ----------
        work
            Only reads the model.
        run
            Calls it in a thread.
        refusable
            Whether a full queue raises `BusyError`.
        """
        return await self._threads.finish(self._read(work, run, refusable))

    async def _read(self, work: Callable[[Model], T], run: Run, refusable: bool) -> tuple[T, int]:
        async with self._lock.long_read(refusable=refusable):
            # A model without tags is only read: nobody's working space is written, so short predictions go on beside.
            slices = TagSlices(TAG_SLICE, self._state.count_resolved)
            await self._lock.pass_turnstile()
            while self._state.model.n_lazy_tags_:
                await self._lock.unread()
                slices.step(self._state.model)
                await asyncio.sleep(0)
                await self._lock.pass_turnstile()
            model, version = self._state.model, self._state.version
            end_stage("wait")
            with self._lock.reading():
                return await run(partial(work, model)), version
