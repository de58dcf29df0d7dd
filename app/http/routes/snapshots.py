"""Snapshots: write, look at, download, restore."""

from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse

from oubli.api.model import Restored
from oubli.api.model import Snapshot as SnapshotAnswer
from oubli.app.http.openapi import CHANGE, FILE, FILE_BODY, QUERY, answers, problems
from oubli.app.http.parsing import parse_flag, parse_values, service_of
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import MEDIA_TYPE, OpenedFile, json_answer
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
    """Write the model to the data directory now. It then survives any end of the process."""
    return _answer(await service_of(request).erasure.checkpointer.snapshot())


@router.get("/snapshot", summary="The newest snapshot", responses=problems("no-snapshot", "ephemeral"))
async def get_snapshot(request: Request) -> SnapshotAnswer:
    """Return id, version, digest, size and time of the newest snapshot."""
    return _answer(service_of(request).disk.storage.snapshots.newest)


@router.head("/snapshot/file", include_in_schema=False)
async def head_of_file(request: Request) -> Response:
    """Return the head of a download without handing anything out, so that the ledger notes nothing."""
    snapshot = service_of(request).disk.storage.snapshots.newest
    headers = {"Cache-Control": "no-store", "Content-Length": str(snapshot.bytes)}
    return Response(headers=headers, media_type=MEDIA_TYPE)


@router.get(
    "/snapshot/file",
    summary="Download the newest snapshot",
    response_class=FileResponse,
    responses={
        200: {"content": FILE},
        **problems("invalid-input", "no-snapshot", "ephemeral", "queue-full", "journal", *CHANGE),
    },
    openapi_extra={"parameters": [QUERY["fresh"]]},
)
async def download_snapshot(request: Request) -> Response:
    """Return the file of the newest snapshot. It contains every sample: keep it as safe as the data.

    The file is as old as the newest snapshot, up to an hour: changes since are missing from it. With `fresh` a
    snapshot is written first, so that the file has every change that was answered before the request.

    The ledger notes that it was handed out, and later receipts count it: what is erased here is not erased there.
    """
    service = service_of(request)
    (fresh,) = parse_values(request.scope["query_string"], "fresh")
    if parse_flag(fresh, "/fresh"):
        await service.erasure.checkpointer.snapshot()
    while True:
        snapshot = await service.erasure.checkpointer.export()
        try:
            file = snapshot.path.open("rb")
        except FileNotFoundError:
            continue  # a newer one has replaced it
        return OpenedFile(file, f"oubli-{snapshot.model_version}.safetensors", service.model.holders)


@router.put(
    "/snapshot/file",
    summary="Restore a snapshot",
    responses=answers(Restored)
    | problems("body-too-large", "unreadable-file", "queue-full", "journal", "upload-slow", "upload-dropped", *CHANGE),
    openapi_extra=FILE_BODY,
)
async def restore_snapshot(request: Request) -> Response:
    """Replace the model by an uploaded snapshot, without the samples that were erased, rectified or expired since.

    The ledger lists these. The model version increases, and never goes back. `verified` in the answer says how far the
    file's trees were checked.
    """
    service = service_of(request)
    with storage_errors(), service.recovery.uploads.open() as upload:
        if not await upload.take(request.stream()):
            raise ProblemError("unreadable-file", "Nothing was changed: the body is empty, send the file as it is.")
        restored = await service.recovery.restore(upload.path)
    return json_answer({**restored, "durable": service.disk.is_durable})


def _answer(snapshot: Snapshot) -> SnapshotAnswer:
    return SnapshotAnswer.model_validate(snapshot, from_attributes=True)
