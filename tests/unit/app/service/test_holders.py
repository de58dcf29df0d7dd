"""What may hold something of a sample: who is waited for, and what is forgotten."""

import asyncio

import pytest

from oubli.app.service.erasure.holders import Holders
from oubli.app.service.model.state import ModelState
from tests.unit.app.support import forest

pytestmark = pytest.mark.anyio


async def test_work_that_lets_go_ends_the_wait_and_what_it_has_kept_is_forgotten():
    holders, kept = Holders(ModelState(forest(0), 1, 0)), [0]

    def forget(period: int) -> None:
        kept[:] = [made for made in kept if made > period]

    holders.register("rankings", forget)
    hold = holders.hold("influence")
    ridding = asyncio.create_task(holders.rid(hold.period, patience=3600.0))
    await asyncio.sleep(0)
    assert (kept, ridding.done()) == ([], False)
    kept += [hold.period, hold.period + 1]
    hold.let_go()
    await asyncio.wait_for(ridding, 20)
    assert (kept, hold.is_ended) == ([1], False)
