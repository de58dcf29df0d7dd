"""Spans: names, parents, attributes, and what they never hold."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra `telemetry` is not installed")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from oubli.app.http import telemetry
from oubli.app.http.correlation import ALONE, Correlation
from oubli.app.http.telemetry import Tracing
from tests.unit.app.http.connections import hosting, request
from tests.unit.app.support import make_service

ONE_ROW = json.dumps({"instances": [[1, "a", True]]}).encode()
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
        return self._exporter.get_finished_spans()


def with_parent(method: str, target: str, body: bytes, traceparent: str) -> bytes:
    headers = (
        ("Host", "127.0.0.1"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
        ("X-API-Key", "SECRET"),
        ("traceparent", traceparent),
    )
    return request(method, target, body, headers=headers)


@pytest.mark.parametrize("hot", [True, False])
def test_a_span_has_the_parent_that_its_request_names(hot: bool) -> None:
    async def work() -> None:
        traced = Traced()
        async with hosting(make_service(), hot=hot, observer=traced.observe) as host:
            connection = host.connect()
            for sent in (
                with_parent("POST", "/predict", ONE_ROW, TRACEPARENT),
                with_parent("POST", "/predict", ONE_ROW, TRACEPARENT),
                request("POST", "/predict", ONE_ROW),
                with_parent("DELETE", "/samples/c1", b"", TRACEPARENT),
            ):
                connection.send(sent)
                await host.settle()
        first, second, alone, deleted = traced.spans
        for span in (first, second, deleted):
            assert span.context is not None
            assert span.parent is not None
            assert span.context.trace_id == span.parent.trace_id == TRACE
            assert span.parent.span_id == PARENT
            assert span.parent.is_remote
        assert alone.parent is None
        assert len({span.context.span_id for span in traced.spans if span.context}) == 4
        assert [span.name for span in traced.spans] == ["POST /predict"] * 3 + ["DELETE /samples/{id}"]
        assert all(span.kind is SpanKind.SERVER for span in traced.spans)
        assert dict(deleted.attributes or {}) == {
            "http.request.method": "DELETE",
            "http.route": "/samples/{id}",
            "http.response.status_code": 200,
        }
        for span in traced.spans:
            assert span.start_time is not None
            assert span.end_time is not None
            assert 0 <= span.end_time - span.start_time < 60e9

    asyncio.run(work())


def test_a_caller_that_does_not_sample_is_heeded() -> None:
    traced = Traced()
    traced.observe("GET", "/model", 200, 0.001, b"x", Correlation(None, f"{TRACEPARENT[:-2]}00".encode()))
    assert traced.spans == ()


@pytest.mark.parametrize("malformed", [b"", b"SECRET", b"00-SECRET-SECRET-01", b"\xff\xfe", TRACEPARENT.encode()[:-1]])
def test_what_is_malformed_is_ignored(malformed: bytes) -> None:
    traced = Traced()
    traced.observe("GET", "/model", 200, 0.001, b"x", Correlation(None, malformed))
    (span,) = traced.spans
    assert span.parent is None
    assert "SECRET" not in span.to_json()


def test_a_request_without_a_route_is_named_by_its_method() -> None:
    traced = Traced()
    traced.observe("GET", "unknown", 404, 0.001, b"x", ALONE)
    (span,) = traced.spans
    assert span.name == "GET"
    assert "http.route" not in (span.attributes or {})
    assert span.status.status_code is StatusCode.UNSET


def test_a_mistake_of_the_server_is_an_error() -> None:
    traced = Traced()
    traced.observe("GET", "/model", 500, 0.001, b"x", ALONE)
    (span,) = traced.spans
    assert span.status.status_code is StatusCode.ERROR
    assert (span.attributes or {})["error.type"] == "500"
    assert span.status.description is None


def test_spans_hold_nothing_that_was_sent() -> None:
    async def work() -> None:
        traced = Traced()
        async with hosting(make_service(), observer=traced.observe) as host:
            connection = host.connect()
            for method, target, body in (
                ("GET", "/samples/SECRET", b""),
                ("GET", "/samples?subject=SECRET", b""),
                ("DELETE", "/samples/SECRET", b""),
                ("POST", "/predict", json.dumps({"instances": [["SECRET"]]}).encode()),
                ("GET", "/SECRET", b""),
            ):
                connection.send(with_parent(method, target, body, TRACEPARENT))
                await host.settle()
        assert len(traced.spans) == 5
        found: Any = "".join(span.to_json() for span in traced.spans)
        assert "SECRET" not in found

    asyncio.run(work())


def test_a_collector_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_PATIENCE", 0.01)
    answered = threading.Event()
    provider = TracerProvider(shutdown_on_exit=False)
    monkeypatch.setattr(provider, "shutdown", answered.wait)
    Tracing(provider).close()
    assert not answered.is_set()
    answered.set()
