"""The tables of a cluster in memory, as several nodes of one process may share them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest

pytest.importorskip("psycopg")

from oubli.app.errors import JournalUnreachableError
from oubli.app.storage.postgres.database import Leader, Member, SegmentRow


class Tables:
    """What `Cluster` asks PostgreSQL, for nodes that are threads; `now` is its clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.RLock()
        self.epoch, self.holder, self.url, self.until, self.last_seq = 0, "", None, 0.0, 0
        self.nodes: dict[str, tuple[Member, float]] = {}
        self.is_away = False
        self.set_forward = 0.0  # seconds by which its clock was set since all reports
        self.before_expel: Callable[[], object] = lambda: None
        self._n_reports = 0
        self.calls: list[str] = []

    def leader(self) -> Leader | None:
        with self._asked("leader"):
            if not self.epoch:
                return None
            return Leader(self.epoch, self.holder, self.url, self.until - self._now(), self.last_seq)

    def take_over(self, name: str, url: str | None, seconds: float) -> int | None:
        with self._asked("take_over"):
            if self.until > self._now() and self.holder != name:
                return None
            self.epoch += 1
            self.holder, self.url, self.until = name, url, self._now() + seconds
            return self.epoch

    def renew(self, epoch: int, seconds: float) -> bool:
        with self._asked("renew"):
            if epoch != self.epoch:
                return False
            self.until = max(self.until, self._now() + seconds)
            return True

    def resign(self, epoch: int) -> None:
        with self._asked("resign"):
            if epoch == self.epoch:
                self.until = self._now()

    def report(self, member: Member) -> bool:
        with self._asked("report"):
            known = self.nodes.get(member.name)
            if known is None or known[0].expelled:
                return False
            self.nodes[member.name] = replace(member, seen=self._tick()), self._now()
            return True

    def members(self) -> list[Member]:
        with self._asked("members"):
            now = self._now()
            return [replace(one, seen_seconds_ago=now - at + self.set_forward) for one, at in self.nodes.values()]

    def expel(self, name: str, seen: datetime | None, epoch: int) -> bool:
        self.before_expel()
        with self._asked("expel"):
            member, at = self.nodes[name]
            if member.seen != seen:
                return False
            self.nodes[name] = replace(member, expelled=True), at
            return epoch == self.epoch

    def readmit(self, name: str, url: str | None) -> None:
        with self._lock:
            self.nodes[name] = Member(name, url, seen=self._tick()), self._now()

    def segments(self) -> list[SegmentRow]:
        with self._asked("segments"):
            return []

    def close(self) -> None:
        """Nothing is open."""

    def _tick(self) -> datetime:
        self._n_reports += 1
        return datetime.fromtimestamp(self._n_reports, UTC)

    @contextmanager
    def _asked(self, call: str) -> Iterator[None]:
        """One question after the other, when the database is there."""
        with self._lock:
            self.calls.append(call)
            if self.is_away:
                raise JournalUnreachableError("away")
            yield
