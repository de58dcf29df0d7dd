"""Streams of what goes on, for who watches the server."""

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import feeds_of
from oubli.app.http.feeds import EventStream, stream_of
from oubli.app.http.openapi import LAST_EVENT_ID, events_of, problems
from oubli.app.http.responses import NO_STORE
from oubli.app.http.schemas.inspection import MetricsEvent, StateEvent

router = APIRouter(tags=["health"])


@router.head("/events", include_in_schema=False)
@router.head("/metrics/events", include_in_schema=False)
async def head_of_stream() -> Response:
    """Return the head of a stream at once."""
    return Response(headers=NO_STORE, media_type=EventStream.media_type)


@router.get(
    "/events",
    summary="What changes",
    response_class=EventStream,
    responses={200: events_of(StateEvent), **problems()},
    openapi_extra={"parameters": [LAST_EVENT_ID]},
)
async def watch_state(request: Request) -> Response:
    """Send the server's state as server-sent events, without anything of a sample.

    The first event is `hello`, with all sections. Every later one is named as a section that has changed, and has that
    section, whole: put it in the place of the one before. After some seconds without an event there is a comment. The
    stream ends with `bye` when the server stops, and is cut off when it is not read in time: ask again then, with
    `Last-Event-ID`; `hello` comes in any case.
    """
    return stream_of(feeds_of(request).state, request.scope, request.headers.get("last-event-id"))


@router.get(
    "/metrics/events",
    summary="Metrics as they change",
    response_class=EventStream,
    responses={200: events_of(MetricsEvent), **problems()},
)
async def watch_metrics(request: Request) -> Response:
    """Send a line a second of what the server can be measured by, as server-sent events named `metrics`.

    Rates are over the time since the line before. The stream ends as that of `GET /events` does.
    """
    return stream_of(feeds_of(request).metrics, request.scope)
