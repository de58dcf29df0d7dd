from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from oubli.app.threads import Threads

pytestmark = pytest.mark.anyio


async def test_writing_and_reading_have_a_thread_each():
    workers, opened = Threads(), threading.Event()
    waiting = workers.begin(workers.write(lambda: opened.wait(10)))
    name = await workers.read(lambda: threading.current_thread().name)
    assert name.startswith("oubli-reader")
    opened.set()
    assert await waiting
    workers.close()


async def test_work_ends_without_whoever_asked_for_it():
    workers, opened, done = Threads(), threading.Event(), []

    async def work() -> None:
        await workers.write(lambda: opened.wait(10))
        done.append(True)

    asked = asyncio.create_task(workers.finish(work()))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    opened.set()
    await workers.settle()
    assert done == [True]
    workers.close()


async def test_endless_work_is_cancelled():
    workers = Threads()
    task = workers.begin(asyncio.sleep(1000), endless=True)
    await workers.settle()
    assert task.cancelled()
    workers.close()


async def test_an_error_that_nobody_awaits_is_not_logged(caplog: pytest.LogCaptureFixture):
    workers = Threads()

    async def fail() -> None:
        raise RuntimeError("SECRET")

    workers.begin(fail())
    await workers.settle()
    workers.close()
    gc.collect()
    assert "SECRET" not in caplog.text
