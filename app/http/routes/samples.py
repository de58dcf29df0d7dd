"""The samples: add, rectify, read, delete.

Proofs of absence as answers.
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.convertors import Convertor, register_url_convertor

from oubli.api.erasures import BatchDeleteRequest, BatchDeletion, DeletionOutcome
from oubli.api.ledger import AbsenceProof, AbsenceRequest
from oubli.api.samples import Added, AddRequest, ReplaceRequest, SampleAnswer, SamplesAnswer, SamplesList, SearchRequest
from oubli.app.access.scopes import AUDIT
from oubli.app.http.auth import first_values
from oubli.app.http.bulk.answers import bulk_of, learn
from oubli.app.http.formats import Format, formats_of
from oubli.app.http.openapi import (
    CHANGE,
    COLUMNS,
    CSV,
    DEFAULT_PAGE,
    ETAG,
    IDEMPOTENCY_KEY,
    IF_MATCH,
    IF_NONE_MATCH,
    INPUT,
    NEXT_CURSOR,
    NOT_MODIFIED,
    PATH,
    QUERY,
    TABLE_INPUT,
    TABLES,
    answers,
    body,
    problems,
    table_body,
)
from oubli.app.http.parsing import (
    KEY_HEADER,
    Context,
    Reader,
    caller_of,
    context_of,
    explain,
    one_value,
    parse_flag,
    parse_id,
    parse_limit,
    parse_names,
    parse_query,
    parse_ref,
    parse_values,
    read,
    reader_of,
    service_of,
)
from oubli.app.http.problems import invalid
from oubli.app.http.responses import (
    NO_STORE,
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
from oubli.app.service.evidence.sample_set import AbsenceProof as AbsenceFound
from oubli.app.service.model.questions import Page
from oubli.app.service.model.state import tag_of
from oubli.core.errors import InputError
from oubli.core.samples.set_tree import DEPTH

_POSITION_BYTES = DEPTH // 8


def absence_content(found: AbsenceFound, told: str | None = None) -> dict[str, Any]:
    """Return a proof that a name is not in the set; `oubli proof check` reads it.

    The root is not in it: that is what the hashes lead to.

    Parameters
    ----------
    found
        The proof.
    told
        Proof that the log tells of this state; None where it does not.
    """
    return {
        "format": "oubli-absence-proof@v1",
        "by": found.by,
        "name": found.name,
        "model_version": found.state.model_version,
        "way": base64.b64encode(_way(found)).decode("ascii"),
        "state": told,
    }


def _way(found: AbsenceFound) -> bytes:
    """Return the position, a bit for each depth with another child on the way, and the hashes of these."""
    marked = sum(1 << DEPTH - 1 - depth for depth in found.others)
    numbers = (number.to_bytes(_POSITION_BYTES, "big") for number in (found.position, marked))
    return b"".join((*numbers, *found.others.values()))


# Routes of the folder of samples: none of the names is an id in a path.
_SEARCH, _BATCH_DELETE, _ABSENCE = "/samples/search", "/samples/batch-delete", "/samples/absence-proofs"


class IdConvertor(Convertor[str]):
    """The rest of a path but for the names of routes, line breaks included; Starlette's own `path` stops at them."""

    regex = r"(?!(?:search|batch-delete|absence-proofs)\Z)(?s:.+)"

    def convert(self, value: str) -> str:
        """Return the text as it is; `sample_id` reads the raw path, in which broken UTF-8 can be found."""
        return value

    def to_string(self, value: str) -> str:
        """Return the text as it is."""
        return value


register_url_convertor("sample_id", IdConvertor())
router = APIRouter(tags=["samples"])
_ONE = "/samples/{id:sample_id}"
_REPLACING = (QUERY["ref"], *COLUMNS, IF_MATCH, IDEMPOTENCY_KEY)


