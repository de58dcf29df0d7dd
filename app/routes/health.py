"""Liveness and readiness; they need no key and no known host."""

from __future__ import annotations

from fastapi import APIRouter, Request

from app.context import context_of
from app.openapi import problems
from app.problems import ProblemError
from app.routes.shapes import HealthAnswer, ReadyAnswer

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Liveness")
async def healthz() -> HealthAnswer:
    """Say that the process answers, whatever it is busy with."""
    return HealthAnswer(status="alive")


@router.get("/readyz", summary="Readiness", responses=problems("not-ready", "model-unusable"))
async def readyz(request: Request) -> ReadyAnswer:
    """Say whether requests are welcome: not before the kernels are compiled, and not after a signal to stop."""
    service = context_of(request).service
    if service.state != "ready":
        raise ProblemError("not-ready", f"The server is {service.state}.")
    if not service.is_usable:
        raise ProblemError("model-unusable")
    return ReadyAnswer(status="ready", model_version=service.model_version)
