"""Snapshots: write, look at, download, restore."""

from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse

from oubli.app.http.context import context_of
from oubli.app.http.files import MEDIA_TYPE, OpenedFile
from oubli.app.http.openapi import FILE, FILE_BODY, problems
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import json_answer
from oubli.app.http.schemas.model import RestoreAnswer, SnapshotAnswer
from oubli.app.storage.directory import storage_errors
from oubli.app.storage.snapshots import Snapshot

router = APIRouter(tags=["snapshots"])


@router.post(
    "/snapshot",
    summary="Write a snapshot",
    status_code=201,
    responses=problems("ephemeral", "queue-full", "changes-stopped", "storage", "journal"),
)
async def write_snapshot(request: Request) -> SnapshotAnswer:
    """Write the model to the data directory now. What it holds then survives whatever happens to the process."""
    return _answer(await context_of(request).service.snapshot())


@router.get("/snapshot", summary="The newest snapshot", responses=problems("no-snapshot", "ephemeral"))
async def get_snapshot(request: Request) -> SnapshotAnswer:
    """Return what is known of the newest snapshot."""
    return _answer(context_of(request).service.storage.snapshots.newest)


@router.head("/snapshot/file", include_in_schema=False)
async def head_of_file(request: Request) -> Response:
    """Return the head of a download without handing anything out, so that the ledger notes nothing."""
    snapshot = context_of(request).service.storage.snapshots.newest
    headers = {"Cache-Control": "no-store", "Content-Length": str(snapshot.bytes)}
    return Response(headers=headers, media_type=MEDIA_TYPE)


@router.get(
    "/snapshot/file",
    summary="Download the newest snapshot",
    response_class=FileResponse,
    responses={
        200: {"content": FILE},
        **problems("no-snapshot", "ephemeral", "changes-stopped", "storage", "journal"),
    },
)
async def download_snapshot(request: Request) -> Response:
    """Return the newest snapshot's file. It holds every sample: keep it as safe as the data itself.

    The ledger notes that it was handed out, and later receipts count it: what is erased here is not erased there.
    """
    service = context_of(request).service
    while True:
        snapshot = await service.export()
        try:
            file = snapshot.path.open("rb")
        except FileNotFoundError:
            continue  # newer ones have taken its place meanwhile
        return OpenedFile(file, f"oubli-{snapshot.model_version}.safetensors", service.holders)


@router.put(
    "/snapshot/file",
    summary="Restore a snapshot",
    response_model=RestoreAnswer,
    responses=problems(
        "body-too-large",
        "unreadable-file",
        "queue-full",
        "changes-stopped",
        "storage",
        "journal",
        "upload-slow",
        "upload-dropped",
    ),
    openapi_extra=FILE_BODY,
)
async def restore_snapshot(request: Request) -> Response:
    """Replace the model by that of an uploaded snapshot, less the samples that were erased, rectified or expired since.

    The ledger says which those are. The model version goes up, never back. `verified` in the answer says how far the
    file's trees were checked.
    """
    service = context_of(request).service
    with storage_errors(), service.uploads.open() as upload:
        if not await upload.take(request.stream()):
            raise ProblemError("unreadable-file", "Nothing was changed: the body is empty, send the file as it is.")
        restored = await service.restore(upload.path)
    return json_answer({**restored, "durable": service.is_durable})


def _answer(snapshot: Snapshot) -> SnapshotAnswer:
    return SnapshotAnswer.model_validate(snapshot, from_attributes=True)