@router.post(
    "/samples",
    summary="Add samples",
    status_code=201,
    responses={
        **answers(Added, 200, "Nothing was new", content=TABLES),
        **answers(Added, 201, content=TABLES),
        **problems(*TABLE_INPUT, *CHANGE, "id-conflict", "key-spent", "restricted", "erased-lately", "capacity"),
    },
    openapi_extra={"parameters": [*COLUMNS, IDEMPOTENCY_KEY], **table_body(AddRequest)},
)
async def add_samples(request: Request) -> Response:
    """Learn samples, all of them or none.

    A sample that is already held with the same id, content, weight and subject is accepted and changes nothing, so you
    can repeat a request.

    You can also send samples as NDJSON (a sample a line), as CSV with a header or as an Arrow IPC stream: with a column
    for each feature and for the label, and optionally `id`, `subject`, `expires_at`, `weight` and `readd`. `Accept`
    names the format of the answer.
    """
    context = context_of(request)
    given, wanted = formats_of(request.headers)
    if given is not Format.JSON:
        return await bulk_of(request).add(request, given, wanted)
    reader, _ = reader_of(request)
    service, sent_body = context.service, await request.body()
    samples, sent = await read(reader.samples, sent_body)
    async with service.changes.idempotency_keys.use(request.headers.get(KEY_HEADER), "POST /samples", sent_body) as key:
        added = await learn(context, samples, sent, key)
    if wanted is not Format.JSON:
        return await bulk_of(request).addition_as(wanted, added)
    return json_answer(addition_content(added, durable=service.disk.is_durable), 201 if added.n_new else 200)


@router.post(
    _SEARCH,
    summary="List samples of a subject, or by ids",
    responses=answers(SamplesAnswer) | problems(*INPUT),
    openapi_extra=body(SearchRequest),
)
async def search_samples(request: Request) -> Response:
    """List the samples of a subject, or samples by their ids, without a name in the address.

    Ids that are not held are left out. If nothing is held, the list is empty.
    """
    context = context_of(request)
    search = partial(context.reader().search, most=context.page_size_max)
    ids, subject, cursor, limit = await read(search, await request.body())
    if ids is None:
        return await _list(context, request, subject, cursor, limit, None)
    return await _answer(context, context.service.questions.find(ids), csv=wants_csv(request, None))


@router.post(
    _BATCH_DELETE,
    summary="Delete many samples",
    responses=answers(BatchDeletion) | problems(*INPUT, "sample-changed", "too-many-rows", *CHANGE),
    openapi_extra={"parameters": [IF_MATCH, IDEMPOTENCY_KEY], **body(BatchDeleteRequest)},
)
async def batch_delete_samples(request: Request) -> Response:
    """Unlearn samples by their ids, or all samples of some subjects. Names that are not held are counted, not refused.

    With `list_found` the answer has the receipt and the list of names that were held. If no name is held and the caller
    has made many such requests in the last hour, there is no receipt: its `id` is null.
    """
    context = context_of(request)
    changes, sent_body = context.service.changes, await request.body()
    ids, subjects, ref, lists = await read(context.reader().targets, sent_body)
    header = request.headers.get(KEY_HEADER)
    async with changes.idempotency_keys.use(header, "POST /samples/batch-delete", sent_body) as key:
        deleted = await changes.delete_listing(
            ids=ids, subjects=subjects, ref=ref, key=key, caller=caller_of(request), tags=_deleted_tags(request, ids)
        )
    content = deletion_content(deleted, durable=context.service.disk.is_durable)
    return json_answer(content if lists else content["receipt"])


@router.post(
    _ABSENCE,
    summary="Proof that a sample or subject is not in the model",
    responses=answers(AbsenceProof) | problems(*INPUT, "still-held", "superseded", "changes-stopped"),
    openapi_extra=body(AbsenceRequest),
)
async def prove_absence(request: Request) -> Response:
    """Prove that the model has learned no sample with this id or subject.

    The proof leads from the place of the name to the root of a tree over all samples held. It names no other sample.
    `oubli proof check` checks it without the server. The log contains this root: if it has no state of the version yet,
    the server writes one without a digest.
    """
    context = context_of(request)
    service = context.service
    by, name = await read(context.reader().absent_name, await request.body())
    found, told = await service.evidence.prove_absence(by, name)
    return json_answer(absence_content(found, told))


