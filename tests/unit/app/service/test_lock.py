from __future__ import annotations

import asyncio

import pytest

from oubli.app.errors import BusyError
from oubli.app.service.lock import ModelLock


def test_mutations_take_turns_in_order_of_arrival():
    async def run() -> list[str]:
        turns, log = ModelLock(10), []

        async def work(name: str) -> None:
            async with turns.mutation():
                log.append(name + " begins")
                await asyncio.sleep(0)
                log.append(name + " ends")

        await asyncio.gather(*(work(name) for name in "abc"))
        return log

    assert asyncio.run(run()) == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


def test_a_full_queue_refuses_but_not_erasures():
    async def run() -> None:
        turns = ModelLock(1)
        async with turns.mutation():
            waiting = asyncio.create_task(_take(turns))
            await asyncio.sleep(0)
            assert turns.waiting == 1
            with pytest.raises(BusyError):
                await _take(turns)
            erasure = asyncio.create_task(_take(turns, refusable=False))
            await asyncio.sleep(0)
            assert turns.waiting == 2
        await asyncio.gather(waiting, erasure)
        assert turns.waiting == 0
        assert turns.quiet

    asyncio.run(run())


def test_a_writer_waits_for_readers_and_keeps_later_ones_out():
    async def run() -> None:
        turns, log = ModelLock(10), []
        reading = turns.reading()
        reading.__enter__()
        assert turns.frozen
        assert not turns.quiet

        async def write() -> None:
            async with turns.mutation():
                await turns.exclusive()
                assert not turns.frozen
                log.append("written")

        async def read() -> None:
            async with turns.long_read():
                await turns.pass_turnstile()
                with turns.reading():
                    log.append("read")

        writer = asyncio.create_task(write())
        await asyncio.sleep(0)
        reader = asyncio.create_task(read())
        for _ in range(5):
            await asyncio.sleep(0)
        assert log == []
        reading.__exit__(None, None, None)
        await asyncio.gather(writer, reader)
        assert log == ["written", "read"]

    asyncio.run(run())


def test_a_cancelled_request_gives_its_place_back():
    async def run() -> None:
        turns = ModelLock(1)
        async with turns.mutation():
            waiting = asyncio.create_task(_take(turns))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert turns.waiting == 0
        await _take(turns)

    asyncio.run(run())


async def _take(turns: ModelLock, *, refusable: bool = True) -> None:
    async with turns.mutation(refusable=refusable):
        pass
