"""The log: checkpoints, tiles, and proofs for those who do not trust the server."""

import re

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import FILE, PATH, QUERY, TEXT, problems
from oubli.app.http.parsing import one_value, parse_query, parse_uuid
from oubli.app.http.problems import ProblemError, invalid
from oubli.app.http.responses import NO_STORE, json_answer
from oubli.app.http.schemas.ledger import ConsistencyAnswer, OpeningAnswer
from oubli.app.ledger.tree import TILE

router = APIRouter(tags=["log"])
_TEXT_TYPE = "text/plain; charset=utf-8"
_FILE_TYPE = "application/octet-stream"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}")
# c2sp.org/tlog-tiles: x001/x234/067 is 1234067; what follows .p is the width of a tile that is not whole yet.
_TILE = re.compile(r"(?P<number>(?:x[0-9]{3}/){0,5}[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?")
_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}


@router.get(
    "/log/checkpoint",
    summary="The signed head of the log",
    response_class=Response,
    responses={200: {"content": TEXT}, **problems("not-logged", "storage")},
)
async def get_checkpoint(request: Request) -> Response:
    """Return size and root of the log, signed by it and by the witnesses that are asked. It needs no key.

    Keep it: a later ledger that does not go on from it was changed. It is a signed note, c2sp.org/tlog-checkpoint.
    """
    found = await context_of(request).service.publisher.published()
    return Response(found.note, headers=NO_STORE, media_type=_TEXT_TYPE)


@router.get(
    "/log/tile/entries/{number:path}",
    summary="Entries of the log",
    response_class=Response,
    responses={200: {"content": FILE}, **problems("not-logged")},
    openapi_extra={"parameters": [PATH["tile"]]},
)
async def get_entries(request: Request) -> Response:
    """Return 256 entries, each behind its length in two bytes, as c2sp.org/tlog-tiles has it; `.p/{width}` fewer."""
    number, width = _parse_tile(request.path_params["number"])
    return _tile(await context_of(request).service.publisher.entry_bundle(number, width))


@router.get(
    "/log/tile/{level}/{number:path}",
    summary="Hashes of the log",
    response_class=Response,
    responses={200: {"content": FILE}, **problems("not-logged")},
    openapi_extra={"parameters": [PATH["level"], PATH["tile"]]},
)
async def get_tile(request: Request) -> Response:
    """Return 256 hashes of the tree over the log, as c2sp.org/tlog-tiles has it; `.p/{width}` fewer."""
    number, width = _parse_tile(request.path_params["number"])
    level = request.path_params["level"]
    if not _NUMBER.fullmatch(level) or len(level) > 1:
        raise ProblemError("not-logged")
    return _tile(await context_of(request).service.publisher.tile(int(level), number, width))


@router.get(
    "/ledger/consistency",
    summary="Proof that the log only grew",
    response_model=ConsistencyAnswer,
    responses=problems("invalid-input", "not-logged", "storage"),
    openapi_extra={"parameters": [QUERY["from"], QUERY["to"]]},
)
async def get_consistency(request: Request) -> Response:
    """Return the hashes that show that a log of `to` entries goes on from that of `from` (RFC 9162, 2.1.4)."""
    query = parse_query(request.scope["query_string"], ("from", "to"))
    old, new = _parse_size(query, "from"), _parse_size(query, "to")
    if old is None:
        raise invalid("/from", "must be the size in a checkpoint that was kept")
    if new is not None and old > new:
        raise invalid("/from", "must not be larger than 'to'")
    return json_answer(await context_of(request).service.publisher.consistency(old, new))


@router.get(
    "/ledger/{index}/proof",
    summary="Proof that an entry is in the log",
    response_class=Response,
    responses={200: {"content": TEXT}, **problems("not-logged", "storage")},
    openapi_extra={"parameters": [PATH["index"]]},
)
async def get_entry_proof(request: Request) -> Response:
    """Return an entry of the ledger with the path from it to a signed checkpoint; `oubli proof check` checks it."""
    index = request.path_params["index"]
    if not _NUMBER.fullmatch(index):
        raise ProblemError("not-logged")
    return _proof(await context_of(request).service.publisher.entry_proof(int(index)))


@router.get(
    "/erasures/{id}/proof",
    summary="Proof that an erasure is in the log",
    response_class=Response,
    responses={200: {"content": TEXT}, **problems("no-receipt", "not-logged", "storage")},
    openapi_extra={"parameters": [PATH["erasure"]]},
)
async def get_erasure_proof(request: Request) -> Response:
    """Return the receipt and the entries of an erasure, with the paths from them to a signed checkpoint.

    It holds no names and needs no key but the receipt's id. `oubli proof check` checks it; with the opening of a name
    it also says whether the erasure was about that name.
    """
    service, receipt_id = context_of(request).service, parse_uuid(request.path_params["id"], "no-receipt")
    is_overdue = service.erasures.deadline.is_overdue
    found = await service.publisher.erasure_proof(receipt_id, is_overdue, durable=service.is_durable)
    if found is None:
        raise ProblemError("no-receipt")
    return _proof(found)


@router.get(
    "/erasures/{id}/opening",
    summary="The opening of an erasure",
    response_model=OpeningAnswer,
    responses=problems("no-receipt", "no-opening"),
    openapi_extra={"parameters": [PATH["erasure"]]},
)
async def get_opening(request: Request) -> Response:
    """Return what openings of single names are made from: `oubli proof opening` makes them, to be handed to people.

    Whoever has it can test which names the erasure was about: do not hand it on. It is gone when the hashing key is.
    """
    receipt_id = parse_uuid(request.path_params["id"], "no-receipt")
    service = context_of(request).service
    receipt = await service.receipts.get(receipt_id)
    key_id = await service.database.read(lambda database: database.hashing_key_of(receipt))
    opening = None if key_id is None else service.ledger.opening_of(receipt_id, key_id)
    if opening is None:
        raise ProblemError("no-opening")
    return json_answer({"receipt": receipt_id, "opening": opening.hex()})


def _parse_size(query: dict[str, list[str]], name: str) -> int | None:
    text = one_value(query, name)
    if text is not None and not _NUMBER.fullmatch(text):
        raise invalid(f"/{name}", "must be a number of entries")
    return None if text is None else int(text)


def _parse_tile(path: str) -> tuple[int, int]:
    parts = _TILE.fullmatch(path)
    width = TILE if parts is None or parts["width"] is None else int(parts["width"])
    if parts is None or width > TILE or (parts["width"] is not None and width == TILE):
        raise ProblemError("not-logged")
    return int(parts["number"].replace("x", "").replace("/", "")), width


def _tile(content: bytes) -> Response:
    return Response(content, headers=_FOR_EVER, media_type=_FILE_TYPE)


def _proof(text: str) -> Response:
    return Response(text, headers=NO_STORE, media_type=_TEXT_TYPE)
