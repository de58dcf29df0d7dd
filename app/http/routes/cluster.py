"""The nodes that serve the model, and the requests between them."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import BinaryIO

from fastapi import APIRouter, Request, Response

from oubli.api.server import Cluster
from oubli.app.http.openapi import PATH, answers, problems
from oubli.app.http.parsing import service_of
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import NO_STORE, OpenedFile, json_answer
from oubli.app.service.roles import Door
from oubli.app.service.service import Service
from oubli.app.storage.directory import storage_errors

router = APIRouter(tags=["cluster"])
_BYTES = "application/octet-stream"
_MOST_OF_A_KEY = 2**16


@router.get("/cluster", summary="The nodes", responses=answers(Cluster) | problems())
async def get_cluster(request: Request) -> Response:
    """Return the nodes that serve the model, the leader, and the lag of the others.

    A server without others has the role `alone`, and describes itself.
    """
    service = service_of(request)
    return json_answer(service.lifecycle.role.describe(service.model.state))


@router.delete(
    "/cluster/nodes/{name}",
    summary="Remove a node that is gone for good",
    responses=answers(Cluster) | problems("no-node", "node-alive", "changes-stopped", "storage", "journal"),
    openapi_extra={"parameters": [PATH["member"]]},
)
async def remove_node(request: Request) -> Response:
    """Remove an `expelled` node that was stopped or lost. The ledger records it (`node-removed`).

    Receipts say nothing of that machine any more: its disk holds what the model held when it was heard of last, also
    what was `erased` since. Wipe the disk. If the node starts again, it rejoins and first
    removes its data.
    """
    service = service_of(request)
    await service.lifecycle.remove_node(request.path_params["name"])
    return json_answer(service.lifecycle.role.describe(service.model.state))


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
            file = service.disk.storage.snapshots.newest.path.open("rb")
        except FileNotFoundError:
            continue  # a newer one has replaced it
        return OpenedFile(file, "snapshot.safetensors", service.model.holders)


@router.get("/cluster/node/ledger", include_in_schema=False)
async def get_node_ledger(request: Request) -> Response:
    """Give another node a copy of the ledger as it is now."""
    _, service = _entered(request)
    file = await _copied_ledger(service)
    return OpenedFile(file, "ledger.sqlite", service.model.holders)


async def _copied_ledger(service: Service) -> BinaryIO:
    """Return a copy of the ledger's file, whose name is gone already."""
    path = service.disk.storage.path
    if path is None:
        raise ProblemError("no-such-route")
    name = path / f".ledger-{os.urandom(8).hex()}.tmp"
    try:
        await service.disk.database.read(lambda database: database.copy_to(name))
        return name.open("rb")
    finally:
        name.unlink(missing_ok=True)


def _entered(request: Request) -> tuple[Door, Service]:
    """Return what nodes may ask for, to one that knows the secret, of the node that has what they need."""
    service = service_of(request)
    door = service.lifecycle.role.door
    if door is None:
        raise ProblemError("no-such-route")
    if not door.admits(request.headers.get("Authorization", "")):
        raise ProblemError("key-needed")
    if service.model.state.phase == "starting":
        raise ProblemError("not-ready")
    return door, service
