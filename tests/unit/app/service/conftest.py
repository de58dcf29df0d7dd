"""What more than one test of the service needs."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oubli.app.service.service import Service
from tests.unit.app.service.support import running
from tests.unit.app.support import make_service


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks at the clock in the background does so all the time."""
    for name in ("checkpoint._TICK", "erasures._TICK", "erasures._LOOK"):
        monkeypatch.setattr(f"oubli.app.service.erasure.{name}", 0.01)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service that runs."""
    async with running(make_service(directory=tmp_path / "data")) as service:
        yield service
