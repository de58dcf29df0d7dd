"""Webhooks and callbacks that were given up."""

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import DEFAULT_PAGE, PATH, QUERY, problems
from oubli.app.http.parsing import parse_page, parse_uuid
from oubli.app.http.responses import json_answer
from oubli.app.http.schemas.erasures import DeadLettersAnswer, RedeliveryAnswer
from oubli.app.ledger.deliveries import Delivery
from oubli.app.times import to_text

router = APIRouter(tags=["erasures"])


@router.get(
    "/webhooks/dead-letters",
    summary="States that could not be told",
    response_model=DeadLettersAnswer,
    responses=problems("invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("index", "limit")]},
)
async def list_dead_letters(request: Request) -> Response:
    """Return the webhooks and callbacks that were given up, in the order of the queue.

    When a state is given up, those that follow of the same receipt are, too: a receiver is never told of a later state
    before an earlier one.
    """
    service = context_of(request).service
    after, limit = parse_page(request.scope["query_string"], DEFAULT_PAGE, service.limits.page_size_max)
    found = await service.deliveries.dead_letters(after, limit + 1)
    page = found[:limit]
    more = len(found) > limit
    return json_answer({"dead_letters": list(map(_content, page)), "next": str(page[-1].number) if more else None})


@router.post(
    "/webhooks/dead-letters/{id}/redeliver",
    summary="Tell again what could not be told",
    status_code=202,
    response_model=RedeliveryAnswer,
    responses=problems("no-dead-letter", "changes-stopped", "storage"),
    openapi_extra={"parameters": [PATH["letter"]]},
)
async def redeliver(request: Request) -> Response:
    """Try again to tell all states of a receipt or request that were given up, in their order, from the beginning."""
    service = context_of(request).service
    subject = parse_uuid(request.path_params["id"], "no-dead-letter")
    return json_answer({"id": subject, "states": await service.deliveries.redeliver(subject)}, 202)


def _content(one: Delivery) -> dict[str, str | None]:
    return {
        "id": one.subject,
        "ref": one.ref,
        "status": one.state,
        "target": one.target,
        "since": to_text(one.at_ms),
        "reason": one.reason,
    }
