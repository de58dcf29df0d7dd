"""The application: the service behind HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path
from starlette_compress import CompressMiddleware, add_compress_type, remove_compress_type
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from oubli.app.errors import JournalError, ServiceError
from oubli.app.http.auth import rules_of
from oubli.app.http.bulk.answers import Bulk, BulkLimits
from oubli.app.http.connection.fastpath import FastPath
from oubli.app.http.formats import LEAST_COMPRESSED, Format, guard_formulas
from oubli.app.http.middleware import CrossOrigin, Middleware
from oubli.app.http.monitoring.events import Feed, MetricsEvents, Source, StateEvents
from oubli.app.http.monitoring.metrics import RequestMetrics
from oubli.app.http.monitoring.observer import Observed, Observer, all_of, log_access
from oubli.app.http.openapi import MAIN, RouteTable, add_heads, documents
from oubli.app.http.parsing import Context, Reader
from oubli.app.http.problems import MEDIA_TYPE, ProblemError, target_of, to_problem
from oubli.app.http.routes import (
    cluster,
    erasures,
    health,
    inference,
    log,
    model,
    opendsr,
    pages,
    predictions,
    samples,
    snapshots,
    subjects,
)
from oubli.app.service.service import Service
from oubli.app.settings import Settings
from oubli.app.version import VERSION
from oubli.core.errors import OubliError

if TYPE_CHECKING:
    from oubli.app.http.monitoring.telemetry import Tracing  # needs packages that are not always installed

DESCRIPTION = """
A model that learns and forgets single samples, exactly: after every change it is the model that training on the
samples held would give, bit for bit.

Every error is `application/problem+json` and never repeats what was sent; below `/v2` it is `{"error": "..."}`, below
`/opendsr` `{"error": {"code": ..., "message": "...", "errors": [...]}}`. Changes are on the disk and in every later
prediction when they are answered. What was deleted is gone from all files soon after; its receipt says when.

A request with the header `Min-Version` asks for this `model_version` or a later one: a server that is behind it answers
503 (`behind`), not from an older model.

