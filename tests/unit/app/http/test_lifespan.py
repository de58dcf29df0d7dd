"""The application starts and stops its service."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.app.support import forest, make_service, served_here


def test_the_service_is_stopped_when_the_server_breaks_off():
    service = make_service(forest(20))

    async def play() -> None:
        async with served_here(service):
            assert service.model.state.phase == "ready"
            raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        asyncio.run(play())
    assert service.model.state.phase == "stopping"
