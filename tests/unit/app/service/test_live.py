"""Idle time: which tags are resolved when, on the loop and by a thread that has the model lent; the model's lock."""

import asyncio
import gc
import multiprocessing
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oubli.app.service.model.live import MANY_QUERIES, QUIET_SECONDS, IdleResolver, TagSlices
from oubli.app.service.model.state import ModelLock, ModelState
from oubli.app.service.model.tag_thread import TagThread
from oubli.core import DynamicForestClassifier
from oubli.core.errors import UnusableModelError
from tests.unit.app.service.support import raising, until

pytestmark = pytest.mark.anyio
PATIENCE = 20.0


class Tagged(SimpleNamespace):
    """A model with nothing but tags."""

    n_lazy_tags_ = 1000
    is_usable = True
    yields_ = False

    def resolve(self, max_tags: int | None = None) -> int:
        n = min(self.n_lazy_tags_, max_tags or self.n_lazy_tags_)
        self.n_lazy_tags_ -= n
        return n


class Endless:
    """A model with tags that last until it is asked for."""

    is_usable, yields_, n_lazy_tags_, n_at_work = True, True, 5, 0
    error: BaseException | None = None

    def __init__(self) -> None:
        self.samples_ = SimpleNamespace(changes=SimpleNamespace(depth=0))
        self.threads, self.begun = list[threading.Thread](), threading.Event()

    def resolve_until(self, stop: Any) -> int:
        assert self.n_at_work == 0
        self.n_at_work += 1
        self.threads.append(threading.current_thread())
        self.begun.set()
        try:
            if self.error is not None:
                raise self.error
            while not stop[0] and self.n_lazy_tags_:
                time.sleep(1e-4)
        finally:
            self.n_at_work = 0
        return 3


@pytest.fixture
def model() -> Any:
    return Endless()


# --- a thread and what is lent to it


@pytest.fixture
async def thread() -> AsyncIterator[TagThread]:
    thread = TagThread()
    yield thread
    thread.close()


async def test_a_lent_model_comes_back_when_it_is_asked_for(thread, model):
    for _ in range(3):
        model.begun.clear()
        ended = thread.lend(model)
        assert model.begun.wait(PATIENCE)
        assert thread.is_lent
        thread.take_back()
        assert (thread.is_lent, model.n_at_work, await ended) == (False, 0, 3)
    thread.take_back()  # nothing to take
    (one,) = set(model.threads)  # which serves all
    assert one is not threading.current_thread()


@pytest.mark.parametrize("error", [MemoryError(), SystemExit()])
async def test_an_error_gives_the_model_back_and_nothing_is_kept_of_it(thread, error):
    model: Any = Endless()
    model.error, known = error, weakref.ref(model)
    assert (await asyncio.wait_for(thread.lend(model), PATIENCE), thread.error) == (0, error)
    model.error, model.n_lazy_tags_ = None, 0
    assert (await asyncio.wait_for(thread.lend(model), PATIENCE), thread.error) == (3, None)
    del model
    gc.collect()
    assert known() is None


async def test_a_child_process_does_not_use_what_is_half_done(thread, model):
    forest = DynamicForestClassifier(3, random_state=0).fit(np.arange(40.0).reshape(20, 2), [0, 1] * 10)
    model.samples_ = forest.samples_
    thread.lend(model)
    assert model.begun.wait(PATIENCE)
    assert _refuses_in_child(forest)
    assert forest.predict([[1.0, 2.0]]).shape == (1,), "this process continues"
    thread.take_back()
    assert not _refuses_in_child(forest)


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


# --- who lends and takes back


@asynccontextmanager
async def resolving(model: Any) -> AsyncIterator[tuple[IdleResolver, ModelLock]]:
    """What resolves the tags of a model in idle time."""
    lock = ModelLock(1)
    idle = IdleResolver(ModelState(model, 1, 0), lock, has_core=True)
    task = asyncio.create_task(idle.run())
    yield idle, lock
    assert not task.done()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_model_is_lent_while_requests_are_in_flight_and_not_while_a_thread_reads(model):
    async with resolving(model) as (idle, lock):
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
        model.begun.clear()
        idle.request_begins()
        async with lock.mutation():  # which waits for the disk
            await until(model.begun.is_set)
            lock.own()
            assert not lock.tag_thread.is_lent
        model.begun.clear()
        await until(model.begun.is_set)
    assert (lock.tag_thread.is_lent, model.threads[-1].is_alive()) == (False, False)


