from __future__ import annotations

import asyncio

from oubli.app.service.model.state import ModelLock


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
