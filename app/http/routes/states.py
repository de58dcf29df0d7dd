"""States of the model: what an audit compares an export and a fresh fit with."""

import re

import orjson
from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import DEFAULT_PAGE, PATH, QUERY, problems
from oubli.app.http.parsing import one_value, parse_flag, parse_page, parse_query
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import json_answer
from oubli.app.http.schemas.states import StateAnswer, StateEntry, StatesAnswer
from oubli.app.ledger.set_leaves import commitment_of

router = APIRouter(tags=["log"])
_NUMBER = re.compile(r"[1-9][0-9]{0,14}")


@router.get(
    "/model/states",
    summary="States of the model",
    response_model=StatesAnswer,
    responses=problems("invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("index", "limit")]},
)
async def list_states(request: Request) -> Response:
    """Return what the model was at versions that the ledger tells of, page by page, the oldest first.

    A state is written with each snapshot, with each finished erasure, by `POST /model/verify`, and when asked for.
    """
    service = context_of(request).service
    after, limit = parse_page(request.scope["query_string"], DEFAULT_PAGE, service.limits.page_size_max)
    found = await service.database.read(lambda database: database.states_page(after, limit + 1))
    page = found[:limit]
    end = str(page[-1]["index"]) if len(found) > limit else None
    return json_answer({"states": page, "next": end})


@router.post(
    "/model/states",
    summary="Tell the state of the model",
    status_code=201,
    response_model=StateEntry,
    responses={
        200: {"model": StateEntry},
        **problems("queue-full", "changes-stopped", "storage", "journal", "superseded"),
    },
)
async def write_state(request: Request) -> Response:
    """Write into the ledger what the model is now; 200 with the entry that there is, where this version has one."""
    entry, is_new = await context_of(request).service.tell_state()
    return json_answer(entry, 201 if is_new else 200)


@router.get(
    "/model/states/{index}",
    summary="A state of the model",
    response_model=StateAnswer,
    responses=problems("invalid-input", "not-logged", "queue-full", "storage"),
    openapi_extra={"parameters": [PATH["index"], QUERY["trees"]]},
)
async def get_state(request: Request) -> Response:
    """Return a state with its proof, and what it has hashes of: `oubli audit` compares an export with it.

    The digest is there until the next erasure is finished: after that it would confirm guesses about who was erased.
    With `trees` the answer also has the digests of the trees, of which the digest is made, for `oubli audit --trees`.
    They are computed on request and kept nowhere: once the model is of another version they are null.
    """
    asked = one_value(parse_query(request.scope["query_string"], ("trees",)), "trees")
    wanted = parse_flag(asked, "/trees")
    service, text = context_of(request).service, request.path_params["index"]
    if not _NUMBER.fullmatch(text):
        raise ProblemError("not-logged")
    index = int(text)
    found = await service.database.read(lambda database: database.state_at(index))
    if found is None:
        raise ProblemError("not-logged")
    proof = await service.publisher.entry_proof(index)
    entry, opening = found
    trees = None
    if wanted and opening.digest is not None:
        trees = await service.tree_digests(entry["model_version"], opening.digest)
    key = service.states.positions_key
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
