"""`GET /access`: what the caller may do."""

from typing import Any

from fastapi import APIRouter, Request, Response

from oubli.app.access.scopes import ADMIN, SCOPES
from oubli.app.http.auth import AccessRules, Caller
from oubli.app.http.context import context_of
from oubli.app.http.openapi import problems
from oubli.app.http.responses import json_answer
from oubli.app.http.schemas.inspection import AccessAnswer
from oubli.app.times import to_text

router = APIRouter(tags=["health"])


@router.get(
    "/access",
    summary="What the caller may do",
    response_model=AccessAnswer,
    response_model_exclude_none=True,
    responses=problems(),
)
async def get_access(request: Request) -> Response:
    """Return the scopes of the caller's key. With the scope `admin` also names, scopes and expiry of all keys."""
    rules: AccessRules = request.app.state.rules
    caller = rules.caller(request.scope["headers"])
    content = _content(caller) | {"asks_for_key": rules.asks_for_key}
    if ADMIN in caller.scopes:
        content["keys"] = [_key_content(one, context_of(request).service.clock.latest_ms()) for one in rules.callers()]
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
