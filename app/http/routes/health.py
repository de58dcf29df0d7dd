"""Liveness and readiness; they need no key and no known host."""

from fastapi import APIRouter, Request

from oubli.app.http.context import context_of
from oubli.app.http.openapi import parameter, problems
from oubli.app.http.problems import OtherLeaderError, changes_stopped, invalid
from oubli.app.http.schemas.model import HealthAnswer, ReadyAnswer
from oubli.app.http.schemas.shapes import Changes

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Liveness", responses=problems())
async def get_health() -> HealthAnswer:
    """Say that the process answers, whatever it is busy with."""
    return HealthAnswer(status="alive")


_FOR = parameter(
    "for",
    "What the caller wants to send; with `changes` the answer is 503 while none are accepted.",
    {"type": "string", "enum": ["predictions", "changes"], "default": "predictions"},
)


@router.get(
    "/readyz",
    summary="Readiness",
    response_model_exclude_none=True,
    responses=problems("invalid-input", "not-ready", "model-unusable", "changes-stopped", "not-leader"),
    openapi_extra={"parameters": [_FOR]},
)
async def get_readiness(request: Request) -> ReadyAnswer:
    """Say whether requests are welcome: not before the kernels are compiled, and not after a signal to stop.

    Predictions go on when the model cannot be changed any more: the answer stays 200 then and says so.
    """
    context = context_of(request)
    service = context.service
    wanted = request.query_params.get("for", "predictions")
    if wanted not in ("predictions", "changes"):
        raise invalid("/for", "must be 'predictions' or 'changes'")
    context.require_ready()
    state, stopped = service.state, service.state.stopped
    if state.following and wanted == "changes":
        raise OtherLeaderError(state.leader_url, is_redirected=False)
    if stopped is not None and wanted == "changes":
        raise changes_stopped(stopped)
    changes: Changes = "accepted" if stopped is None and not state.following else "stopped"
    return ReadyAnswer(status="ready", model_version=service.state.version, changes=changes, reason=stopped)
