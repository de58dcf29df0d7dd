"""The state of the server: liveness, readiness, metrics, event streams, and what the caller may do."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from oubli.api.base import Changes
from oubli.api.server import Access, HealthAnswer, MetricsEvent, Readiness, StateEvent
from oubli.app.access.scopes import ADMIN, SCOPES
from oubli.app.http.auth import AccessRules, Caller
from oubli.app.http.monitoring.events import EventStream, Feed, stream_of
from oubli.app.http.monitoring.metrics import OPENMETRICS, PLAIN, Exposition, encode
from oubli.app.http.openapi import LAST_EVENT_ID, answers, events_of, parameter, problems
from oubli.app.http.parsing import context_of, parse_values, service_of
from oubli.app.http.problems import OtherLeaderError, ProblemError, changes_stopped, invalid
from oubli.app.http.responses import NO_STORE, json_answer
from oubli.app.times import to_text

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Liveness", responses=problems())
async def get_health() -> HealthAnswer:
    """Say that the process answers, also while it is busy."""
    return HealthAnswer(status="alive")


_FOR = parameter(
    "for",
    "What you want to send; with `changes` the answer is 503 while changes are not accepted, or wait for kernels that "
    "are being compiled.",
    {"type": "string", "enum": ["predictions", "changes"], "default": "predictions"},
)


@router.get(
    "/readyz",
    summary="Readiness",
    response_model_exclude_none=True,
    responses=problems("invalid-input", "not-ready", "model-unusable", "changes-stopped", "not-leader"),
    openapi_extra={"parameters": [_FOR]},
)
async def get_readiness(request: Request) -> Readiness:
    """Say whether the server answers requests: not before the kernels are compiled, and not after a signal to stop.

    Predictions are answered even when the model accepts no changes: the answer is still 200, and says so. After a first
    start they are answered while the kernels of changes are being compiled; changes wait for these.
    """
    context = context_of(request)
    service = context.service
    wanted = request.query_params.get("for", "predictions")
    if wanted not in ("predictions", "changes"):
        raise invalid("/for", "must be 'predictions' or 'changes'")
    context.require_ready()
    state, stopped = service.model.state, service.model.state.stopped
    if state.following and wanted == "changes":
        raise OtherLeaderError(state.leader_url, is_redirected=False)
    if stopped is not None and wanted == "changes":
        raise changes_stopped(stopped)
    missing = service.lifecycle.missing()
    if missing is not None and wanted == "changes":
        raise ProblemError("not-ready", f"Predictions are answered; changes wait: {missing}.")
    changes: Changes = "accepted" if stopped is None and not state.following else "stopped"
    return Readiness(status="ready", model_version=service.model.state.version, changes=changes, reason=stopped)


@router.get(
    "/access",
    summary="Access of the caller",
    responses=answers(Access) | problems(),
)
async def get_access(request: Request) -> Response:
    """Return the scopes of the caller's key; with the scope `admin` also names, scopes and expiry of all keys."""
    rules: AccessRules = request.app.state.rules
    caller = rules.caller(request.scope["headers"])
    content = _content(caller) | {"asks_for_key": rules.asks_for_key}
    if ADMIN in caller.scopes:
        content["keys"] = [_key_content(one, service_of(request).model.clock.latest_ms()) for one in rules.callers()]
    return json_answer(content)


def _content(caller: Caller) -> dict[str, Any]:
    return {
        "id": caller.id,
        "name": caller.name,
        "scopes": [scope for scope in SCOPES if scope in caller.scopes],
        "expires_at": _time(caller.expires_ms),
    }


def _key_content(caller: Caller, now_ms: int) -> dict[str, Any]:
    if caller.revoked_ms is not None:
        status = "revoked"
    else:
        status = "live" if caller.expires_ms is None or now_ms < caller.expires_ms else "expired"
    times = {"created_at": _time(caller.created_ms), "revoked_at": _time(caller.revoked_ms)}
    return {**_content(caller), **times, "status": status}


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else to_text(at_ms)


_TEXT = {"schema": {"type": "string"}}


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        **problems(),
        200: {
            "description": "All series, in OpenMetrics where `Accept` names it, else in Prometheus's text format.",
            "content": {PLAIN: _TEXT, OPENMETRICS: _TEXT},
        },
    },
)
async def metrics(request: Request) -> Response:
    """Return the metrics of the server: durations of requests, the model, files, erasures, the process.

    While the server trains, recovers or stops there are only `oubli_phase` and the series of the process. No series
    contains a path, a key, an id, a class or a category.
    """
    context = context_of(request)
    exposition = Exposition(context.service.measure(), context.metrics.copy())
    # Writing takes some milliseconds, so a thread does it.
    content, media_type = await asyncio.to_thread(encode, exposition, request.headers.get("accept", ""))
    return Response(content, headers={"Cache-Control": "no-store", "Content-Type": media_type})


_TOPIC = parameter(
    "topic",
    "`state`: what changes, by section. `metrics`: measurements, once a second; any key may read them.",
    {"type": "string", "enum": ["state", "metrics"], "default": "state"},
)


@router.head("/events", include_in_schema=False)
async def head_of_stream(request: Request) -> Response:
    """Return the head of a stream at once."""
    _topic(request)
    return Response(headers=NO_STORE, media_type=EventStream.media_type)


@router.get(
    "/events",
    summary="State and metrics as they change",
    response_class=EventStream,
    responses={200: events_of(StateEvent, MetricsEvent), **problems("invalid-input")},
    openapi_extra={"parameters": [_TOPIC, LAST_EVENT_ID]},
)
async def watch_events(request: Request) -> Response:
    """Send the events of a topic as server-sent events. No event holds anything of a sample.

    `state` begins with the event `hello`, which has all sections. Each later event has the name and the whole content
    of a section that has changed: it replaces the one before. `metrics` sends an event `metrics` each second, with
    rates since the last one.

    After some seconds without an event there is a comment. A stream ends with `bye` when the server stops, and is cut
    off when you do not read it in time. Then ask again with `Last-Event-ID`; `hello` comes in any case.
    """
    feed: Feed = request.app.state.feeds[_topic(request)]
    return stream_of(feed, request.scope, request.headers.get("last-event-id"))


def _topic(request: Request) -> str:
    (topic,) = parse_values(request.scope["query_string"], "topic")
    if topic not in (None, "state", "metrics"):
        raise invalid("/topic", "must be 'state' or 'metrics'")
    return topic or "state"
