"""What `GET /metrics/events` tells: a line a second with what people watch, the same for all who listen."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oubli.app.http.events import NextDeadline, time_text
from oubli.app.http.feeds import encode_event
from oubli.app.service.durations import BOUNDS
from oubli.app.times import to_text

if TYPE_CHECKING:
    from oubli.app.http.metrics import Request, RequestMetrics
    from oubli.app.service.model_service import ModelService

_SECOND = 1.0
_TOLERANCE = 0.05  # a look that comes a little early is in time
_STALE = 2.5  # seconds after which the line before is nothing to compare with
_PREDICT, _ADD, _DELETE = "predict", "add", "delete"
_GROUPS = {
    ("POST", "/predict"): _PREDICT,
    ("POST", "/v2/models/{model_name}/infer"): _PREDICT,
    ("POST", "/v2/models/{model_name}/versions/{model_version}/infer"): _PREDICT,
    ("POST", "/samples"): _ADD,
    ("DELETE", "/samples"): _DELETE,
    ("DELETE", "/samples/{id}"): _DELETE,
    ("POST", "/samples/batch-delete"): _DELETE,
}
Counts = dict[str, list[int]]


class MetricsEvents:
    """Makes the lines; rates are over the time since the line before.

    Parameters
    ----------
    service
        Is measured.
    metrics
        Has counted its requests.
    """

    def __init__(self, service: ModelService, metrics: RequestMetrics) -> None:
        self._service = service
        self._metrics = metrics
        self._started = time.monotonic()
        self._deadline = NextDeadline(service)
        self._at = float("-inf")
        self._counts: Counts = {}
        self._n_resolved = 0
        self._line = b""

    def look(self) -> bytes:
        """Return the next line; empty while it is not time for one."""
        now = time.monotonic()
        seconds = now - self._at
        if seconds < _SECOND - _TOLERANCE:
            return b""
        counts, resolved = counts_of(self._metrics.copy()), self._service.state.n_resolved
        is_fresh = seconds < _STALE
        before = self._counts if is_fresh else None
        content = {
            "at": to_text(self._service.clock.latest_ms()),
            "uptime_s": round(now - self._started, 1),
            **{group: _rate(group, counts, before, seconds) for group in (_PREDICT, _ADD, _DELETE)},
            "resolved_per_second": round((resolved - self._n_resolved) / seconds, 1) if is_fresh else None,
            **self._state(),
        }
        self._at, self._counts, self._n_resolved = now, counts, resolved
        self._line = encode_event("metrics", content)
        return self._line

    def hello(self, last_id: str | None) -> bytes:
        """Return the newest line."""
        del last_id
        return self._line

    def _state(self) -> dict[str, Any]:
        measured = self._service.measure()
        return {
            "phase": measured.phase,
            "model_version": measured.model_version,
            "n_samples": measured.n_samples,
            "lazy_tags": measured.lazy_tags,
            "journal": {
                "records": measured.journal_records,
                "bytes": measured.journal_bytes,
                "oldest_at": _moment(measured.journal_oldest_at),
            },
            "snapshot": {"at": _moment(measured.snapshot_at), "lag_records": measured.snapshot_lag},
            "scrub": {"at": _moment(measured.scrubbed_at)},
            "erasures": {
                "pending": measured.pending_erasures,
                "overdue": measured.overdue_erasures,
                "deadline_s": measured.erasure_deadline,
                "next_deadline_at": self._deadline.text(),
            },
            "waiting": measured.waiting,
            "waiting_limit": measured.most_waiting,
            "memory": {"model_bytes": measured.model_bytes, "process_bytes": _resident_bytes()},
        }


def counts_of(durations: dict[Request, Any]) -> Counts:
    """Return how many requests that were answered as asked took how long, by group and bucket of `BOUNDS`."""
    counts: Counts = {}
    for (method, route, status), histogram in durations.items():
        group = _GROUPS.get((method, route))
        if group is not None and 200 <= status < 300:
            known = counts.get(group)
            counts[group] = (
                histogram.counts if known is None else [a + b for a, b in zip(known, histogram.counts, strict=True)]
            )
    return counts


def quantile_ms(counts: list[int], share: float) -> float | None:
    """Return the duration, in milliseconds, that a share of requests stays below; None without requests.

    Within a bucket durations are taken as spread evenly; beyond the last bound it is that bound.
    """
    wanted = share * sum(counts)
    if not wanted:
        return None
    up_to_each = list(accumulate(counts))
    bucket = bisect_left(up_to_each, wanted)
    if bucket == len(BOUNDS):
        return 1000 * BOUNDS[-1]
    low, high = (BOUNDS[bucket - 1] if bucket else 0.0), BOUNDS[bucket]
    return round(1000 * (high - (high - low) * (up_to_each[bucket] - wanted) / counts[bucket]), 4)


def _rate(group: str, counts: Counts, before: Counts | None, seconds: float) -> dict[str, float | None]:
    if before is None:
        return {"per_second": None, "p50_ms": None, "p99_ms": None}
    now = counts.get(group, [0] * (len(BOUNDS) + 1))
    earlier = before.get(group, [0] * len(now))
    new = [a - b for a, b in zip(now, earlier, strict=True)]
    return {
        "per_second": round(sum(new) / seconds, 1),
        "p50_ms": quantile_ms(new, 0.5),
        "p99_ms": quantile_ms(new, 0.99),
    }


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else time_text(seconds)


def _resident_bytes() -> int | None:
    """Return how much memory the process has; None where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