@router.get(
    "/samples",
    summary="List samples",
    responses=answers(SamplesList, content=CSV, headers=NEXT_CURSOR | ETAG) | problems("not-held", "invalid-input"),
    openapi_extra={"parameters": [QUERY[name] for name in ("id", "subject", "cursor", "limit", "format", "openings")]},
)
async def list_samples(request: Request) -> Response:
    """List the samples held, or those of one subject, page by page; or the one with an id.

    The list of a subject without samples is empty. With `id` the answer is that of `GET /samples/{id}`: it has an
    `ETag`, and is 404 if the sample is not held.

    With `openings` each sample has its nonce, and the answer has the positions key. From all pages you can compute the
    root of the set. This needs the scope `audit`.
    """
    context = context_of(request)
    names = ("id", "subject", "cursor", "limit", "format", "openings")
    sent_id, sent_subject, cursor, limit, chosen, wanted = parse_values(request.scope["query_string"], *names)
    sample_id, subject = _name_of(sent_id, "id"), _name_of(sent_subject, "subject")
    openings = parse_flag(wanted, "/openings")
    if openings:
        request.app.state.rules.require_scope(first_values(request.scope["headers"]), AUDIT)
        if sample_id is not None:
            raise invalid("/openings", "is for lists: leave out 'id'")
    if sample_id is None:
        return await _list(context, request, subject, cursor, limit, chosen, openings=openings)
    if subject is not None or cursor is not None:
        raise invalid("/id", "names one sample: leave out 'subject' and 'cursor'")
    parse_limit(limit, DEFAULT_PAGE, context.page_size_max)
    csv = wants_csv(request, chosen)
    sample, version = context.service.questions.get(sample_id)
    answer = page_answer(Page([sample], None, 0, version), context.service.model.state.model.schema_, csv=csv)
    return _tagged(context, sample_id, answer)


@router.delete(
    "/samples",
    summary="Delete samples or subjects",
    responses=answers(DeletionOutcome) | problems("invalid-input", "sample-changed", "too-many-rows", *CHANGE),
    openapi_extra={"parameters": [*(QUERY[name] for name in ("ids", "subjects", "ref")), IF_MATCH]},
)
async def delete_samples(request: Request) -> Response:
    """Unlearn the samples with the given ids, or all samples of the given subjects.

    A body is ignored, because clients and proxies drop it. `POST /samples/batch-delete` accepts one.
    """
    context = context_of(request)
    query = parse_query(request.scope["query_string"], ("id", "subject", "ref"))
    ids, subjects = query.get("id"), query.get("subject")
    if (ids is None) == (subjects is None):
        rule = "the query must have either 'id' or 'subject', once or more; POST /samples/batch-delete takes a body"
        raise invalid("", rule)
    service = context.service
    receipt = await service.changes.delete(
        ids=None if ids is None else parse_names(ids, "id"),
        subjects=None if subjects is None else parse_names(subjects, "subject"),
        ref=_ref(one_value(query, "ref")),
        caller=caller_of(request),
        tags=_deleted_tags(request, ids),
    )
    return json_answer(receipt_content(receipt, durable=service.disk.is_durable))


@router.get(
    _ONE,
    summary="Read one sample",
    responses=answers(SampleAnswer, content=CSV, headers=ETAG) | NOT_MODIFIED | problems("not-held", "invalid-input"),
    openapi_extra={"parameters": [PATH["sample"], QUERY["format"], IF_NONE_MATCH]},
)
async def get_sample(request: Request) -> Response:
    """Return a held sample."""
    context = context_of(request)
    (chosen,) = parse_values(request.scope["query_string"], "format")
    csv = wants_csv(request, chosen)
    sample, version = context.service.questions.get(_sample_id(request))
    schema = context.service.model.state.model.schema_
    content = {**sample_content(sample, schema), "model_version": version}
    answer = _tagged(context, sample.id, csv_answer([sample], schema) if csv else json_answer(content))
    known, tag = _tags_of(request, "if-none-match"), answer.headers["ETag"]
    return Response(None, 304, {**NO_STORE, "ETag": tag}) if known and known & {tag, f"W/{tag}", "*"} else answer


@router.put(
    _ONE,
    summary="Rectify one sample",
    responses=answers(DeletionOutcome)
    | problems(*INPUT, "not-held", "sample-changed", "key-spent", "restricted", "queue-full", "capacity", *CHANGE),
    openapi_extra={"parameters": [PATH["sample"], *_REPLACING], **body(ReplaceRequest)},
)
async def replace_sample(request: Request) -> Response:
    """Replace the content of a held sample. The old content is unlearned. This never creates a sample.

    A sample is restricted with its subject: one that is moved to a restricted subject leaves the model, and one that is
    moved from there to a subject that is not restricted is learned from. Content that is the same as before changes
    nothing; above 1,000 such requests an hour it gets no receipt.
    """
    reader, (ref,) = reader_of(request, "ref")
    return await _replace(request, reader, _sample_id(request), _ref(ref))


