from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from oubli.app.service.erasure.erasures import refuses
from tests.unit.app.support import make_service, served_here


@pytest.mark.parametrize(
    ("n_held", "n_due", "max_share"),
    [
        (100, 0, 0.1),
        (100, 10, 0.1),
        (1000, 1, 0.0001),
        (3, 1, 0.1),
        (1, 1, 0.1),
        (0, 0, 0.1),
        (0, 0, 0.0),
        (60, 60, 1.0),
        (500_000, 50_000, 0.1),
    ],
)
def test_a_small_share_may_go(n_held, n_due, max_share):
    assert refuses(n_held=n_held, n_due=n_due, max_share=max_share) is None


@pytest.mark.parametrize(
    ("n_held", "n_due", "max_share", "allowed"),
    [(100, 11, 0.1, 10), (3, 2, 0.1, 1), (100, 1, 0.0, 0), (60, 60, 0.99, 59), (500_000, 50_001, 0.1, 50_000)],
)
def test_more_has_to_be_confirmed(n_held, n_due, max_share, allowed):
    reason = refuses(n_held=n_held, n_due=n_due, max_share=max_share)
    assert reason is not None
    assert reason.startswith(f"{n_due} of {n_held} samples")
    assert f"lets {allowed} go" in reason


def test_a_clock_that_was_put_back_is_told_in_the_log_and_by_the_model(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing expires until it has caught up."""

    async def work() -> None:
        service = make_service()
        hour_ms = 3_600_000
        async with served_here(service) as client:

            async def paused() -> Any:
                return (await client.get("/model")).json()["expiry_paused"]

            async def until_told(n: int) -> None:
                async with asyncio.timeout(20):
                    while sum("clock" in line for line in caplog.messages) < n:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)

            assert await paused() is None
            service.model.clock.witness(time.time_ns() // 1_000_000 + hour_ms)
            assert "1.0 hours behind" in await paused()
            await until_told(1)
            await asyncio.sleep(1.2)
            assert [line for line in caplog.messages if "clock" in line] == [f"nothing expires: {await paused()}"]

    asyncio.run(work())
