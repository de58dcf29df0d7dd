"""Spans: names, parents, attributes, and what they never hold."""

import json
import threading
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `telemetry` is not installed")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from oubli.app.http.monitoring import telemetry
from oubli.app.http.monitoring.observer import ALONE, Correlation
from oubli.app.http.monitoring.telemetry import Tracing
from tests.unit.app.http.connections import ADD, DELETE, MODEL, PREDICT, Host, both_ways, request
from tests.unit.app.support import make_answers_long, make_changes_long, rows, samples

pytestmark = pytest.mark.anyio

TRACE, PARENT = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
TRACEPARENT = f"00-{TRACE:032x}-{PARENT:016x}-01"


class Traced:
    """An observer that makes spans, and the spans."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observe = Tracing(provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """Those of requests."""
        return tuple(span for span in self._exporter.get_finished_spans() if span.kind is SpanKind.SERVER)

    def below(self, parent: Any) -> list[Any]:
        """Those of the stages of a request."""
        spans: Any = self._exporter.get_finished_spans()
        found = [one for one in spans if one.parent is not None and one.parent.span_id == parent.context.span_id]
        assert all(one.context.trace_id == parent.context.trace_id for one in found)
        return found


@pytest.fixture
def traced() -> Traced:
    return Traced()


@pytest.fixture
def options(traced: Traced) -> dict[str, Any]:
    """Of the host."""
    return {"observer": traced.observe}


def with_parent(sent: bytes, traceparent: str) -> bytes:
    return sent.replace(b"\r\n", f"\r\nX-API-Key: SECRET\r\ntraceparent: {traceparent}\r\n".encode(), 1)


@both_ways
async def test_a_span_has_the_parent_that_its_request_names(host: Host, traced: Traced) -> None:
    await host.ask(
        *[with_parent(PREDICT, TRACEPARENT)] * 2,
        PREDICT,
        with_parent(DELETE, TRACEPARENT),
        with_parent(PREDICT, f"{TRACEPARENT[:-2]}00"),  # not sampled
    )
    first, second, alone, deleted = traced.spans
    for span in (first, second, deleted):
        assert span.context.trace_id == span.parent.trace_id == TRACE
        assert (span.parent.span_id, span.parent.is_remote) == (PARENT, True)
    assert alone.parent is None
    assert len({span.context.span_id for span in traced.spans if span.context}) == 4
    assert [span.name for span in traced.spans] == ["POST /predict"] * 3 + ["DELETE /samples/{id}"]
    expected = {"http.request.method": "DELETE", "http.route": "/samples/{id}", "http.response.status_code": 200}
    assert dict(deleted.attributes or {}) == expected
    assert all(0 <= (span.end_time or 0) - (span.start_time or 0) < 60e9 for span in traced.spans)


def test_what_is_malformed_is_ignored_and_a_mistake_of_the_server_is_an_error(traced: Traced) -> None:
    for malformed in (b"", b"SECRET", b"00-SECRET-SECRET-01", b"\xff\xfe", TRACEPARENT.encode()[:-1]):
        traced.observe("GET", "/model", 200, 0.001, b"x", Correlation(None, malformed))
    assert all(span.parent is None and "SECRET" not in span.to_json() for span in traced.spans)
    traced.observe("GET", "unknown", 404, 0.001, b"x", ALONE)
    traced.observe("GET", "/model", 500, 0.001, b"x", ALONE)
    *_, unknown, failed = traced.spans
    assert (unknown.name, unknown.status.status_code) == ("GET", StatusCode.UNSET)
    assert "http.route" not in (unknown.attributes or {})
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, None)
    assert (failed.attributes or {})["error.type"] == "500"


def test_a_collector_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_PATIENCE", 0.01)
    answered = threading.Event()
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(provider, "shutdown", answered.wait)
    Tracing(provider).close()
    assert not answered.is_set()
    answered.set()


def stages_of(traced: Traced) -> list[list[str]]:
    """The names of the stages of each request, which must follow each other and fill the time of the request."""
    names = []
    for span in traced.spans:
        stages = traced.below(span)
        assert all(one.end_time == other.start_time for one, other in pairwise(stages))
        if stages:  # two clocks are read one after the other
            assert abs(stages[0].start_time - (span.start_time or 0)) < 50e6
            assert abs(stages[-1].end_time - (span.end_time or 0)) < 50e6
        assert all(not one.attributes for one in stages)
        names.append([one.name for one in stages])
    return names


@both_ways
@pytest.mark.parametrize("durable", [True, False])
async def test_stages_of_a_request_are_spans_below_its_own(host: Host, traced: Traced) -> None:
    await host.ask(
        *[PREDICT] * 2,
        *[ADD] * 2,  # again: nothing is written
        *(DELETE, MODEL, request("POST", "/predict", b'{"instances": [[1]]}')),
    )
    predicted, changed = ["parse", "model", "answer"], ["parse", "wait", "plan", "journal", "model", "answer"]
    assert stages_of(traced) == [predicted, predicted, changed, ["parse", "wait", "answer"], changed, [], []]


async def test_long_work_waits_on_a_copy(host: Host, traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    make_changes_long(monkeypatch)
    make_answers_long(monkeypatch)
    contents = {"/predict": {"instances": rows(2)}, "/samples": samples(2)}
    await host.ask(*(request("POST", path, json.dumps(content).encode()) for path, content in contents.items()))
    predicted, added = ["parse", "wait", "model", "answer"], ["parse", "wait", "model", "journal", "answer"]
    assert stages_of(traced) == [predicted, added]
