"""What people may ask for about themselves: restriction of processing and its end, and all that is held about them."""

import asyncio

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import Context, context_of
from oubli.app.http.openapi import CSV, IDEMPOTENCY_KEY, KEY_HEADER, PATH, QUERY, body, problems
from oubli.app.http.parsing import one_value, parse_query
from oubli.app.http.problems import ProblemError, invalid
from oubli.app.http.responses import (
    NO_STORE,
    bundle_content,
    bundle_csv,
    job_answer,
    json_answer,
    restriction_content,
    to_json,
    wants_csv,
)
from oubli.app.http.schemas.model import JobAnswer
from oubli.app.http.schemas.subjects import (
    ExportAnswer,
    ExportRequest,
    ReleaseAnswer,
    ReleaseRequest,
    RestrictAnswer,
    RestrictRequest,
    RetainAnswer,
    RetainRequest,
)
from oubli.app.service.influence_methods import UnfitError
from oubli.app.service.results import Bundle

router = APIRouter(tags=["subjects"])
_INPUT = ("broken-json", "body-too-large", "invalid-input", "too-many-rows")
_CHANGE = ("changes-stopped", "storage")


@router.post(
    "/subjects/restrict",
    summary="Restrict the processing of subjects",
    response_model=RestrictAnswer,
    responses=problems(*_INPUT, *_CHANGE),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(RestrictRequest)},
)
async def restrict_subjects(request: Request) -> Response:
    """Keep all samples of some subjects, and learn from them no longer.

    They leave the model like deleted samples, and are not in `n_samples`. They are shown with `restricted_at`, can be
    rectified and erased, and expire unless `keep_expired` is true. New samples of the subjects are refused (409
    `restricted`). Subjects of which nothing is held are counted, not refused.
    """
    context = context_of(request)
    service, sent_body = context.service, await request.body()
    subjects, ref, keep = context.reader().subjects(sent_body, takes_keep=True)
    header = request.headers.get(KEY_HEADER)
    async with service.idempotency_keys.use(header, "POST /subjects/restrict", sent_body) as key:
        made = await service.restrict(subjects, keep=keep, ref=ref, key=key)
    return json_answer(restriction_content(made, durable=service.is_durable))


@router.post(
    "/subjects/release",
    summary="End the restriction of subjects",
    response_model=ReleaseAnswer,
    responses=problems(*_INPUT, "queue-full", "capacity", *_CHANGE),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(ReleaseRequest)},
)
async def release_subjects(request: Request) -> Response:
    """Learn from the samples of restricted subjects again.

    A model that is exact is then what it would be if they had never been restricted. Samples whose time is over are not
    learned from again: they are erased. Subjects that are not restricted are counted, not refused.
    """
    context = context_of(request)
    service, sent_body = context.service, await request.body()
    subjects, ref, _ = context.reader().subjects(sent_body)
    header = request.headers.get(KEY_HEADER)
    async with service.idempotency_keys.use(header, "POST /subjects/release", sent_body) as key:
        made = await service.release(subjects, ref=ref, key=key)
    return json_answer(restriction_content(made, durable=service.is_durable))


@router.post(
    "/subjects/retain",
    summary="Keep samples of subjects for some time only",
    response_model=RetainAnswer,
    responses=problems(*_INPUT, "queue-full", *_CHANGE),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(RetainRequest)},
)
async def retain_subjects(request: Request) -> Response:
    """Set a retention period for all samples of some subjects, those held and those to come.

    Each sample expires when the period since its addition is over, unless it expires earlier by itself or by the
    setting `retention`: a period never prolongs. Of samples whose addition is not known, such as those of the data file
    that the model began with, the period counts from when a period was first set. It ends with the last sample of the
    subject, and with `"seconds": null`. Subjects of which nothing is held are counted, not refused.
    """
    context = context_of(request)
    service, sent_body = context.service, await request.body()
    subjects, seconds, ref = context.reader().retained(sent_body)
    header = request.headers.get(KEY_HEADER)
    async with service.idempotency_keys.use(header, "POST /subjects/retain", sent_body) as key:
        made = await service.retain(subjects, seconds, ref=ref, key=key)
    return json_answer(restriction_content(made, durable=service.is_durable))


@router.post(
    "/subjects/export",
    summary="All that is held about a subject",
    response_model=ExportAnswer,
    responses={
        200: {"content": CSV},
        202: {"model": JobAnswer, "description": "It takes long: the job that was begun."},
        **problems("broken-json", "body-too-large", "invalid-input", "queue-full", "superseded"),
    },
    openapi_extra=body(ExportRequest),
)
async def export_subject(request: Request) -> Response:
    """Return what is held about a subject, since when and from which request, and the receipts.

    What takes long is answered with a job; its result names the bundle, which `GET /exports/{id}` returns until samples
    are erased. As CSV (`Accept: text/csv`) it has the samples alone.
    """
    context = context_of(request)
    subject, explains = context.reader().export(await request.body())
    try:
        made = await context.service.exporter.ask(subject, explains=explains)
    except UnfitError as error:
        raise invalid("/influence", str(error)) from None
    if isinstance(made, Bundle):
        return await _answer(context, made, csv=wants_csv(request, None))
    return job_answer(made)


@router.get(
    "/exports/{id}",
    summary="The bundle of a long export",
    response_model=ExportAnswer,
    responses={200: {"content": CSV}, **problems("no-export", "invalid-input")},
    openapi_extra={"parameters": [PATH["export"], QUERY["format"]]},
)
async def get_export(request: Request) -> Response:
    """Return the bundle that a job has made. Bundles are forgotten when samples are erased, and when there are many."""
    context = context_of(request)
    csv = wants_csv(request, one_value(parse_query(request.scope["query_string"], ("format",)), "format"))
    bundle = context.service.exporter.kept(request.path_params["id"])
    if bundle is None:
        raise ProblemError("no-export")
    return await _answer(context, bundle, csv=csv)


async def _answer(context: Context, bundle: Bundle, *, csv: bool) -> Response:
    """Return a bundle, written in a thread: it may be long."""
    service = context.service
    schema, durable = service.state.model.schema_, service.is_durable
    if csv:
        text = await asyncio.to_thread(bundle_csv, bundle, schema)
        return Response(text, 200, NO_STORE, media_type="text/csv")
    content = await asyncio.to_thread(lambda: to_json(bundle_content(bundle, schema, durable=durable)))
    return Response(content, 200, NO_STORE, media_type="application/json")
