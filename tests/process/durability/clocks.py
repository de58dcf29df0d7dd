"""A server's clock, as wrong as one likes, and samples that expire by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.process.durability.asking import send
from tests.process.durability.clients import as_json
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import people
from tests.serving import Running


class Clock:
    """The clock of a server, as wrong as one likes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "clock.txt"
        self.offset = 0.0
        self.set(0)

    def set(self, offset: float) -> None:
        """Let it be wrong by so many seconds from now on."""
        self.offset = offset
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text(str(offset), encoding="ascii")
        unfinished.replace(self.path)

    def after(self, seconds: float) -> str:
        """Return what it will show in so many seconds, if no one changes it."""
        return (datetime.now(UTC) + timedelta(seconds=self.offset + seconds)).isoformat()


def expiring(name: str, expires_at: str, number: int = 7) -> dict[str, Any]:
    """Return a sample that expires, with somebody's content."""
    return {**as_json(Sent(name, people()[f"p{number}"])), "expires_at": expires_at}


def add_expiring(server: Running, name: str, expires_at: str, number: int = 7) -> None:
    """Have a server learn one."""
    status, answer = send(server, "POST", "/samples", {"samples": [expiring(name, expires_at, number)]})
    assert status == 201, answer