async def test_it_is_lent_when_no_request_comes_and_after_a_short_loan_in_longer_pauses_only(model, monkeypatch):
    async with resolving(model) as (idle, lock):
        monkeypatch.setattr("oubli.app.service.model.live._SHORT_LOAN", PATIENCE)
        idle.tagged.set()
        for turn in range(50):
            idle.last_request = float(turn)
            await asyncio.sleep(0)
        assert not model.begun.is_set()
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


async def test_what_fails_is_told_and_left_to_the_queries(model, caplog):
    model.error = MemoryError("SECRET")
    async with resolving(model) as (idle, _):
        idle.tagged.set()
        await until(lambda: not idle.tagged.is_set())
        assert len(model.threads) == 1, "it is not tried again and again"
        model.error, model.n_lazy_tags_ = None, 1
        idle.tagged.set()  # by the next change
        await until(lambda: len(model.threads) == 2)
    assert "nodes that wait to be rebuilt could not be" in caplog.text
    assert "SECRET" not in caplog.text


# --- kinds that do not stop soon are resolved on the loop, in slices


@pytest.mark.parametrize(("yields", "n_steps"), [(True, 10), (False, 1000)])
def test_a_slice_is_of_so_many_tags_or_of_one_where_a_tag_may_take_long(yields, n_steps):
    counted: list[int] = []
    model, slices = Tagged(yields_=yields), TagSlices(100, counted.append)
    while slices.step(model):
        pass
    assert (len(counted), sum(counted)) == (n_steps, 1000)


async def test_resolves_when_nothing_else_is_to_do():
    tagged = Tagged()
    async with resolving(tagged) as (idle, lock):
        idle.request_begins()
        idle.tagged.set()
        await asyncio.sleep(3 * QUIET_SECONDS)
        assert tagged.n_lazy_tags_ == 1000, "a request was in flight"
        idle.request_ends()
        with lock.reading():
            await asyncio.sleep(3 * QUIET_SECONDS)
            assert tagged.n_lazy_tags_ == 1000, "a thread was reading"
        async with lock.mutation():  # which waits for the disk
            await until(lambda: tagged.n_lazy_tags_ == 0)
        await until(lambda: not idle.tagged.is_set())


async def test_changes_wait_for_tags_that_many_queries_meet(monkeypatch):
    tagged, lock = Tagged(), ModelLock(1)
    idle = IdleResolver(ModelState(tagged, 1, 0), lock)

    async def left(n_queries: int | None = MANY_QUERIES) -> int:
        if n_queries is not None:
            idle.n_queries = n_queries
        await idle.keep_up()
        return tagged.n_lazy_tags_

    assert await left(MANY_QUERIES - 1) == 1000, "few would meet them"
    monkeypatch.setattr("oubli.app.service.model.live.LONGEST_WAIT", 0.0)
    assert await left() == 1000, "the time is over"
    monkeypatch.setattr("oubli.app.service.model.live.LONGEST_WAIT", 20.0)
    assert await left(None) == 1000, "no query has come since"
    with lock.reading():
        assert await left() == 1000, "a thread was reading"
    assert await left() == 0
    tagged.is_usable, tagged.n_lazy_tags_ = False, 5
    assert await left() == 5, "it refuses"


async def test_without_memory_the_tags_are_left_and_changes_go_on(caplog):
    async with resolving(Tagged(resolve=raising(MemoryError("SECRET")))) as (idle, _):
        idle.n_queries = MANY_QUERIES
        await idle.keep_up()
        idle.tagged.set()
        await until(lambda: not idle.tagged.is_set())
    assert caplog.text.count("the server has no memory for it") == 2
    assert "SECRET" not in caplog.text


# --- the lock


async def test_a_writer_waits_for_readers_and_keeps_later_ones_out():
    lock, log = ModelLock(10), []
    reading = lock.reading()
    reading.__enter__()
    assert (lock.frozen, lock.quiet) == (True, False)

    async def write() -> None:
        async with lock.mutation():
            await lock.exclusive()
            assert not lock.frozen
            log.append("written")

    async def read() -> None:
        async with lock.long_read():
            await lock.pass_turnstile()
            with lock.reading():
                log.append("read")

    tasks = asyncio.create_task(write()), asyncio.create_task(read())
    for _ in range(6):
        await asyncio.sleep(0)
    assert log == []
    reading.__exit__(None, None, None)
    await asyncio.gather(*tasks)
    assert log == ["written", "read"]
