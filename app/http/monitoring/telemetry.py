"""Traces for OpenTelemetry: a span for each request, with the parent that its `traceparent` names.

A span is made when the request is answered, from the arguments of an observer: so both paths have it, and a request
that is not traced costs nothing. It holds method, route and status: no path, no query, no header, no text of an error.
Below it are spans of its stages, see `oubli.app.times`: names of this program and times.
The SDK reads the usual variables: OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, OTEL_EXPORTER_OTLP_HEADERS and so on.
"""

from __future__ import annotations

import os
import time
from threading import Thread
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from oubli.app.http.monitoring.observer import UNKNOWN_ROUTE
from oubli.app.times import stages
from oubli.app.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from oubli.app.http.monitoring.observer import Correlation

_SERVER_ERROR = 500
_PATIENCE = 3.0  # seconds that a stop may wait for the collector
_PROPAGATOR = TraceContextTextMapPropagator()


class Tracing:
    """Makes a span of each request, with one below it for each of its stages; an observer.

    Parameters
    ----------
    provider
        Makes spans and passes them on.

    Attributes
    ----------
    reads_stages
        That stages are to be noted for it.
    """

    reads_stages = True

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("oubli", VERSION)

    def __call__(
        self, method: str, route: str, status: int, seconds: float, request_id: bytes, correlation: Correlation
    ) -> None:
        """Make the span of a request that has just been answered."""
        now = time.time_ns()
        attributes: dict[str, str | int] = {"http.request.method": method, "http.response.status_code": status}
        name = method
        if route != UNKNOWN_ROUTE:
            attributes["http.route"] = route
            name = f"{method} {route}"
        span = self._tracer.start_span(
            name,
            context=_parent_of(correlation),
            kind=SpanKind.SERVER,
            attributes=attributes,
            start_time=now - round(seconds * 1e9),
        )
        if status >= _SERVER_ERROR:
            span.set_attribute("error.type", str(status))
            span.set_status(Status(StatusCode.ERROR))
        noted = stages.get()
        if noted is not None and noted.found and span.is_recording():
            noted.end("answer")
            zero = now - round(time.monotonic() * 1e9)
            below = set_span_in_context(span)
            for stage in noted.found:
                child = self._tracer.start_span(stage.name, below, start_time=zero + round(stage.started * 1e9))
                child.end(zero + round(stage.ended * 1e9))
        span.end(now)

    def close(self) -> None:
        """Send what was not sent yet; what a collector does not take soon is lost."""
        sending = Thread(target=self._provider.shutdown, daemon=True)
        sending.start()
        sending.join(_PATIENCE)


def trace_to(endpoint: str) -> Tracing:
    """Return what sends spans to a collector, in a thread of its own.

    Parameters
    ----------
    endpoint
        URL that takes OTLP over HTTP.
    """
    name = os.environ.get("OTEL_SERVICE_NAME", "oubli")
    resource = Resource.create({SERVICE_NAME: name, SERVICE_VERSION: VERSION})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return Tracing(provider)


def _parent_of(correlation: Correlation) -> Context | None:
    """Return the context that a request names; None where it names none. What is malformed is ignored."""
    if correlation.traceparent is None:
        return None
    return _PROPAGATOR.extract({"traceparent": correlation.traceparent.decode("latin-1")})
