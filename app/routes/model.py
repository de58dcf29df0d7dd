"""`GET /model`."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.context import context_of
from app.openapi import problems
from app.routes.answers import json_answer
from app.routes.shapes import ModelAnswer

router = APIRouter(tags=["model"])


@router.get("/model", summary="The model", response_model=ModelAnswer, responses=problems())
async def describe(request: Request) -> Response:
    """Return kind, guarantee, parameters, feature schema and size of the model."""
    description = context_of(request).service.describe()
    return json_answer({**asdict(description), "pending_erasures": 0, "overdue_erasures": 0})
