"""OpenDSR 2.0, formerly OpenGDPR: requests of controllers for a person, below /opendsr/v2.

A subject of this server is an identity of one of the types in the settings, in the format `raw`. An extension of our
own, keyed by the domain of the processor, names samples instead: `{"sample_ids": [...]}`. Keys that are not known are
passed over: the format belongs to others, who may add to it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from oubli.api.protocols import OpendsrCancellation, OpendsrDiscovery, OpendsrReply, OpendsrRequest, OpendsrStatus
from oubli.app.http.auth import first_values
from oubli.app.http.openapi import PATH, answers, body, opendsr_problems
from oubli.app.http.parsing import Context, caller_of, context_of, parse_name, parse_object, read
from oubli.app.http.problems import ProblemError, invalid, pointer
from oubli.app.http.responses import NO_STORE, json_answer
from oubli.app.ledger.entries import SubjectRequest
from oubli.app.service.outbox.subject_requests import API_VERSION, OPENDSR_PATH, Asked, Processor, status_content
from oubli.app.times import TimeError, parse_time, to_text

router = APIRouter(prefix=OPENDSR_PATH, tags=["opendsr"])
_ID = {"parameters": [PATH["request"]]}
KINDS = ("erasure", "access", "portability")
REGULATIONS = ("gdpr", "ccpa")
_FORMATS = ("raw", "sha1", "md5", "sha256")
_UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_CERTIFICATE = {"text/plain": {"schema": {"type": "string"}}}


@router.get(
    "/discovery",
    summary="Accepted requests",
    responses=answers(OpendsrDiscovery) | opendsr_problems("no-opendsr"),
)
async def discover(request: Request) -> Response:
    """Return the requests and identities that the server accepts, and the URL of its certificate."""
    context = context_of(request)
    processor = _processor(context)
    return json_answer(_discovery(processor))


@router.get(
    "/certificate",
    summary="The certificate for signatures",
    response_class=Response,
    responses={200: {"content": _CERTIFICATE}, **opendsr_problems("no-opendsr")},
)
async def get_certificate(request: Request) -> Response:
    """Return the certificate chain in PEM. Its key signs answers and callbacks, over the SHA-256 of their bodies."""
    processor = _processor(context_of(request))
    return Response(processor.signer.certificate, media_type="text/plain")


@router.post(
    "/requests",
    summary="Make a request",
    status_code=201,
    responses=answers(OpendsrReply, 201)
    | opendsr_problems(
        "no-opendsr", "broken-json", "invalid-input", "body-too-large", "request-repeated", "changes-stopped", "storage"
    ),
    openapi_extra=body(OpendsrRequest),
)
async def make_request(request: Request) -> Response:
    """Take a request for erasure, access or portability.

    An erasure has unlearned its samples when this is answered (`in_progress`), and is `completed` when they are in no
    file; `subject_request_id` is the case number of its receipt. The same request again changes nothing.
    """
    context = context_of(request)
    processor, service = _processor(context), context.service
    if service.model.state.phase == "starting":
        raise ProblemError("not-ready")
    sent = await request.body()
    requests = service.outbox.requests
    asked = await read(partial(read_request, processor=processor, most=context.reader().max_rows), sent)
    _require_scope(request, ("erase",) if asked.kind == "erasure" else ("read",))
    taken = await requests.take(asked, caller_of(request))
    return await _signed(processor, _reply(processor, taken, requests.expected_ms(taken), sent), 201)


@router.get(
    "/requests/{id}",
    summary="Status of a request",
    responses=answers(OpendsrStatus) | opendsr_problems("no-opendsr", "no-request"),
    openapi_extra=_ID,
)
async def get_status(request: Request) -> Response:
    """Return the status of a request: `in_progress`, `completed` or `cancelled`."""
    context = context_of(request)
    processor, requests = _processor(context), context.service.outbox.requests
    found = await requests.progress(request.path_params["id"])
    return await _signed(processor, orjson.dumps(status_content(processor, found, requests.expected_ms(found.request))))


@router.delete(
    "/requests/{id}",
    summary="Cancel a request",
    status_code=202,
    responses=answers(OpendsrCancellation, 202) | opendsr_problems("no-opendsr", "no-request", "request-begun"),
    openapi_extra=_ID,
)
async def cancel_request(request: Request) -> Response:
    """Cancel a pending request. Requests are rarely pending, because they begin at once."""
    context = context_of(request)
    processor, service = _processor(context), context.service
    found = await service.outbox.requests.cancel(request.path_params["id"])
    content = {
        "controller_id": processor.controller,
        "received_time": to_text(service.model.clock.now_ms()),
        "subject_request_id": found.id,
        "api_version": API_VERSION,
    }
    return await _signed(processor, orjson.dumps(content), 202)


def _processor(context: Context) -> Processor:
    processor = context.service.outbox.requests.processor
    if processor is None:
        raise ProblemError("no-opendsr")
    return processor


def _require_scope(request: Request, scopes: Sequence[str]) -> None:
    """Refuse a key that may not ask for what the body asks for: the route alone does not tell."""
    request.app.state.rules.require_scope(first_values(request.scope["headers"]), frozenset(scopes))


# --- bodies


def read_request(body: bytes, processor: Processor, most: int) -> Asked:
    """Return a request as it came.

    Parameters
    ----------
    body
        JSON.
    processor
        What the settings say.
    most
        Most identities or samples.

    Raises
    ------
    ProblemError
        When it is none, or asks for what is not taken.
    """
    content = parse_object(body, most, 0)
    request_id = content.get("subject_request_id")
    if not isinstance(request_id, str) or not _UUID4.fullmatch(request_id):
        raise invalid("/subject_request_id", "must be a UUID of version 4 in lower case")
    kind = _one_of(content, "subject_request_type", KINDS)
    regulation = _one_of(content, "regulation", REGULATIONS)
    try:
        parse_time(content.get("submitted_time"))
    except TimeError as error:
        raise invalid("/submitted_time", error.rule) from None
    version = content.get("api_version", API_VERSION)
    if not isinstance(version, str) or version.partition(".")[0] != "2":
        raise invalid("/api_version", "must be 2.0: other versions are not spoken here")
    subjects, samples = _subjects(content, processor), _samples(content, processor)
    if bool(subjects) == bool(samples):
        raise invalid(
            "/subject_identities",
            "must hold an identity that GET discovery lists; or the extension must name 'sample_ids', and not both",
        )
    if samples and kind != "erasure":
        raise invalid("/extensions", "can name samples to erase only: a bundle is about a subject")
    names = list(dict.fromkeys(subjects or samples))
    if kind != "erasure" and len(names) != 1:
        raise invalid("/subject_identities", "must hold one identity that is known here: a bundle is about one subject")
    if len(names) > most:
        raise invalid("/subject_identities", f"must hold at most {most} identities")
    return Asked(
        request_id, kind, regulation, names, "subjects" if subjects else "ids", _callbacks(content, processor), body
    )


def _reply(processor: Processor, request: SubjectRequest, expected_ms: int, sent: bytes) -> bytes:
    """Return the answer to a request that was taken."""
    return orjson.dumps(
        {
            "controller_id": processor.controller,
            "expected_completion_time": to_text(expected_ms),
            "received_time": to_text(request.received_ms),
            "encoded_request": base64.b64encode(sent).decode("ascii"),
            "subject_request_id": request.id,
            "api_version": API_VERSION,
        }
    )


def _discovery(processor: Processor) -> dict[str, Any]:
    """Return what the server takes."""
    return {
        "api_version": API_VERSION,
        "supported_identities": [{"identity_type": one, "identity_format": "raw"} for one in processor.identities],
        "supported_subject_request_types": KINDS,
        "processor_certificate": f"{processor.url}/certificate",
    }


async def _signed(processor: Processor, body: bytes, status: int = 200) -> Response:
    """Return an answer that is signed; also under the names of headers that OpenGDPR had."""
    headers = dict(NO_STORE)
    for name, value in await processor.sign(body):
        headers[name] = headers[name.replace("OpenDSR", "OpenGDPR")] = value
    return Response(body, status, headers, media_type="application/json")


def _one_of(content: dict[str, Any], key: str, known: tuple[str, ...]) -> str:
    value = content.get(key)
    if not isinstance(value, str) or value not in known:
        raise invalid(pointer(key), f"must be one of {', '.join(known)}")
    return value


def _subjects(content: dict[str, Any], processor: Processor) -> list[str]:
    """Return the identities that are subjects here; those of other types are passed over."""
    sent, subjects = content.get("subject_identities", []), []
    if not isinstance(sent, list):
        raise invalid("/subject_identities", "must be a list")
    for i, one in enumerate(sent):
        if not isinstance(one, dict) or not isinstance(one.get("identity_type"), str):
            raise invalid(
                pointer("subject_identities", i), "must have 'identity_type', 'identity_value' and 'identity_format'"
            )
        if one.get("identity_format") not in _FORMATS:
            raise invalid(pointer("subject_identities", i, "identity_format"), f"must be one of {', '.join(_FORMATS)}")
        if one["identity_type"] in processor.identities and one["identity_format"] == "raw":
            value = one.get("identity_value")
            if not isinstance(value, str):
                raise invalid(pointer("subject_identities", i, "identity_value"), "must be a text")
            subjects.append(parse_name(value, pointer("subject_identities", i, "identity_value")))
    return subjects


def _samples(content: dict[str, Any], processor: Processor) -> list[str]:
    """Return the ids of samples in our extension."""
    extensions = content.get("extensions")
    if extensions is None:
        return []
    own = extensions.get(processor.signer.domain, {}) if isinstance(extensions, dict) else None
    if not isinstance(own, dict) or not set(own) <= {"sample_ids"}:
        raise invalid("/extensions", "must be an object by domain; that of this server takes 'sample_ids'")
    ids = own.get("sample_ids", [])
    if not isinstance(ids, list):
        raise invalid("/extensions", "'sample_ids' must be a list")
    return [parse_name(one, "/extensions") for one in ids]


def _callbacks(content: dict[str, Any], processor: Processor) -> list[str]:
    urls = content.get("status_callback_urls") or []
    if not isinstance(urls, list):
        raise invalid("/status_callback_urls", "must be a list")
    for i, url in enumerate(urls):
        if not isinstance(url, str) or url not in processor.callbacks:
            raise invalid(
                pointer("status_callback_urls", i),
                "is none of the callbacks that opendsr_callbacks in the settings names",
            )
    return list(dict.fromkeys(urls))