@router.put(
    "/samples",
    summary="Rectify the sample with an id",
    responses=answers(DeletionOutcome)
    | problems(*INPUT, "not-held", "sample-changed", "key-spent", "restricted", "queue-full", "capacity", *CHANGE),
    openapi_extra={"parameters": [QUERY["replaced"], *_REPLACING], **body(ReplaceRequest)},
)
async def replace_sample_by_id(request: Request) -> Response:
    """Replace the content of a held sample, as `PUT /samples/{id}` does, for ids that cannot be in a path."""
    reader, (sent_id, ref) = reader_of(request, "id", "ref")
    sample_id = _name_of(sent_id, "id")
    if sample_id is None:
        raise invalid("/id", "is missing: name the sample to replace")
    return await _replace(request, reader, sample_id, _ref(ref))


@router.delete(
    _ONE,
    summary="Delete one sample",
    responses=answers(DeletionOutcome) | problems("invalid-input", "sample-changed", *CHANGE),
    openapi_extra={"parameters": [PATH["sample"], QUERY["ref"], IF_MATCH]},
)
async def delete_sample(request: Request) -> Response:
    """Unlearn one sample. If it is not held, it is counted as absent, so you can repeat a request."""
    service, tags = service_of(request), _tags_of(request, "if-match")
    ids, ref = [_sample_id(request)], _ref_of(request)
    receipt = await service.changes.delete(ids=ids, ref=ref, caller=caller_of(request), tags=tags)
    return json_answer(receipt_content(receipt, durable=service.disk.is_durable))


async def _replace(request: Request, reader: Reader, sample_id: str, ref: str | None) -> Response:
    service, sent_body = service_of(request), await request.body()
    asked, sent = await read(partial(reader.replacement, sample_id=sample_id), sent_body)
    asked = replace(asked, tags=_tags_of(request, "if-match"))
    # What the address says is a part of the request that a key stands for.
    whole = b"\0".join((sample_id.encode(), (ref or "").encode(), sent_body))
    async with service.changes.idempotency_keys.use(request.headers.get(KEY_HEADER), "PUT /samples", whole) as key:
        try:
            receipt = await service.changes.replace(asked, ref, key, caller_of(request))
        except InputError as error:
            raise explain(error, lambda _: ("features",), [sent], reader.schema) from None
    return json_answer(receipt_content(receipt, durable=service.disk.is_durable))


async def _list(
    context: Context,
    request: Request,
    subject: str | None,
    cursor: Any,
    limit: Any,
    chosen: str | None,
    *,
    openings: bool = False,
) -> Response:
    most = parse_limit(limit, DEFAULT_PAGE, context.page_size_max)
    page = context.service.questions.page(subject=subject, after=read_cursor(cursor), limit=most, openings=openings)
    return await _answer(context, page, csv=wants_csv(request, chosen))


async def _answer(context: Context, page: Page, *, csv: bool) -> Response:
    """Return a page of samples; a long one is written in a thread."""
    write = partial(page_answer, page, context.service.model.state.model.schema_, csv=csv)
    return write() if len(page.samples) <= DEFAULT_PAGE else await asyncio.to_thread(write)


def _tagged(context: Context, sample_id: str, answer: Response) -> Response:
    """Return an answer with the entity tag of its only sample."""
    answer.headers["ETag"] = tag_of(context.service.model.state.model.samples_, sample_id)
    return answer


def _tags_of(request: Request, header: str) -> frozenset[str] | None:
    """Return the entity tags of a header; None without it. Those of this server hold no comma."""
    values = request.headers.getlist(header)
    return frozenset(tag.strip() for tag in ",".join(values).split(",")) if values else None


def _deleted_tags(request: Request, ids: list[str] | None) -> frozenset[str] | None:
    """Return the entity tags that the sample to delete may have; refuses them where not one sample is named."""
    tags = _tags_of(request, "if-match")
    if tags is not None and (ids is None or len(ids) > 1):
        raise invalid("/If-Match", "is about one sample: name one id, or leave the header out")
    return tags


def _name_of(value: str | None, key: str) -> str | None:
    return None if value is None else parse_names([value], key)[0]


def _ref_of(request: Request) -> str | None:
    return _ref(*parse_values(request.scope["query_string"], "ref"))


def _ref(value: str | None) -> str | None:
    return None if value is None else parse_ref(value, "/ref")


def _sample_id(request: Request) -> str:
    scope = request.scope
    prefix = (scope.get("root_path", "") + "/samples/").encode("ascii")
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8")
    return parse_id(raw, prefix)
