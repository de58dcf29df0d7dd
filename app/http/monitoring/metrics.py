"""The series of `GET /metrics` for Prometheus.

Requests are counted in integers of our own, because a counter with labels of `prometheus_client` takes longer than the
routing of a request. All other series are read from the service when they are asked for. A label is a route's template,
a method, a status or a word of this program; never a path, a key, a class or a category.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, NamedTuple, get_args

from prometheus_client import GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry

from oubli.app.errors import StopReason
from oubli.app.http.monitoring.observer import Correlation
from oubli.app.service.measurements import Measurements
from oubli.app.service.model.state import Phase
from oubli.app.times import BOUNDS, Histogram
from oubli.app.version import VERSION

REQUESTS = "oubli_http_request_duration_seconds"
OPENMETRICS = "application/openmetrics-text"
PLAIN = "text/plain"
COMMITS = "oubli_journal_commit_duration_seconds"
_LABELS = ("method", "route", "status")
_BUCKETS = [*map(str, BOUNDS), "+Inf"]

Request = tuple[str, str, int]
"""Method, template of the route, and status."""


class Series(NamedTuple):
    """A number of the service, as a series of Prometheus.

    Attributes
    ----------
    name, text
        As Prometheus and its users see it.
    value
        Reads it; None leaves the series out.
    family
        What kind of number it is.
    """

    name: str
    text: str
    value: Callable[[Measurements], float | None]
    family: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily


READY = Series("oubli_ready", "1 while predictions are answered.", lambda m: m.is_ready)
TABLE = (
    READY,
    Series("oubli_durable", "1 if acknowledged changes survive a crash.", lambda m: m.is_durable),
    Series("oubli_model_version", "Version of the samples, parameters and kind.", lambda m: m.model_version),
    Series("oubli_samples", "Samples that the model holds.", lambda m: m.n_samples),
    Series("oubli_model_memory_bytes", "Memory of trees and samples, with reserved space.", lambda m: m.model_bytes),
    Series("oubli_lazy_tags", "Tags: nodes that the next query, or idle time, has to check.",
           lambda m: m.lazy_tags),
    Series("oubli_resolved_tags_total", "Lazy tags resolved since the start.", lambda m: m.resolved_tags,
           CounterMetricFamily),
    Series("oubli_waiting_requests", "Requests that wait for the model.", lambda m: m.waiting),
    Series("oubli_waiting_requests_limit", "Number of waiting requests above which further ones are refused.",
           lambda m: m.most_waiting),
    Series("oubli_journal_records", "Records in the newest segment of the journal.", lambda m: m.journal_records),
    Series("oubli_journal_bytes", "Bytes of records in the newest segment of the journal.", lambda m: m.journal_bytes),
    Series("oubli_journal_oldest_record_timestamp_seconds",
           "Time of the first record in the journal's newest segment; absent while it is empty.",
           lambda m: m.journal_oldest_at),
    Series("oubli_snapshot_timestamp_seconds", "Time of the newest snapshot.", lambda m: m.snapshot_at),
    Series("oubli_snapshot_lag_records", "Records of the journal that are not in the newest snapshot.",
           lambda m: m.snapshot_lag),
    Series("oubli_ledger_lag_records", "Records of the journal that are not in the ledger's file.",
           lambda m: m.ledger_lag),
    Series("oubli_erasures_pending", "Acknowledged erasures that are not finished.", lambda m: m.pending_erasures),
    Series("oubli_erasures_overdue", "Unfinished erasures past their deadline.", lambda m: m.overdue_erasures),
    Series("oubli_erasures_late_total", "Erasures that finished after their deadline, since the start.",
           lambda m: m.late_erasures, CounterMetricFamily),
    Series("oubli_erasure_oldest_pending_seconds", "Age of the oldest unfinished erasure.",
           lambda m: m.oldest_erasure),
    Series("oubli_erasure_deadline_seconds", "Deadline of an erasure.", lambda m: m.erasure_deadline),
    Series("oubli_expiry_paused", "1 while expiry has paused; `GET /model` says why.",
           lambda m: m.is_expiry_paused),
    Series("oubli_scrub_timestamp_seconds",
           "Time of the last rewrite of all files without the unlearned samples; absent before the first.",
           lambda m: m.scrubbed_at),
    Series("oubli_verify_timestamp_seconds",
           "Time of the last comparison with a fresh fit; absent before the first.",
           lambda m: None if m.check is None else m.check.at),
    Series("oubli_verify_ok", "1 if the last comparison with a fresh fit found no difference.",
           lambda m: None if m.check is None else m.check.is_ok),
    Series("oubli_deliveries_waiting", "Statuses of receipts that wait for delivery to webhooks and callbacks.",
           lambda m: m.deliveries_due),
    Series("oubli_deliveries_oldest_waiting_seconds", "Age of the oldest waiting delivery.",
           lambda m: m.deliveries_oldest),
    Series("oubli_deliveries_dead", "Dead letters: `GET /webhooks/dead-letters` lists them.",
           lambda m: m.deliveries_dead),
    Series("oubli_deliveries_total", "Delivered statuses since the start.", lambda m: m.deliveries_arrived,
           CounterMetricFamily),
    Series("oubli_delivery_failures_total", "Failed attempts since the start.", lambda m: m.deliveries_failed,
           CounterMetricFamily),
    Series("oubli_cluster_is_leader", "1 at the leader. Without `follow` this and the next series are absent.",
           lambda m: None if m.standing is None else m.standing.is_leader),
    Series("oubli_cluster_epoch", "Increases by one whenever another node takes over.",
           lambda m: None if m.standing is None else m.standing.epoch),
    Series("oubli_cluster_lag_versions", "Versions that this node is behind the leader.",
           lambda m: None if m.standing is None else m.standing.lag_versions),
    Series("oubli_cluster_lag_seconds", "Seconds since this node was last in step; 0 while it is.",
           lambda m: None if m.standing is None else m.standing.lag_seconds),
    Series("oubli_cluster_digests_equal",
           "1 if the model equalled the leader's at the last comparison; absent before the first.",
           lambda m: None if m.standing is None else m.standing.digests_equal),
)  # fmt: skip
"""Series of one number; `GET /metrics` also has histograms, infos and the process."""

OTHERS = (
    (REQUESTS, "histogram", "Duration of requests by method, route and status, until the answer is made."),
    (COMMITS, "histogram", "Duration of writing records to the journal, the flush included."),
    ("oubli_phase", "gauge", "1 for the phase that the server is in: starting, ready or stopping."),
    ("oubli_changes_stopped", "gauge", "1 for the reason why changes have stopped."),
    ("oubli_cluster_members", "gauge", "Nodes in each state: in-step, behind, silent or expelled."),
    ("oubli_build_info", "gauge", "1, labelled with the versions of Oubli and Python."),
    ("oubli_model_info", "gauge", "1, labelled with kind, task and guarantee of the model."),
)
"""Name, type and text of the other series of our own."""


class RequestMetrics:
    """Counts requests by method, route and status; `observe` is an observer."""

    def __init__(self) -> None:
        self._durations: dict[Request, Histogram] = {}

    def observe(
        self, method: str, route: str, status: int, seconds: float, request_id: bytes, correlation: Correlation
    ) -> None:
        """Count a request."""
        histogram = self._durations.get((method, route, status))
        if histogram is None:
            histogram = self._durations[method, route, status] = Histogram()
        # `Histogram.observe`, without a call: this is done for each request.
        histogram.counts[bisect_left(BOUNDS, seconds)] += 1
        histogram.total += seconds

    def copy(self) -> dict[Request, Histogram]:
        """Return what was counted until now."""
        return {request: histogram.copy() for request, histogram in self._durations.items()}


_TEXTS = {name: text for name, _, text in OTHERS}
_PROCESS = CollectorRegistry()
ProcessCollector(registry=_PROCESS)
GCCollector(registry=_PROCESS)


class Exposition(Collector):
    """All series at one instant, as `prometheus_client` wants them to write them; any thread may read them.

    Parameters
    ----------
    measured
        The service.
    requests
        Durations of requests.
    """

    def __init__(self, measured: Measurements, requests: dict[Request, Histogram]) -> None:
        self._measured = measured
        self._requests = requests

    def collect(self) -> Iterable[Metric]:
        """Return all families."""
        measured = self._measured
        yield _build()
        yield _phase(measured.phase)
        names = {"kind": measured.kind, "task": measured.task, "guarantee": measured.guarantee}
        yield _info("oubli_model", names)
        for series in TABLE:
            value = series.value(measured)
            if value is not None:
                yield series.family(series.name, series.text, value)
        stopped = GaugeMetricFamily("oubli_changes_stopped", _TEXTS["oubli_changes_stopped"], labels=("reason",))
        for reason in StopReason:
            stopped.add_metric((reason,), reason is measured.stopped)
        yield stopped
        if measured.standing is not None:
            members = GaugeMetricFamily("oubli_cluster_members", _TEXTS["oubli_cluster_members"], labels=("state",))
            for word, count in measured.standing.members.items():
                members.add_metric((word,), count)
            yield members
        yield _histogram(COMMITS, (), {(): measured.commits})
        yield _histogram(REQUESTS, _LABELS, self._requests)
        yield from _PROCESS.collect()


class BareExposition(Collector):
    """The series while no model is served: the phase and the process.

    Parameters
    ----------
    phase
        That the server is in.
    """

    def __init__(self, phase: Phase) -> None:
        self._phase = phase

    def collect(self) -> Iterable[Metric]:
        """Return all families."""
        yield _build()
        yield _phase(self._phase)
        yield GaugeMetricFamily(READY.name, READY.text, 0)
        yield from _PROCESS.collect()


def encode(exposition: Collector, accept: str) -> tuple[bytes, str]:
    """Return all series in the format that a caller accepts, and its media type; takes milliseconds.

    Parameters
    ----------
    exposition
        What to write.
    accept
        The `Accept` header: OpenMetrics where it names it, else the text format. Nothing of it is repeated.
    """
    if any(one.partition(";")[0].strip().lower() == OPENMETRICS for one in accept.split(",")):
        written = openmetrics.generate_latest(exposition)  # type: ignore[no-untyped-call]
        return written, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(exposition), CONTENT_TYPE_PLAIN_0_0_4


def _build() -> Metric:
    return _info("oubli_build", {"version": VERSION, "python": platform.python_version()})


def _phase(phase: Phase) -> Metric:
    family = GaugeMetricFamily("oubli_phase", _TEXTS["oubli_phase"], labels=("phase",))
    for each in get_args(Phase):
        family.add_metric((each,), each == phase)
    return family


def _info(name: str, labels: dict[str, str]) -> Metric:
    return InfoMetricFamily(name, _TEXTS[f"{name}_info"], labels)


def _histogram(name: str, labels: tuple[str, ...], found: Mapping[Any, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, _TEXTS[name], labels=labels)
    for values, histogram in sorted(found.items()):
        family.add_metric([*map(str, values)], list(_cumulated(histogram)), histogram.total)
    return family


def _cumulated(histogram: Histogram) -> Iterator[tuple[str, float]]:
    return zip(_BUCKETS, map(float, accumulate(histogram.counts)), strict=True)
