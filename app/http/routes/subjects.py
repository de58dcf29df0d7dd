"""What people may ask for about themselves: restriction of processing and its end, and all that is held about them."""

from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter, Request, Response

from oubli.api.model import Job
from oubli.api.samples import Bundle as BundleAnswer
from oubli.api.samples import ExportRequest, ReleaseRequest, Restriction, RestrictRequest, RetainRequest
from oubli.app.http.openapi import CHANGE, CSV, IDEMPOTENCY_KEY, INPUT, answers, body, problems
from oubli.app.http.parsing import KEY_HEADER, caller_of, context_of, read, service_of
from oubli.app.http.problems import invalid
from oubli.app.http.responses import (
    bundle_answer,
    job_answer,
    json_answer,
    restriction_content,
    wants_csv,
)
from oubli.app.service.changes.restrictions import Restricted
from oubli.app.service.jobs.exports import Bundle
from oubli.app.service.model.influence import UnfitError

router = APIRouter(tags=["subjects"])


@router.post(
    "/subjects/restrict",
    summary="Restrict the processing of subjects",
    responses=answers(Restriction) | problems(*INPUT, "too-many-rows", "key-spent", *CHANGE),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(RestrictRequest)},
)
async def restrict_subjects(request: Request) -> Response:
    """Restrict subjects: the server keeps their samples, and the model no longer learns from them.

    The samples leave the model like deleted samples, and `n_samples` does not count them. You can read them (with
    `restricted_at`), rectify and erase them. They expire unless `keep_expired` is true. New samples of the subjects are
    refused (409 `restricted`). Unknown subjects are counted, not refused.
    """
    changes, reader = service_of(request).changes, context_of(request).reader()
    subjects, ref, keep = await read(partial(reader.subjects, takes_keep=True), await request.body())
    return await _made(request, partial(changes.restrict, subjects, keep=keep, ref=ref))


@router.post(
    "/subjects/release",
    summary="End the restriction of subjects",
    responses=answers(Restriction) | problems(*INPUT, "too-many-rows", "key-spent", "queue-full", "capacity", *CHANGE),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(ReleaseRequest)},
)
async def release_subjects(request: Request) -> Response:
    """Learn from the samples of restricted subjects again.

    An exact model then equals one in which they were never restricted. Expired samples are erased instead. Subjects
    that are not restricted are counted, not refused.
    """
    subjects, ref, _ = await read(context_of(request).reader().subjects, await request.body())
    return await _made(request, partial(service_of(request).changes.release, subjects, ref=ref))


@router.post(
    "/subjects/retain",
    summary="Keep samples of subjects for some time only",
    responses=answers(Restriction) | problems(*INPUT, "too-many-rows", "key-spent", "queue-full", *CHANGE),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(RetainRequest)},
)
async def retain_subjects(request: Request) -> Response:
    """Set a retention period for all current and future samples of some subjects.

    Each sample expires when the period since its addition is over, unless its `expires_at` or the setting `retention`
    ends sooner: a period never extends a sample's life. If the time of addition is unknown, as for the data file that
    the model began with, the period counts from the first time that a period was set. The period ends with the last
    sample of the subject, and with `"seconds": null`. Unknown subjects are counted, not refused.
    """
    subjects, seconds, ref = await read(context_of(request).reader().retained, await request.body())
    return await _made(request, partial(service_of(request).changes.retain, subjects, seconds, ref=ref))


async def _made(request: Request, change: Callable[..., Awaitable[Restricted]]) -> Response:
    """Make a change of the processing of subjects, once for each `Idempotency-Key`, and answer with it."""
    service, header = service_of(request), request.headers.get(KEY_HEADER)
    use = service.changes.idempotency_keys.use
    async with use(header, f"POST {request.scope['route'].path}", await request.body()) as key:
        made = await change(key=key, caller=caller_of(request))
    return json_answer(restriction_content(made, durable=service.disk.is_durable))


@router.post(
    "/subjects/export",
    summary="Export everything about a subject",
    responses={
        **answers(BundleAnswer, content=CSV),
        **answers(Job, 202, "It takes long: the job that was begun."),
        **problems(*INPUT, "queue-full", "superseded"),
    },
    openapi_extra=body(ExportRequest),
)
async def export_subject(request: Request) -> Response:
    """Return everything that is held about a subject: samples with time and request of their addition, and receipts.

    What takes long is answered with a job: `GET /jobs/{id}/result` returns the bundle until samples are erased. As CSV
    (`Accept: text/csv`) it has the samples alone.
    """
    context = context_of(request)
    subject, explains = await read(context.reader().export, await request.body())
    try:
        made = await context.service.jobs.exporter.ask(subject, explains=explains)
    except UnfitError as error:
        raise invalid("/influence", str(error)) from None
    if isinstance(made, Bundle):
        return await bundle_answer(context.service, made, csv=wants_csv(request, None))
    return job_answer(made)
