"""The audit ledger, and the keys that its receipts are checked with."""

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import DEFAULT_PAGE, QUERY, problems
from oubli.app.http.parsing import parse_page
from oubli.app.http.responses import json_answer
from oubli.app.http.schemas.ledger import KeysAnswer, LedgerAnswer

router = APIRouter(tags=["erasures"])


@router.get(
    "/ledger",
    summary="The audit ledger",
    response_model=LedgerAnswer,
    responses=problems("invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("index", "limit")]},
)
async def get_ledger(request: Request) -> Response:
    """Return the ledger page by page, from its first entry on; `oubli ledger verify` checks what was downloaded.

    It holds no ids, and nothing that was submitted but case numbers. `keyed` has, by index, the keyed hashes that a
    restore finds erased samples by: keep them with the entries, `--ledger` needs them. `oubli ledger fetch` does.
    """
    service = context_of(request).service
    after, limit = parse_page(request.scope["query_string"], DEFAULT_PAGE, service.limits.page_size_max)
    entries = await service.receipts.page(after, limit + 1)
    more = len(entries) > limit
    page = entries[:limit]
    # Beside the entries: it is not part of what is hashed.
    keyed = {str(entry["index"]): entry.pop("keyed") for entry in page if "keyed" in entry}
    return json_answer({"entries": page, "keyed": keyed, "next": str(page[-1]["index"]) if more else None})


@router.get("/keys", summary="Public keys", response_model=KeysAnswer, responses=problems())
async def get_keys(request: Request) -> Response:
    """Return the public keys that check signatures, current and retired. Keep them: they are what you trust."""
    service = context_of(request).service
    origin = await service.database.read(lambda database: database.log.origin)
    return json_answer({"keys": service.ledger.public_keys(origin)})
