from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from oubli.app.service.model.live import MANY_QUERIES, QUIET_SECONDS, IdleResolver, TagSlices
from oubli.app.service.model.state import ModelLock, ModelState


class Tagged(SimpleNamespace):
    """A model with nothing but tags."""

    n_lazy_tags_ = 1000
    is_usable = True
    yields_ = False

    def resolve(self, max_tags: int | None = None) -> int:
        n = min(self.n_lazy_tags_, max_tags or self.n_lazy_tags_)
        self.n_lazy_tags_ -= n
        return n


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(QUIET_SECONDS)


@pytest.mark.parametrize(("yields", "n_steps"), [(True, 10), (False, 1000)])
def test_a_slice_is_of_so_many_tags_or_of_one_where_a_tag_may_take_long(yields, n_steps):
    model, counted = Tagged(yields_=yields), []
    slices = TagSlices(100, counted.append)
    while slices.step(model):
        pass
    assert (len(counted), sum(counted)) == (n_steps, 1000)


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
        async with turns.mutation():  # which waits for the disk
            await until(lambda: model.n_lazy_tags_ == 0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_changes_wait_for_tags_that_many_queries_meet(monkeypatch: pytest.MonkeyPatch):
    async def run() -> None:
        model, turns = Tagged(), ModelLock(1)
        idle = IdleResolver(ModelState(model, 1, 0), turns)
        idle.n_queries = MANY_QUERIES - 1
        await idle.keep_up()
        assert model.n_lazy_tags_ == 1000, "few would meet them"
        idle.n_queries = MANY_QUERIES
        monkeypatch.setattr("oubli.app.service.model.live.LONGEST_WAIT", 0.0)
        await idle.keep_up()
        assert model.n_lazy_tags_ == 1000, "the time is over"
        monkeypatch.setattr("oubli.app.service.model.live.LONGEST_WAIT", 20.0)
        await idle.keep_up()
        assert model.n_lazy_tags_ == 1000, "no query has come since"
        idle.n_queries = MANY_QUERIES
        with turns.reading():
            await idle.keep_up()
        assert model.n_lazy_tags_ == 1000, "a thread was reading"
        idle.n_queries = MANY_QUERIES
        await idle.keep_up()
        assert model.n_lazy_tags_ == 0
        model.is_usable, model.n_lazy_tags_, idle.n_queries = False, 5, MANY_QUERIES
        await idle.keep_up()
        assert model.n_lazy_tags_ == 5, "it refuses"

    asyncio.run(run())


def test_without_memory_the_tags_are_left_and_changes_go_on(caplog: pytest.LogCaptureFixture):
    async def run() -> None:
        model = Tagged()

        def fails(max_tags: int | None = None) -> int:
            raise MemoryError("SECRET")

        model.resolve = fails
        idle = IdleResolver(ModelState(model, 1, 0), ModelLock(1))
        idle.n_queries = MANY_QUERIES
        await idle.keep_up()
        task = asyncio.create_task(idle.run())
        idle.tagged.set()
        await until(lambda: not idle.tagged.is_set())
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert caplog.text.count("the server has no memory for it") == 2
    assert "SECRET" not in caplog.text
