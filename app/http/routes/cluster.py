"""The nodes that serve the model: what is known of them, and what they ask of each other."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.files import OpenedFile
from oubli.app.http.openapi import PATH, problems
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import NO_STORE, json_answer
from oubli.app.http.schemas.cluster import ClusterAnswer
from oubli.app.storage.directory import storage_errors

if TYPE_CHECKING:
    from oubli.app.service.model_service import ModelService
    from oubli.app.service.roles import Door

router = APIRouter(tags=["cluster"])
_BYTES = "application/octet-stream"
_MOST_OF_A_KEY = 2**16


@router.get("/cluster", summary="The nodes", response_model=ClusterAnswer, responses=problems())
async def get_cluster(request: Request) -> Response:
    """Say which nodes serve the model, which of them leads, and how far the others are.

    A server that no other one follows has the role `alone`, and tells of itself.
    """
    service = context_of(request).service
    return json_answer(service.role.describe(service))


@router.delete(
    "/cluster/nodes/{name}",
    summary="Remove a node that is gone for good",
    response_model=ClusterAnswer,
    responses=problems("no-node", "node-alive", "changes-stopped", "storage", "journal"),
    openapi_extra={"parameters": [PATH["member"]]},
)
async def remove_node(request: Request) -> Response:
    """Forget a node that was stopped, or lost, and is `expelled` by now. The ledger notes it (`node-removed`).

    Receipts say nothing of that machine any more: its disk holds what the model held when it was heard of last, also
    what was `erased` since. Wipe the disk. Should the node start again all the same, it joins anew, and removes what it
    has before it answers anything.
    """
    service = context_of(request).service
    await service.remove_node(request.path_params["name"])
    return json_answer(service.role.describe(service))


@router.get("/cluster/node/keys", include_in_schema=False)
async def get_keys(request: Request) -> Response:
    """Give another node all keys, sealed."""
    door, _ = _entered(request)
    return Response(await asyncio.to_thread(door.keys), headers=NO_STORE, media_type=_BYTES)


@router.put("/cluster/node/segment-keys", include_in_schema=False)
async def put_segment_key(request: Request) -> Response:
    """Keep the key of a new segment; it is on the disk when this is answered."""
    door, _ = _entered(request)
    sealed = await request.body()
    with storage_errors():
        if len(sealed) > _MOST_OF_A_KEY or not await asyncio.to_thread(partial(door.take_key, sealed)):
            raise ProblemError("bad-request")
    return Response(status_code=204)


@router.get("/cluster/node/snapshot", include_in_schema=False)
async def get_node_snapshot(request: Request) -> Response:
    """Give another node the newest snapshot. What it then has is a part of this cluster, and erased as here."""
    _, service = _entered(request)
    while True:
        try:
            file = service.storage.snapshots.newest.path.open("rb")
        except FileNotFoundError:
            continue  # newer ones have taken its place meanwhile
        return OpenedFile(file, "snapshot.safetensors", service.holders)


@router.get("/cluster/node/ledger", include_in_schema=False)
async def get_node_ledger(request: Request) -> Response:
    """Give another node a copy of the ledger as it is now."""
    _, service = _entered(request)
    file = await _copied_ledger(service)
    return OpenedFile(file, "ledger.sqlite", service.holders)


async def _copied_ledger(service: ModelService) -> BinaryIO:
    """Return a copy of the ledger's file, whose name is gone already."""
    path = service.storage.path
    if path is None:
        raise ProblemError("no-such-route")
    name = path / f".ledger-{os.urandom(8).hex()}.tmp"
    try:
        await service.database.read(lambda database: database.copy_to(name))
        return name.open("rb")
    finally:
        name.unlink(missing_ok=True)


def _entered(request: Request) -> tuple[Door, ModelService]:
    """Return what nodes may ask for, to one that knows the secret, of the node that has what they need."""
    service = context_of(request).service
    door = service.role.door
    if door is None:
        raise ProblemError("no-such-route")
    if not door.admits(request.headers.get("Authorization", "")):
        raise ProblemError("key-needed")
    if service.phase == "starting" or service.state.is_withdrawn:
        raise ProblemError("not-ready")
    return door, service
