"""Receipts: what became of a deletion, a rectification or an expiry."""

from typing import cast, get_args

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import DEFAULT_PAGE, PATH, QUERY, problems
from oubli.app.http.parsing import one_value, parse_limit, parse_number_cursor, parse_query, parse_ref, parse_uuid
from oubli.app.http.problems import invalid
from oubli.app.http.responses import json_answer, receipt_content
from oubli.app.http.schemas.erasures import ErasuresAnswer, Receipt
from oubli.app.ledger.entries import StatusFilter

router = APIRouter(tags=["erasures"])
STATUSES = get_args(StatusFilter)


@router.get(
    "/erasures",
    summary="Receipts",
    response_model=ErasuresAnswer,
    responses=problems("invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("status", "ref", "order", "index", "limit")]},
)
async def list_erasures(request: Request) -> Response:
    """Return receipts page by page: all, those of a case, or those of a status.

    The oldest come first unless `order` says `newest`. `unlearned` lists all that are not erased, `overdue` those of
    them that should be. Pages go by the order in which receipts were made, so that none is missed while others come or
    change.
    """
    service = context_of(request).service
    query = parse_query(request.scope["query_string"], ("status", "ref", "order", "cursor", "limit"))
    ref, status, order = one_value(query, "ref"), one_value(query, "status"), one_value(query, "order")
    if status is not None and status not in STATUSES:
        raise invalid("/status", "must be 'unlearned', 'erased' or 'overdue'")
    if order not in (None, "oldest", "newest"):
        raise invalid("/order", "must be 'oldest' or 'newest'")
    limit = parse_limit(one_value(query, "limit"), DEFAULT_PAGE, service.limits.page_size_max)
    found, end = await service.receipts.listed(
        parse_number_cursor(one_value(query, "cursor")),
        limit,
        ref=None if ref is None else parse_ref(ref, "/ref"),
        status=cast("StatusFilter | None", status),
        newest_first=order == "newest",
    )
    page = [receipt_content(one, durable=service.is_durable) for one in found]
    return json_answer({"erasures": page, "next": None if end is None else str(end)})


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
    receipt_id = parse_uuid(request.path_params["id"], "no-receipt")
    return json_answer(receipt_content(await service.receipts.get(receipt_id), durable=service.is_durable))
