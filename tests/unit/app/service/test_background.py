from __future__ import annotations

import asyncio
from types import SimpleNamespace

from oubli.app.service.background import QUIET_SECONDS, IdleResolver, TagSlices
from oubli.app.service.lock import ModelLock
from oubli.app.service.state import ModelState


class Tagged(SimpleNamespace):
    """A model with nothing but tags."""

    n_lazy_tags_ = 1000

    def resolve(self, max_tags: int | None = None) -> int:
        n = min(self.n_lazy_tags_, max_tags or self.n_lazy_tags_)
        self.n_lazy_tags_ -= n
        return n


def test_slices_grow_while_they_are_quick():
    model, slices, n_steps = Tagged(), TagSlices(1.0), 1
    while slices.step(model):
        n_steps += 1
    assert n_steps == 10  # 1 + 2 + 4 + ... + 512 >= 1000


def test_slices_shrink_when_they_take_too_long():
    model, slices = Tagged(), TagSlices(0.0)
    slices.step(model)
    slices.step(model)
    assert model.n_lazy_tags_ == 998


def test_resolves_when_nothing_else_is_to_do():
    async def run() -> None:
        model, turns = Tagged(), ModelLock(1)
        idle = IdleResolver(ModelState(model, 1, 0), turns)
        task = asyncio.create_task(idle.run())
        idle.request_begins()
        idle.tagged.set()
        await asyncio.sleep(3 * QUIET_SECONDS)
        assert model.n_lazy_tags_ == 1000, "a request was in flight"
        idle.request_ends()
        with turns.reading():
            await asyncio.sleep(3 * QUIET_SECONDS)
            assert model.n_lazy_tags_ == 1000, "a thread was reading"
        async with turns.mutation():
            await asyncio.sleep(3 * QUIET_SECONDS)
            assert model.n_lazy_tags_ == 1000, "a mutation had its turn"
        await asyncio.sleep(10 * QUIET_SECONDS)
        assert model.n_lazy_tags_ == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