Of several nodes one takes changes. The others answer them with a redirect (307) to it, or with 503 while none does
(`not-leader`); `GET /cluster` tells which one it is.
"""
# Spans and log records of FastAPI's telemetry hold paths and exception texts, and paths hold ids.
_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}
_ROUTERS = (
    predictions.router,
    inference.router,
    predictions.influence,
    samples.router,
    subjects.router,
    erasures.router,
    opendsr.router,
    log.router,
    snapshots.router,
    model.router,
    model.jobs,
    health.router,
    cluster.router,
    pages.router,
)
_GZIP_LEVEL, _ZSTD_LEVEL = 2, 1  # the loop waits while an answer is compressed
for _type in (MEDIA_TYPE, Format.CSV, Format.NDJSON):
    add_compress_type(_type)
remove_compress_type("text/event-stream")  # each listener would have a compressor of its own, for a few bytes
_STATUS_KINDS = {404: "no-such-route"}
REMOVED = {
    "/metrics/events": "GET /events?topic=metrics",
    "/influence/{id}": "GET /jobs/{id}/result with the id of the job",
    "/predict/without/{id}": "GET /jobs/{id}/result with the id of the job",
    "/exports/{id}": "GET /jobs/{id}/result with the id of the job",
    "/redoc": "/docs",
}
"""Routes of earlier versions, and what to use instead."""
_REMOVED = [(compile_path(path)[0], text) for path, text in REMOVED.items()]


def create_app(settings: Settings, service: Service, observer: Observer | None = None) -> FastAPI:
    """Return the application; its lifespan starts and stops the service.

    Parameters
    ----------
    settings
        Limits, hosts and key.
    service
        Used by this application alone.
    observer
        Called for each request that was answered, as metrics, access log and traces are; None: no further observer.
    """
    tracing: Tracing | None = None
    if settings.traces_endpoint is not None:
        from oubli.app.http.monitoring.telemetry import trace_to

        tracing = trace_to(settings.traces_endpoint)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.lifecycle.start()
        try:
            yield
        finally:
            await service.lifecycle.stop()
            if tracing is not None:
                await asyncio.to_thread(tracing.close)

    app = FastAPI(
        title="Oubli",
        version=VERSION,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,  # /samples/ is not /samples: a redirected deletion could lose what it names
        openapi_url=None,  # `routes/pages.py` makes the documents in a thread
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        telemetry=_TELEMETRY,
    )
    new_reader = partial(
        Reader,
        max_rows=settings.max_rows,
        max_depth=settings.max_json_depth,
        now_ms=lambda: service.model.clock.now_ms(),
    )
    context = Context(service, new_reader, RequestMetrics(), settings.model_name, settings.page_size_max)
    rules = rules_of(settings, lambda: service.model.clock.latest_ms())
    app.state.context = context
    guard_formulas(not settings.csv_formulas)
    sources: dict[str, Source] = {"state": StateEvents(service), "metrics": MetricsEvents(service, context.metrics)}
    app.state.feeds = {
        topic: Feed(source, lambda: service.model.state.phase == "stopping") for topic, source in sources.items()
    }
    app.state.bulk = Bulk(context, BulkLimits(settings.max_body_bytes, settings.max_bulk_samples))
    app.state.rules = rules
    observers = (context.metrics.observe, log_access if settings.access_log else None, tracing, observer)
    notes_stages = any(getattr(one, "reads_stages", False) for one in observers)
    everyone = all_of([one for one in observers if one is not None])
    found = list(app.routes)
    for router in _ROUTERS:
        add_heads(router)
        app.include_router(router)
        found += router.routes
    app.state.routes = RouteTable(found)
    app.state.fast_path = FastPath(
        context, rules, everyone, app.state.routes.names_in("/samples/"), notes_stages=notes_stages
    )
    described = lru_cache(2)(
        partial(documents, app, page_size_max=settings.page_size_max, model_name=settings.model_name)
    )

    def openapi(name: str = MAIN) -> dict[str, Any] | None:
        """Return an OpenAPI document; None when there is none of the name."""
        return described(service.model.state.model.schema_, asks_for_key=rules.asks_for_key).get(name)

    app.openapi = openapi  # type: ignore[assignment, method-assign]
    for kind in (ProblemError, ServiceError, OubliError, JournalError):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    # The last one is the outermost: it sees a request first.
    app.add_middleware(
        Middleware,
        idle=service.model.idle,
        rules=rules,
        role=service.lifecycle.role,
        version=lambda: service.model.state.version,
        reach=service.lifecycle.reach,
        completion=service.lifecycle.completion,
    )
    app.add_middleware(
        CompressMiddleware, minimum_size=LEAST_COMPRESSED, brotli=False, gzip_level=_GZIP_LEVEL, zstd_level=_ZSTD_LEVEL
    )
    if settings.cors_origins:
        app.add_middleware(CrossOrigin, origins=settings.cors_origins)
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=list(settings.trusted_proxies))
    app.add_middleware(Observed, observer=everyone, notes_stages=notes_stages)
    return app


async def _answer(request: Request, error: Exception) -> Response:
    problem = to_problem(error)
    if problem is None:
        raise error
    return problem.response(request.scope["path"], target_of(request.scope))


async def _answer_http(request: Request, error: Exception) -> Response:
    """Give Starlette's own refusals (no such route, wrong method) the one shape; its texts are not passed on."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.scope["path"]
    if error.status_code == 405:
        # Starlette names the methods of one of the routes of this path only.
        methods = ", ".join(request.app.state.routes.methods(path))
        return ProblemError("wrong-method", f"This route takes {methods}.", headers={"Allow": methods}).response(path)
    slug = _STATUS_KINDS.get(error.status_code, "bad-request" if error.status_code < 500 else "internal-error")
    return ProblemError(slug, _replacement(path), headers=error.headers).response(path)


def _replacement(path: str) -> str | None:
    """Return what to ask instead of a route that was removed; None for any other path."""
    found = (text for pattern, text in _REMOVED if pattern.fullmatch(path))
    return next((f"This route was removed in version 0.2.0: use {text}." for text in found), None)


async def _answer_validation(request: Request, error: Exception) -> Response:
    """FastAPI's own answer would repeat what was sent; no route relies on its validation, this is the safety net."""
    del error
    return ProblemError("invalid-input").response(request.scope["path"])
