"""The log: checkpoints, tiles, and proofs for those who do not trust the server.

States of the model: what an audit compares an export and a fresh fit with.
"""

import re

import orjson
from fastapi import APIRouter, Request, Response

from oubli.api.ledger import ConsistencyAnswer, ModelState, OpeningAnswer, ProvedState, StatesAnswer
from oubli.app.http.openapi import DEFAULT_PAGE, FILE, PATH, QUERY, TEXT, answers, problems
from oubli.app.http.parsing import context_of, parse_flag, parse_page, parse_uuid, parse_values, service_of
from oubli.app.http.problems import ProblemError, invalid
from oubli.app.http.responses import NO_STORE, json_answer
from oubli.app.ledger.log import TILE
from oubli.app.ledger.set_tree import commitment_of

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
    """Return size and root of the log, signed by the log and by its witnesses. This needs no key.

    Keep it: a later ledger that does not extend it was changed. It is a signed note, c2sp.org/tlog-checkpoint.
    """
    found = await service_of(request).evidence.publisher.published()
    return Response(found.note, headers=NO_STORE, media_type=_TEXT_TYPE)


@router.get(
    "/log/tile/entries/{number:path}",
    summary="Entries of the log",
    response_class=Response,
    responses={200: {"content": FILE}, **problems("not-logged")},
    openapi_extra={"parameters": [PATH["tile"]]},
)
async def get_entries(request: Request) -> Response:
    """Return 256 entries, each after its length in two bytes (c2sp.org/tlog-tiles); with `.p/{width}` fewer."""
    number, width = _parse_tile(request.path_params["number"])
    return _tile(await service_of(request).evidence.publisher.entry_bundle(number, width))


@router.get(
    "/log/tile/{level}/{number:path}",
    summary="Hashes of the log",
    response_class=Response,
    responses={200: {"content": FILE}, **problems("not-logged")},
    openapi_extra={"parameters": [PATH["level"], PATH["tile"]]},
)
async def get_tile(request: Request) -> Response:
    """Return 256 hashes of the tree over the log (c2sp.org/tlog-tiles); with `.p/{width}` fewer."""
    number, width = _parse_tile(request.path_params["number"])
    level = request.path_params["level"]
    if not _NUMBER.fullmatch(level) or len(level) > 1:
        raise ProblemError("not-logged")
    return _tile(await service_of(request).evidence.publisher.tile(int(level), number, width))


@router.get(
    "/ledger/consistency",
    summary="Proof that the log only grew",
    responses=answers(ConsistencyAnswer) | problems("invalid-input", "not-logged", "storage"),
    openapi_extra={"parameters": [QUERY["from"], QUERY["to"]]},
)
async def get_consistency(request: Request) -> Response:
    """Return the hashes that show that the log of `to` entries extends the log of `from` entries (RFC 9162, 2.1.4)."""
    sent_old, sent_new = parse_values(request.scope["query_string"], "from", "to")
    old, new = _parse_size(sent_old, "/from"), _parse_size(sent_new, "/to")
    if old is None:
        raise invalid("/from", "must be the size in a checkpoint that was kept")
    if new is not None and old > new:
        raise invalid("/from", "must not be larger than 'to'")
    return json_answer(await service_of(request).evidence.publisher.consistency(old, new))


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
    return _proof(await service_of(request).evidence.publisher.entry_proof(int(index)))


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
    service, receipt_id = service_of(request), parse_uuid(request.path_params["id"], "no-receipt")
    is_overdue = service.erasure.erasures.deadline.is_overdue
    found = await service.evidence.publisher.erasure_proof(receipt_id, is_overdue, durable=service.disk.is_durable)
    if found is None:
        raise ProblemError("no-receipt")
    return _proof(found)


