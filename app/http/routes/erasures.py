"""Receipts of erasures, deliveries that were given up, the audit ledger and its public keys."""

from typing import cast, get_args

from fastapi import APIRouter, Request, Response

from oubli.api.erasures import DeadLettersAnswer, ErasuresAnswer, Receipt, RedeliveryAnswer
from oubli.api.ledger import KeysAnswer, LedgerAnswer
from oubli.app.http.openapi import DEFAULT_PAGE, PATH, QUERY, answers, problems
from oubli.app.http.parsing import (
    context_of,
    parse_limit,
    parse_number_cursor,
    parse_page,
    parse_ref,
    parse_uuid,
    parse_values,
    service_of,
)
from oubli.app.http.problems import invalid
from oubli.app.http.responses import json_answer, receipt_content
from oubli.app.ledger.deliveries import Delivery
from oubli.app.ledger.entries import StatusFilter
from oubli.app.times import to_text

router = APIRouter(tags=["erasures"])
STATUSES = get_args(StatusFilter)


@router.get(
    "/erasures",
    summary="Receipts",
    responses=answers(ErasuresAnswer) | problems("invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("status", "ref", "order", "index", "limit")]},
)
async def list_erasures(request: Request) -> Response:
    """Return receipts page by page: all, those of a case, or those of a status.

    The oldest come first unless `order` is `newest`. `unlearned` lists all that are not erased, `overdue` those past
    their deadline. Pages follow the order in which receipts were made, so you miss none while others are added or
    change.
    """
    service = service_of(request)
    names = ("status", "ref", "order", "cursor", "limit")
    status, ref, order, cursor, most = parse_values(request.scope["query_string"], *names)
    if status is not None and status not in STATUSES:
        raise invalid("/status", "must be 'unlearned', 'erased' or 'overdue'")
    if order not in (None, "oldest", "newest"):
        raise invalid("/order", "must be 'oldest' or 'newest'")
    limit = parse_limit(most, DEFAULT_PAGE, context_of(request).page_size_max)
    found, end = await service.evidence.receipts.listed(
        parse_number_cursor(cursor),
        limit,
        ref=None if ref is None else parse_ref(ref, "/ref"),
        status=cast("StatusFilter | None", status),
        newest_first=order == "newest",
    )
    page = [receipt_content(one, durable=service.disk.is_durable) for one in found]
    return json_answer({"erasures": page, "next": None if end is None else str(end)})


@router.get(
    "/erasures/{id}",
    summary="A receipt",
    responses=answers(Receipt) | problems("no-receipt"),
    openapi_extra={"parameters": [PATH["erasure"]]},
)
async def get_erasure(request: Request) -> Response:
    """Return the current receipt: its status is `unlearned`, and later `erased`."""
    service = service_of(request)
    receipt_id = parse_uuid(request.path_params["id"], "no-receipt")
    receipt = await service.evidence.receipts.get(receipt_id)
    return json_answer(receipt_content(receipt, durable=service.disk.is_durable))


@router.get(
    "/webhooks/dead-letters",
    summary="Deliveries that were given up",
    responses=answers(DeadLettersAnswer) | problems("invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("index", "limit")]},
)
async def list_dead_letters(request: Request) -> Response:
    """Return the webhooks and callbacks that the server no longer tries to deliver, in the order of the queue.

    When the delivery of a state is given up, so are those of later states of the same receipt: a receiver never gets a
    later state before an earlier one.
    """
    service = service_of(request)
    after, limit = parse_page(request.scope["query_string"], DEFAULT_PAGE, context_of(request).page_size_max)
    found = await service.outbox.deliveries.dead_letters(after, limit + 1)
    page = found[:limit]
    more = len(found) > limit
    return json_answer({"dead_letters": list(map(_content, page)), "next": str(page[-1].number) if more else None})


@router.post(
    "/webhooks/dead-letters/{id}/redeliver",
    summary="Deliver again",
    status_code=202,
    responses=answers(RedeliveryAnswer, 202) | problems("no-dead-letter", "changes-stopped", "storage"),
    openapi_extra={"parameters": [PATH["letter"]]},
)
async def redeliver(request: Request) -> Response:
    """Try again to deliver all states of a receipt or request that were given up, in order."""
    service = service_of(request)
    subject = parse_uuid(request.path_params["id"], "no-dead-letter")
    return json_answer({"id": subject, "states": await service.outbox.deliveries.redeliver(subject)}, 202)


def _content(one: Delivery) -> dict[str, str | None]:
    return {
        "id": one.subject,
        "ref": one.ref,
        "status": one.state,
        "target": one.target,
        "since": to_text(one.at_ms),
        "reason": one.reason,
    }


@router.get(
    "/ledger",
    summary="The audit ledger",
    responses=answers(LedgerAnswer) | problems("invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("index", "limit")]},
)
async def get_ledger(request: Request) -> Response:
    """Return the ledger page by page, from its first entry on. `oubli ledger verify` checks the downloaded pages.

    The ledger contains no ids, and of the submitted data only case numbers. `keyed` has, by index, the keyed hashes by
    which a restore recognises erased samples. `checkpoint` is the signed head of the log, on the last page. It is null
    on all other pages, at a follower, and after a witness has seen a newer log. `--ledger` needs all pages with both:
    `oubli ledger fetch` writes such a file.
    """
    service = service_of(request)
    after, limit = parse_page(request.scope["query_string"], DEFAULT_PAGE, context_of(request).page_size_max)
    return json_answer(await service.evidence.publisher.ledger_page(after, limit))


@router.get("/ledger/keys", summary="Public keys", responses=answers(KeysAnswer) | problems())
async def get_keys(request: Request) -> Response:
    """Return the public keys that check signatures, current and retired. Keep them: you trust these keys."""
    service = service_of(request)
    origin = await service.disk.database.read(lambda database: database.log.origin)
    return json_answer({"keys": service.disk.ledger.public_keys(origin)})


@router.get("/keys", include_in_schema=False)
async def redirect_to_keys() -> Response:
    """Lead clients of 0.1 to the public keys, which were here."""
    return Response(status_code=308, headers={"Location": "ledger/keys"})  # relative: a proxy may add a prefix
