"""What `GET /events` tells: the server's state in sections, each of which is told whole when it has changed."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from oubli.app.http.feeds import encode_event
from oubli.app.times import to_text
from oubli.app.version import VERSION

if TYPE_CHECKING:
    from oubli.app.service.model_service import ModelService

MOST_JOBS = 20


class StateEvents:
    """Makes the events of changes of a service's state, without anything of a sample.

    Parameters
    ----------
    service
        Is looked at.
    """

    def __init__(self, service: ModelService) -> None:
        self._service = service
        self._server = secrets.token_hex(4)
        self._started_at = to_text(time.time_ns() // 1_000_000)
        self._n_told = 0
        self._deadline = NextDeadline(service)
        self._told: dict[str, Any] = {}
        service.holders.register("events", self._forget)

    def _forget(self, period: int) -> None:
        """Forget the snapshot that was told last: while nobody listens it may be one from before an erasure."""
        del period
        self._told.pop("snapshot", None)

    def look(self) -> bytes:
        """Return an event for each section that has changed."""
        now, before = self._sections(), self._told
        changed = [name for name, section in now.items() if section != before.get(name)]
        self._told = now
        pieces = []
        for name in changed:
            self._n_told += 1
            pieces.append(encode_event(name, now[name], self._last_id))
        return b"".join(pieces)

    def hello(self, last_id: str | None) -> bytes:
        """Return all sections, and whether nothing has changed since an event."""
        about = {"server": self._server, "version": VERSION, "started_at": self._started_at}
        content = {**about, "resumed": last_id == self._last_id, **self._told}
        return encode_event("hello", content, self._last_id)

    @property
    def _last_id(self) -> str:
        return f"{self._server}.{self._n_told}"

    def _sections(self) -> dict[str, Any]:
        service, state = self._service, self._service.state
        model = state.model
        measured = service.measure()
        check, newest = measured.check, service.newest_snapshot
        return {
            "model": {
                "kind": model.kind,
                "task": str(model.task),
                "guarantee": model.guarantee,
                "model_version": state.version,
                "n_samples": measured.n_samples,
                "n_restricted": len(model.samples_.restricted) if model.is_usable else 0,
                "lazy_tags": measured.lazy_tags,
                "durable": service.is_durable,
            },
            "changes": {"state": "accepted" if state.stopped is None else "stopped", "reason": state.stopped},
            "expiry": {"paused": service.retention.paused},
            "erasures": {
                "pending": measured.pending_erasures,
                "overdue": measured.overdue_erasures,
                "erased": service.erasures.n_erased,
                "deadline_s": measured.erasure_deadline,
                "next_deadline_at": self._deadline.text(),
            },
            "snapshot": None
            if newest is None
            else {
                "id": newest.id,
                "model_version": newest.model_version,
                "created_at": newest.created_at,
                "bytes": newest.bytes,
                "digest": newest.digest,
            },
            "check": None if check is None else {"at": time_text(check.at), "ok": check.is_ok},
            "scrub": None if measured.scrubbed_at is None else {"at": time_text(measured.scrubbed_at)},
            "ledger": {"index": service.ledger.head.index},
            "jobs": [
                {"id": job.id, "kind": job.kind, "status": job.status, "progress": round(job.progress, 3)}
                for job in service.jobs.all()[-MOST_JOBS:]
            ],
            "work": [{"kind": one.kind, "progress": round(one.progress, 3)} for one in service.activities],
        }


class NextDeadline:
    """When the oldest erasure is due, as a time that stays the same as long as it is the oldest.

    Parameters
    ----------
    service
        Knows the erasures.
    """

    def __init__(self, service: ModelService) -> None:
        self._service = service
        self._known: tuple[str, str] | None = None

    def text(self) -> str | None:
        """Return it in RFC 3339; None when no erasure waits."""
        found = self._service.erasures.deadline.next_in()
        if found is None:
            self._known = None
            return None
        name, seconds = found
        if self._known is None or self._known[0] != name:
            self._known = name, to_text(self._service.clock.latest_ms() + round(1000 * seconds))
        return self._known[1]


def time_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as text."""
    return to_text(round(1000 * seconds))