@router.get(
    "/erasures/{id}/opening",
    summary="The opening of an erasure",
    responses=answers(OpeningAnswer) | problems("no-receipt", "no-opening"),
    openapi_extra={"parameters": [PATH["erasure"]]},
)
async def get_opening(request: Request) -> Response:
    """Return the opening of an erasure; `oubli proof opening` derives the openings of single names from it.

    With it, anyone can test which names the erasure was about: do not hand it on. It is gone when the hashing key is.
    """
    receipt_id = parse_uuid(request.path_params["id"], "no-receipt")
    service = service_of(request)
    receipt = await service.evidence.receipts.get(receipt_id)
    key_id = await service.disk.database.read(lambda database: database.hashing_key_of(receipt))
    opening = None if key_id is None else service.disk.ledger.opening_of(receipt_id, key_id)
    if opening is None:
        raise ProblemError("no-opening")
    return json_answer({"receipt": receipt_id, "opening": opening.hex()})


def _parse_size(text: str | None, place: str) -> int | None:
    if text is not None and not _NUMBER.fullmatch(text):
        raise invalid(place, "must be a number of entries")
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


_VERSION = re.compile(r"[1-9][0-9]{0,14}")


@router.get(
    "/model/states",
    summary="States of the model",
    responses=answers(StatesAnswer) | problems("invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("index", "limit")]},
)
async def list_states(request: Request) -> Response:
    """Return the states of the model in the ledger, page by page, the oldest first.

    A state is written with each snapshot, with each finished erasure, by `POST /model/verify`, and on request.
    """
    service = service_of(request)
    after, limit = parse_page(request.scope["query_string"], DEFAULT_PAGE, context_of(request).page_size_max)
    found = await service.disk.database.read(lambda database: database.states_page(after, limit + 1))
    page = found[:limit]
    end = str(page[-1]["index"]) if len(found) > limit else None
    return json_answer({"states": page, "next": end})


@router.post(
    "/model/states",
    summary="Write the state of the model",
    status_code=201,
    responses=answers(ModelState)
    | answers(ModelState, 201)
    | problems("queue-full", "changes-stopped", "storage", "journal", "superseded"),
)
async def write_state(request: Request) -> Response:
    """Write the current state of the model into the ledger; 200 with the existing entry if this version has one."""
    entry, is_new = await service_of(request).evidence.states.record()
    return json_answer(entry, 201 if is_new else 200)


@router.get(
    "/model/states/{index}",
    summary="A state of the model",
    responses=answers(ProvedState) | problems("invalid-input", "not-logged", "queue-full", "storage"),
    openapi_extra={"parameters": [PATH["index"], QUERY["trees"]]},
)
async def get_state(request: Request) -> Response:
    """Return a state with its proof, and the data that it has hashes of: `oubli audit` compares an export with it.

    The digest exists until the next erasure has finished: later it could confirm guesses about an erased sample.
    With `trees` the answer also has the digests of the trees, for `oubli audit --trees`.
    They are computed on request and not stored: when the model has another version they are null.
    """
    (trees_asked,) = parse_values(request.scope["query_string"], "trees")
    wanted = parse_flag(trees_asked, "/trees")
    service, text = service_of(request), request.path_params["index"]
    if not _VERSION.fullmatch(text):
        raise ProblemError("not-logged")
    index = int(text)
    found = await service.disk.database.read(lambda database: database.state_at(index))
    if found is None:
        raise ProblemError("not-logged")
    proof = await service.evidence.publisher.entry_proof(index)
    entry, opening = found
    trees = None
    if wanted and opening.digest is not None:
        trees = await service.evidence.states.tree_digests(entry["model_version"], opening.digest)
    key = service.evidence.states.positions_key
    is_same = commitment_of(key) == entry["positions_key_hash"]
    return json_answer(
        {
            "state": entry,
            "proof": proof,
            "salt": opening.salt,
            "digest": opening.digest,
            "tree_digests": trees,
            "schema": None if opening.schema is None else orjson.loads(opening.schema),
            "positions_key": key.hex() if is_same else None,
        }
    )
