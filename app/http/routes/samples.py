"""The samples: add, rectify, read, delete."""

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.convertors import Convertor, register_url_convertor

from oubli.app.access.scopes import AUDIT
from oubli.app.http.absence import absence_content
from oubli.app.http.auth import first_values
from oubli.app.http.context import Context, bulk_of, caller_of, context_of
from oubli.app.http.formats import Format, formats_of
from oubli.app.http.openapi import (
    CSV,
    DEFAULT_PAGE,
    IDEMPOTENCY_KEY,
    KEY_HEADER,
    NEXT_CURSOR,
    PATH,
    QUERY,
    TABLES,
    body,
    problems,
    table_body,
)
from oubli.app.http.parsing import (
    explain,
    explain_addition,
    one_value,
    parse_flag,
    parse_id,
    parse_limit,
    parse_names,
    parse_query,
    parse_ref,
)
from oubli.app.http.problems import invalid
from oubli.app.http.responses import (
    addition_content,
    csv_answer,
    deletion_content,
    json_answer,
    page_answer,
    read_cursor,
    receipt_content,
    sample_content,
    wants_csv,
)
from oubli.app.http.schemas.erasures import BatchDeleteRequest, BatchDeletion, DeletionOutcome, Receipt
from oubli.app.http.schemas.samples import (
    AbsenceProof,
    AbsenceRequest,
    AddAnswer,
    AddRequest,
    ReplaceRequest,
    SampleAnswer,
    SamplesAnswer,
    SamplesList,
    SearchRequest,
)
from oubli.app.service.results import Page
from oubli.core.errors import InputError

# Routes of the folder of samples: none of the names is an id in a path.
_SEARCH, _BATCH_DELETE, _ABSENCE = "/samples/search", "/samples/batch-delete", "/samples/absence-proofs"


class IdConvertor(Convertor[str]):
    """The rest of a path but for the names of routes, line breaks included; Starlette's own `path` stops at them."""

    regex = r"(?!(?:search|batch-delete|absence-proofs)\Z)(?s:.+)"

    def convert(self, value: str) -> str:
        """Return the text as it is; `sample_id` reads the raw path, in which broken UTF-8 can be told."""
        return value

    def to_string(self, value: str) -> str:
        """Return the text as it is."""
        return value


register_url_convertor("sample_id", IdConvertor())
router = APIRouter(tags=["samples"])
_ONE = "/samples/{id:sample_id}"
_INPUT = ("broken-json", "body-too-large", "invalid-input")
_CHANGE = ("changes-stopped", "storage")


@router.post(
    "/samples",
    summary="Add samples",
    status_code=201,
    response_model=AddAnswer,
    responses={
        200: {"model": AddAnswer, "description": "Nothing was new", "content": TABLES},
        201: {"content": TABLES},
        **problems(
            *_INPUT,
            "broken-records",
            "record-too-large",
            "id-conflict",
            "restricted",
            "erased-lately",
            "too-many-rows",
            "queue-full",
            "capacity",
            *_CHANGE,
        ),
    },
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **table_body(AddRequest)},
)
async def add_samples(request: Request) -> Response:
    """Learn samples, all of them or none.

    A sample that is held with the same id, content and subject is accepted and changes nothing, so that a request can
    be repeated.

    Samples may also be sent as NDJSON (a sample a line), as CSV with a header or as an Arrow IPC stream: a column for
    each feature and for the label, and perhaps `id`, `subject`, `expires_at` and `readd`. `Accept` names the format of
    the answer.
    """
    context = context_of(request)
    given, wanted = formats_of(request.headers)
    if given is not Format.JSON:
        return await bulk_of(request).add(request, given, wanted)
    service, reader, sent_body = context.service, context.reader(), await request.body()
    samples, sent = reader.samples(sent_body)
    async with service.idempotency_keys.use(request.headers.get(KEY_HEADER), "POST /samples", sent_body) as key:
        try:
            added = await service.add(samples, key)
        except InputError as error:
            raise explain_addition(error, sent, reader.schema) from None
    if wanted is not Format.JSON:
        return await bulk_of(request).addition_as(wanted, added)
    return json_answer(addition_content(added, durable=service.is_durable), 201 if added.n_new else 200)


@router.post(
    _SEARCH,
    summary="List samples of a subject, or by ids",
    response_model=SamplesAnswer,
    responses=problems(*_INPUT, "not-held"),
    openapi_extra=body(SearchRequest),
)
async def search_samples(request: Request) -> Response:
    """List what is held about a subject, or samples by their ids, without a name in the address.

    Samples that are not held are left out of the list; when none of them is, the answer is 404.
    """
    context = context_of(request)
    most = context.service.limits.page_size_max
    ids, subject, cursor, limit = context.reader().search(await request.body(), most)
    if ids is None:
        return _list(context, request, subject, cursor, limit, None)
    page = context.service.find(ids)
    return page_answer(page, context.service.state.model.schema_, csv=wants_csv(request, None))


