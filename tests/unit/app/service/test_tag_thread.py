from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oubli.app.service.model.live import IdleResolver
from oubli.app.service.model.state import ModelLock, ModelState
from oubli.app.service.model.tag_thread import TagThread
from oubli.core import DynamicForestClassifier
from oubli.core.errors import UnusableModelError

PATIENCE = 20.0


class Endless:
    """A model with tags that last until it is asked for."""

    is_usable = yields_ = True
    n_lazy_tags_ = 5

    def __init__(self) -> None:
        self.samples_ = SimpleNamespace(changes=SimpleNamespace(depth=0))
        self.threads: list[threading.Thread] = []
        self.n_at_work = 0
        self.begun = threading.Event()
        self.error: BaseException | None = None

    def resolve_until(self, stop: Any) -> int:
        assert self.n_at_work == 0
        self.n_at_work += 1
        self.threads.append(threading.current_thread())
        self.begun.set()
        if self.error is not None:
            self.n_at_work = 0
            raise self.error
        while not stop[0] and self.n_lazy_tags_:
            time.sleep(1e-4)
        self.n_at_work = 0
        return 3


def run(work: Callable[[TagThread], Awaitable[None]]) -> None:
    async def main() -> None:
        thread = TagThread()
        try:
            await work(thread)
        finally:
            thread.close()

    asyncio.run(main())


def test_a_lent_model_comes_back_when_it_is_asked_for():
    async def work(thread: TagThread) -> None:
        model: Any = Endless()
        for _ in range(3):
            model.begun.clear()
            ended = thread.lend(model)
            assert model.begun.wait(PATIENCE)
            assert thread.is_lent
            thread.take_back()
            assert (thread.is_lent, model.n_at_work, await ended) == (False, 0, 3)
        thread.take_back()  # nothing to take
        assert len({id(one) for one in model.threads}) == 1, "one thread serves all"
        assert model.threads[0] is not threading.current_thread()

    run(work)


def test_it_comes_back_by_itself_when_nothing_is_left():
    async def work(thread: TagThread) -> None:
        model: Any = Endless()
        ended = thread.lend(model)
        model.n_lazy_tags_ = 0
        assert await asyncio.wait_for(ended, PATIENCE) == 3
        assert not thread.is_lent

    run(work)


@pytest.mark.parametrize("error", [MemoryError(), SystemExit()])
def test_an_error_gives_the_model_back(error: BaseException):
    async def work(thread: TagThread) -> None:
        model: Any = Endless()
        model.error = error
        assert await asyncio.wait_for(thread.lend(model), PATIENCE) == 0
        assert thread.error is error
        model.error, model.n_lazy_tags_ = None, 0
        assert await asyncio.wait_for(thread.lend(model), PATIENCE) == 3
        assert thread.error is None

    run(work)


def test_nothing_is_kept_of_a_model_that_is_back():
    async def work(thread: TagThread) -> None:
        model: Any = Endless()
        model.error = MemoryError()
        known = weakref.ref(model)
        await asyncio.wait_for(thread.lend(model), PATIENCE)
        del model
        gc.collect()
        assert known() is None

    run(work)


def test_a_closed_thread_has_ended_and_gives_back():
    async def main() -> None:
        thread, model = TagThread(), Endless()
        thread.close()  # it was never begun
        thread.lend(model)  # type: ignore[arg-type]
        assert model.begun.wait(PATIENCE)
        thread.close()
        assert not thread.is_lent
        assert not model.threads[0].is_alive()

    asyncio.run(main())


def test_a_child_process_does_not_use_what_is_half_done():
    async def work(thread: TagThread) -> None:
        model = DynamicForestClassifier(3, random_state=0).fit(np.arange(40.0).reshape(20, 2), [0, 1] * 10)
        held: Any = Endless()
        held.samples_ = model.samples_
        thread.lend(held)
        assert held.begun.wait(PATIENCE)
        assert _refuses_in_child(model)
        assert model.predict([[1.0, 2.0]]).shape == (1,), "this process continues"
        thread.take_back()
        assert not _refuses_in_child(model)

    run(work)


def _refuses_in_child(model: Any) -> bool:
    def child() -> None:
        try:
            model.samples_.changes.check()
        except UnusableModelError:
            os._exit(7)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(PATIENCE)
    assert process.exitcode in (0, 7)
    return process.exitcode == 7


