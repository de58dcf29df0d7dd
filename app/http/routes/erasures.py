"""Receipts: what became of a deletion, a rectification or an expiry."""

import uuid

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import PATH, QUERY, problems
from oubli.app.http.parsing import one_value, parse_query, parse_ref
from oubli.app.http.problems import ProblemError, invalid
from oubli.app.http.responses import json_answer, receipt_content
from oubli.app.http.schemas import ErasuresAnswer, Receipt

router = APIRouter(tags=["erasures"])


@router.get(
    "/erasures",
    summary="Receipts of a case",
    response_model=ErasuresAnswer,
    responses=problems("invalid-input"),
    openapi_extra={"parameters": [{**QUERY["ref"], "required": True}]},
)
async def list_erasures(request: Request) -> Response:
    """Return all receipts with the caller's case number, the oldest first; an empty list when there is none."""
    service = context_of(request).service
    ref = one_value(parse_query(request.scope["query_string"], ("ref",)), "ref")
    if ref is None:
        raise invalid("/ref", "is missing: name the case whose receipts to list")
    receipts = await service.receipts.of_case(parse_ref(ref, "/ref"))
    return json_answer({"erasures": [receipt_content(one, durable=service.is_durable) for one in receipts]})


@router.get(
    "/erasures/{id}",
    summary="A receipt",
    response_model=Receipt,
    responses=problems("no-receipt"),
    openapi_extra={"parameters": [PATH["erasure"]]},
)
async def get_erasure(request: Request) -> Response:
    """Return a receipt as it is now: `unlearned`, and soon after `erased`."""
    service = context_of(request).service
    try:
        receipt_id = str(uuid.UUID(request.path_params["id"]))
    except ValueError:
        raise ProblemError("no-receipt") from None
    return json_answer(receipt_content(await service.receipts.get(receipt_id), durable=service.is_durable))