@router.post(
    _BATCH_DELETE,
    summary="Delete many samples",
    response_model=BatchDeletion,
    responses=problems(*_INPUT, "too-many-rows", *_CHANGE),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(BatchDeleteRequest)},
)
async def batch_delete_samples(request: Request) -> Response:
    """Unlearn samples by their ids, or all samples of some subjects; what is not held is counted, not refused.

    With `list_found` the answer holds the receipt, and of which of the names something was held. When nothing of them
    is held and the caller has made many such requests in the last hour, there is no receipt: its `id` is null.
    """
    context = context_of(request)
    service, sent_body = context.service, await request.body()
    ids, subjects, ref, lists = context.reader().targets(sent_body)
    async with service.idempotency_keys.use(
        request.headers.get(KEY_HEADER), "POST /samples/batch-delete", sent_body
    ) as key:
        deleted = await service.delete_listing(ids=ids, subjects=subjects, ref=ref, key=key, caller=caller_of(request))
    content = deletion_content(deleted, durable=service.is_durable)
    return json_answer(content if lists else content["receipt"])


@router.post(
    _ABSENCE,
    summary="Proof that a sample or subject is not in the model",
    response_model=AbsenceProof,
    responses=problems("broken-json", "body-too-large", "invalid-input", "still-held", "superseded", "changes-stopped"),
    openapi_extra=body(AbsenceRequest),
)
async def prove_absence(request: Request) -> Response:
    """Prove that no sample that the model has learned has this id, or is of this subject.

    The proof leads from where the name would be to the root of a tree over all samples held. It names no other sample.
    `oubli proof check` checks it without the server. The log tells of this root: where it has no state of the version,
    one without a digest is written.
    """
    context = context_of(request)
    service = context.service
    found, told = await service.prove_absence(*context.reader().absent_name(await request.body()))
    return json_answer(absence_content(found, told))


@router.get(
    "/samples",
    summary="List samples",
    response_model=SamplesList,
    responses={200: {"content": CSV, "headers": NEXT_CURSOR}, **problems("not-held", "invalid-input")},
    openapi_extra={"parameters": [QUERY[name] for name in ("id", "subject", "cursor", "limit", "format", "openings")]},
)
async def list_samples(request: Request) -> Response:
    """List the samples held, or those of one subject, page by page; or the one with an id.

    With `openings` each sample has its nonce, and the answer the key of positions: from all pages the root of the set
    can be computed. That takes the scope `audit`.
    """
    context = context_of(request)
    query = parse_query(request.scope["query_string"], ("id", "subject", "cursor", "limit", "format", "openings"))
    sample_id, subject = (_name_of(query, name) for name in ("id", "subject"))
    cursor, limit, chosen, wanted = (one_value(query, name) for name in ("cursor", "limit", "format", "openings"))
    openings = parse_flag(wanted, "/openings")
    if openings:
        request.app.state.rules.require_scope(first_values(request.scope["headers"]), AUDIT)
        if sample_id is not None:
            raise invalid("/openings", "is for lists: leave out 'id'")
    if sample_id is None:
        return _list(context, request, subject, cursor, limit, chosen, openings=openings)
    if subject is not None or cursor is not None:
        raise invalid("/id", "names one sample: leave out 'subject' and 'cursor'")
    parse_limit(limit, DEFAULT_PAGE, context.service.limits.page_size_max)
    csv = wants_csv(request, chosen)
    sample, version = context.service.get(sample_id)
    return page_answer(Page([sample], None, 0, version), context.service.state.model.schema_, csv=csv)


@router.delete(
    "/samples",
    summary="Delete samples or subjects",
    response_model=DeletionOutcome,
    responses=problems("invalid-input", "too-many-rows", *_CHANGE),
    openapi_extra={"parameters": [QUERY[name] for name in ("ids", "subjects", "ref")]},
)
async def delete_samples(request: Request) -> Response:
    """Unlearn the samples with the given ids, or all samples of the given subjects.

    A body is not read, as clients and proxies drop it; `POST /samples/batch-delete` takes one.
    """
    context = context_of(request)
    query = parse_query(request.scope["query_string"], ("id", "subject", "ref"))
    ids, subjects = query.get("id"), query.get("subject")
    if (ids is None) == (subjects is None):
        rule = "the query must have either 'id' or 'subject', once or more; POST /samples/batch-delete takes a body"
        raise invalid("", rule)
    service = context.service
    receipt = await service.delete(
        ids=None if ids is None else parse_names(ids, "id"),
        subjects=None if subjects is None else parse_names(subjects, "subject"),
        ref=_ref(query),
        caller=caller_of(request),
    )
    return json_answer(receipt_content(receipt, durable=service.is_durable))


