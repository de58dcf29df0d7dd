"""`GET /metrics`."""

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from oubli.app.http.context import context_of
from oubli.app.http.metrics import OPENMETRICS, PLAIN, Exposition, encode
from oubli.app.http.openapi import problems

router = APIRouter(tags=["health"])
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
    """Return what the server can be measured by: durations of requests, the model, files, erasures, the process.

    While the server trains, recovers or stops there are the series of the process only, and `oubli_phase`. No series
    holds a path, a key, an id, a class or a category.
    """
    context = context_of(request)
    exposition = Exposition(context.service.measure(), context.metrics.copy())
    # Writing takes some milliseconds, in which the loop goes on.
    content, media_type = await asyncio.to_thread(encode, exposition, request.headers.get("accept", ""))
    return Response(content, headers={"Cache-Control": "no-store", "Content-Type": media_type})
