"""What more than one test of the service needs."""

from __future__ import annotations

import pytest


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks at the clock in the background does so all the time."""
    for name in ("checkpoint._TICK", "erasures._TICK", "erasures._LOOK"):
        monkeypatch.setattr(f"oubli.app.service.erasure.{name}", 0.01)
