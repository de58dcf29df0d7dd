import asyncio
import gc

import pytest

from oubli.app.threads import Threads

pytestmark = pytest.mark.anyio


async def test_endless_work_is_cancelled_and_an_error_that_is_not_awaited_is_not_logged(
    caplog: pytest.LogCaptureFixture,
):
    async def fail() -> None:
        raise RuntimeError("SECRET")

    workers = Threads()
    task = workers.begin(asyncio.sleep(1000), endless=True)
    workers.begin(fail())
    await workers.settle()
    assert task.cancelled()
    workers.close()
    gc.collect()
    assert "SECRET" not in caplog.text