# -- who lends and takes back ------------------------------------------------------------------------


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(1e-3)


def idle_with(model: Any) -> tuple[IdleResolver, ModelLock, asyncio.Task[None]]:
    lock = ModelLock(1)
    idle = IdleResolver(ModelState(model, 1, 0), lock, has_core=True)
    return idle, lock, asyncio.create_task(idle.run())


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_the_model_is_lent_while_requests_are_in_flight_and_changes_wait_for_the_disk():
    async def main() -> None:
        model = Endless()
        idle, lock, task = idle_with(model)
        idle.tagged.set()
        idle.request_begins()
        async with lock.mutation():
            await until(model.begun.is_set)
            lock.own()
            assert not lock.tag_thread.is_lent
        model.begun.clear()
        await until(model.begun.is_set)
        await end(task)
        assert not lock.tag_thread.is_lent
        assert not model.threads[-1].is_alive()

    asyncio.run(main())


def test_who_reads_in_a_thread_takes_the_model_back_first_and_keeps_it():
    async def main() -> None:
        model = Endless()
        idle, lock, task = idle_with(model)
        idle.tagged.set()
        await until(lambda: lock.tag_thread.is_lent)
        with lock.reading():
            for _ in range(20):
                assert not lock.tag_thread.is_lent
                await asyncio.sleep(1e-3)
        for waiting in (lock.exclusive, lock.unread):
            await until(lambda: lock.tag_thread.is_lent)
            await waiting()
            assert not lock.tag_thread.is_lent
        await end(task)

    asyncio.run(main())


def test_it_is_not_lent_while_requests_come_one_after_the_other():
    async def main() -> None:
        model = Endless()
        idle, _, task = idle_with(model)
        idle.tagged.set()
        for turn in range(50):
            idle.last_request = float(turn)
            await asyncio.sleep(0)
        assert not model.begun.is_set()
        await until(model.begun.is_set)
        await end(task)

    asyncio.run(main())


def test_after_a_short_loan_it_is_lent_in_longer_pauses_only(monkeypatch: pytest.MonkeyPatch):
    async def main() -> None:
        model = Endless()
        idle, lock, task = idle_with(model)
        monkeypatch.setattr("oubli.app.service.model.live._SHORT_LOAN", PATIENCE)
        idle.tagged.set()
        await until(lambda: lock.tag_thread.is_lent)
        lock.own()
        for _ in range(4):
            await asyncio.sleep(0)
            assert not lock.tag_thread.is_lent
        await until(lambda: lock.tag_thread.is_lent)
        monkeypatch.setattr("oubli.app.service.model.live._SHORT_LOAN", 0.0)
        for _ in range(20):  # now and then it is tried again
            await until(lambda: lock.tag_thread.is_lent)
            lock.own()
        n_turns = 0
        while not lock.tag_thread.is_lent:
            await asyncio.sleep(0)
            n_turns += 1
        assert n_turns < 5
        await end(task)

    asyncio.run(main())


def test_what_fails_is_told_and_left_to_the_queries(caplog: pytest.LogCaptureFixture):
    async def main() -> None:
        model = Endless()
        model.error = MemoryError("SECRET")
        idle, _, task = idle_with(model)
        idle.tagged.set()
        await until(lambda: not idle.tagged.is_set())
        assert len(model.threads) == 1, "it is not tried again and again"
        model.error, model.n_lazy_tags_ = None, 1
        idle.tagged.set()  # by the next change
        await until(lambda: len(model.threads) == 2)
        await end(task)

    asyncio.run(main())
    assert "nodes that wait to be rebuilt could not be" in caplog.text
    assert "SECRET" not in caplog.text


def test_kinds_that_do_not_stop_soon_are_resolved_on_the_loop():
    async def main() -> None:
        model = Endless()
        model.yields_ = False
        n_slices = 0

        def resolve(max_tags: int | None = None) -> int:
            nonlocal n_slices
            n_slices += 1
            model.n_lazy_tags_ = 0
            return 5

        model.resolve = resolve  # type: ignore[attr-defined]
        idle, _, task = idle_with(model)
        idle.tagged.set()
        await until(lambda: not idle.tagged.is_set())
        assert n_slices == 1
        assert not model.threads
        await end(task)

    asyncio.run(main())
