"""What a snapshot is made of: a copy of the live model, without what it keeps of samples that have left, and facts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from oubli.app.service.background import TAG_SLICE, TagSlices
from oubli.app.service.memory import let_go_of
from oubli.app.storage.snapshots import Facts

if TYPE_CHECKING:
    from oubli.app.ledger.ledger import Ledger
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.state import ModelState
    from oubli.app.storage.storage import Storage
    from oubli.app.threads import Threads
    from oubli.core.model import Model

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class ModelCopier:
    """Copies the live model, and overwrites models that are done with; in the turn of a mutation.

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

    async def copied(self) -> Model:
        """Return a copy of the live model without tags, and without anything of what has left."""
        return await self.cleaned(lambda model: model.copy())

    async def cleaned(self, read: Callable[[Model], T]) -> T:
        """Rid the live model of tags and of what it keeps of samples that have left.

        It goes on to its end even if whoever asks is gone: the thread reads the model until then.

        Parameters
        ----------
        read
            Reads the model then; called in a thread.
        """
        state, slices = self._state, TagSlices(TAG_SLICE, self._state.count_resolved)
        await self._lock.exclusive()
        while state.model.n_lazy_tags_ and slices.step(state.model):
            await asyncio.sleep(0)
            await self._lock.exclusive()
        with self._lock.reading():
            found = await self._threads.uncut(self._threads.save(partial(_wiped, read, state.model)))
        state.period += 1
        return found

    async def let_go(self, old: Model) -> None:
        """Overwrite a model that another one has taken the place of."""
        await self._lock.exclusive()  # whoever reads it in a thread has begun before
        await self._threads.save(partial(let_go_of, old))


def _wiped(read: Callable[[Model], T], model: Model) -> T:
    """Overwrite what the model keeps of samples that have left, then read it."""
    model.wipe()
    return read(model)


def facts_of(state: ModelState, storage: Storage, ledger: Ledger) -> Facts:
    """What a snapshot says of a model besides itself."""
    head = ledger.head
    return Facts(
        model_version=state.version,
        next_id=max(state.next_id, state.model.samples_.next_id),
        lineage=storage.lineage,
        epoch=state.epoch,
        seq=state.seq,
        exports=state.exports,
        ledger_index=head.index,
        ledger_hash=head.hash,
    )
