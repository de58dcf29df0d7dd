"""`GET /model`."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import problems
from oubli.app.http.responses import json_answer
from oubli.app.http.schemas.model import ModelAnswer

router = APIRouter(tags=["model"])
_CHANGE = ("changes-stopped", "storage")


@router.get("/model", summary="The model", response_model=ModelAnswer, responses=problems())
async def get_model(request: Request) -> Response:
    """Return kind, guarantee, parameters, feature schema and size of the model."""
    return json_answer(context_of(request).service.describe())


@router.post("/expiry/confirm", summary="Let expiry go on", response_model=ModelAnswer, responses=problems(*_CHANGE))
async def confirm_expiry(request: Request) -> Response:
    """Believe the clock and let all samples expire that are due.

    Expiry pauses by itself when the clock has jumped ahead by more than a day, or when more samples are due at once
    than `max_expiry_share` allows: `expiry_paused` of `GET /model` says so.
    """
    service = context_of(request).service
    await service.confirm_expiry()
    return json_answer(service.describe())