@router.get(
    _ONE,
    summary="Read one sample",
    response_model=SampleAnswer,
    responses={200: {"content": CSV}, **problems("not-held", "invalid-input")},
    openapi_extra={"parameters": [PATH["sample"], QUERY["format"]]},
)
async def get_sample(request: Request) -> Response:
    """Return a sample as it is held."""
    context = context_of(request)
    chosen = one_value(parse_query(request.scope["query_string"], ("format",)), "format")
    csv = wants_csv(request, chosen)
    sample, version = context.service.get(_sample_id(request))
    schema = context.service.state.model.schema_
    if csv:
        return csv_answer([sample], schema)
    return json_answer({**sample_content(sample, schema), "model_version": version})


@router.put(
    _ONE,
    summary="Rectify one sample",
    response_model=Receipt,
    responses=problems(*_INPUT, "not-held", "restricted", "queue-full", "capacity", *_CHANGE),
    openapi_extra={"parameters": [PATH["sample"], QUERY["ref"], IDEMPOTENCY_KEY], **body(ReplaceRequest)},
)
async def replace_sample(request: Request) -> Response:
    """Replace the content of a held sample; the old content is unlearned. Never creates a sample.

    A sample is restricted with its subject: one that is moved to a restricted subject leaves the model, and one that is
    moved from there to a subject that is not restricted is learned from.
    """
    return await _replace(request, _sample_id(request), _ref_of(request))


@router.put(
    "/samples",
    summary="Rectify the sample with an id",
    response_model=Receipt,
    responses=problems(*_INPUT, "not-held", "restricted", "queue-full", "capacity", *_CHANGE),
    openapi_extra={"parameters": [QUERY["replaced"], QUERY["ref"], IDEMPOTENCY_KEY], **body(ReplaceRequest)},
)
async def replace_sample_by_id(request: Request) -> Response:
    """Replace the content of a held sample, as `PUT /samples/{id}` does, for ids that cannot be in a path."""
    query = parse_query(request.scope["query_string"], ("id", "ref"))
    sample_id = _name_of(query, "id")
    if sample_id is None:
        raise invalid("/id", "is missing: name the sample to replace")
    return await _replace(request, sample_id, _ref(query))


@router.delete(
    _ONE,
    summary="Delete one sample",
    response_model=DeletionOutcome,
    responses=problems("invalid-input", *_CHANGE),
    openapi_extra={"parameters": [PATH["sample"], QUERY["ref"]]},
)
async def delete_sample(request: Request) -> Response:
    """Unlearn one sample. One that is not held is counted as absent, so that a request can be repeated."""
    service = context_of(request).service
    receipt = await service.delete(ids=[_sample_id(request)], ref=_ref_of(request), caller=caller_of(request))
    return json_answer(receipt_content(receipt, durable=service.is_durable))


async def _replace(request: Request, sample_id: str, ref: str | None) -> Response:
    context = context_of(request)
    reader = context.reader()
    service, sent_body = context.service, await request.body()
    asked, sent = reader.replacement(sent_body, sample_id)
    # What the address says is a part of the request that a key stands for.
    whole = b"\0".join((sample_id.encode(), (ref or "").encode(), sent_body))
    async with service.idempotency_keys.use(request.headers.get(KEY_HEADER), "PUT /samples", whole) as key:
        try:
            receipt = await service.replace(asked, ref, key)
        except InputError as error:
            raise explain(error, lambda _: ("features",), [sent], reader.schema) from None
    return json_answer(receipt_content(receipt, durable=service.is_durable))


def _list(
    context: Context,
    request: Request,
    subject: str | None,
    cursor: Any,
    limit: Any,
    chosen: str | None,
    *,
    openings: bool = False,
) -> Response:
    most = parse_limit(limit, DEFAULT_PAGE, context.service.limits.page_size_max)
    page = context.service.page(subject=subject, after=read_cursor(cursor), limit=most, openings=openings)
    return page_answer(page, context.service.state.model.schema_, csv=wants_csv(request, chosen))


def _name_of(query: dict[str, list[str]], key: str) -> str | None:
    """Return an id or a subject that may be given once."""
    value = one_value(query, key)
    return None if value is None else parse_names([value], key)[0]


def _ref_of(request: Request) -> str | None:
    raw_query = request.scope["query_string"]
    return _ref(parse_query(raw_query, ("ref",))) if raw_query else None


def _ref(query: dict[str, list[str]]) -> str | None:
    value = one_value(query, "ref")
    return None if value is None else parse_ref(value, "/ref")


def _sample_id(request: Request) -> str:
    scope = request.scope
    prefix = (scope.get("root_path", "") + "/samples/").encode("ascii")
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
    return parse_id(raw, prefix)
