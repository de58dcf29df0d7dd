"""The Open Inference Protocol, version 2, REST: for clients of KServe, Triton and others that speak it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from oubli.api.protocols import (
    InferenceAnswer,
    InferenceRequest,
    ModelHealth,
    ModelMetadata,
    ServerHealth,
    ServerMetadata,
)
from oubli.app.http.inference import (
    BINARY_TYPE,
    EXTENSIONS,
    HEADER_LENGTH,
    describe,
    explain_inputs,
    inference_content,
    read_inference,
)
from oubli.app.http.openapi import PATH, ROWS_INPUT, Responses, answers, body, inference_problems, parameter
from oubli.app.http.parsing import Context, context_of, read
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import NO_STORE, json_answer
from oubli.app.version import VERSION
from oubli.core.errors import InputError

router = APIRouter(tags=["inference"])
NAME = "oubli"  # of the server

_MODEL = "/v2/models/{model_name}"
_VERSION = f"{_MODEL}/versions/{{model_version}}"
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_LENGTH = parameter(
    HEADER_LENGTH,
    "Number of bytes of JSON in the body, if bytes of tensors follow.",
    {"type": "integer", "minimum": 0},
    "header",
)


@router.get("/v2", summary="The server", responses=answers(ServerMetadata) | inference_problems())
async def get_server_metadata() -> Response:
    """Return name and version of the server, and its extensions of the protocol."""
    return json_answer({"name": NAME, "version": VERSION, "extensions": EXTENSIONS})


@router.get("/v2/health/live", summary="Liveness", responses=answers(ServerHealth) | inference_problems())
async def get_server_live() -> Response:
    """Say that the process answers, also while it is busy."""
    return json_answer({"live": True})


@router.get(
    "/v2/health/ready",
    summary="Readiness",
    responses=answers(ServerHealth) | inference_problems("not-ready", "model-unusable"),
)
async def get_server_ready(request: Request) -> Response:
    """Report whether predictions are answered: after the kernels are compiled, and until a signal to stop."""
    context_of(request).require_ready()
    return json_answer({"live": True, "ready": True})  # clients look for the one or the other


def _route(
    end: str, method: str, answered: Responses, **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a route of the model, with and without a version in its path."""
    slugs = ("no-model", "no-version", "model-unusable", *options.pop("slugs", ()))
    extra = options.pop("openapi_extra", {})
    more = extra.pop("parameters", [])

    def add(endpoint: Callable[..., Any]) -> Callable[..., Any]:
        for path, name, own in (
            (_MODEL, endpoint.__name__, [PATH["model"]]),
            (_VERSION, f"{endpoint.__name__}_of_version", [PATH["model"], PATH["version"]]),
        ):
            router.add_api_route(
                path + end,
                endpoint,
                methods=[method],
                name=name,
                responses=answered | inference_problems(*slugs),
                openapi_extra={**extra, "parameters": [*own, *more]},
                **options,
            )
        return endpoint

    return add


@_route("", "GET", answers(ModelMetadata), summary="The model's tensors")
async def get_model_metadata(request: Request) -> Response:
    """Return the model's current version, and its input and output tensors."""
    context = _asked(request)
    known = context.service.describe()
    version = str(known["model_version"])
    content = {"name": context.model_name, "versions": [version], "platform": f"{NAME}_{known['kind']}"}
    return json_answer({**content, **describe(context.service.model.state.model.schema_)})


@_route("/ready", "GET", answers(ModelHealth), summary="Readiness of the model")
async def get_model_ready(request: Request) -> Response:
    """Report whether the model answers predictions."""
    context = _asked(request)
    context.require_ready()
    return json_answer({"name": context.model_name, "ready": True})


@_route(
    "/infer",
    "POST",
    answers(
        InferenceAnswer,
        content={BINARY_TYPE: _BYTES},
        headers={HEADER_LENGTH: {"description": "How many bytes are JSON.", "schema": {"type": "string"}}},
    ),
    summary="Predict",
    slugs=(*ROWS_INPUT, "empty-model", "behind"),
    openapi_extra={"parameters": [_LENGTH], **body(InferenceRequest, {BINARY_TYPE: _BYTES})},
)
async def infer(request: Request) -> Response:
    """Predict for some rows with the current model, which includes every change that was answered before.

    Tensors are JSON, or with the binary tensor extension bytes after the JSON. The content type of the body is ignored.
    """
    context = _asked(request)
    service, reader = context.service, context.reader()
    lengths = request.headers.getlist(HEADER_LENGTH)
    make = partial(read_inference, header_lengths=lengths, schema=reader.schema, max_rows=reader.max_rows)
    asked = await read(make, await request.body())
    if asked.min_version is not None and asked.min_version > service.model.state.version:
        await service.lifecycle.reach(asked.min_version)
    if asked.min_version is not None and asked.min_version > service.model.state.version:
        raise ProblemError("behind")
    try:
        predicted = await service.questions.predict(asked.rows)
    except InputError as error:
        raise explain_inputs(error, asked, reader.schema) from None
    _require_version(request, predicted.model_version)
    content, length = inference_content(asked, predicted, reader.schema, context.model_name)
    if length is None:
        return Response(content, 200, NO_STORE, media_type="application/json")
    return Response(content, 200, {**NO_STORE, HEADER_LENGTH: str(length)}, media_type=BINARY_TYPE)


def _asked(request: Request) -> Context:
    """Return the context, after a look at which model and which version the path names."""
    context = context_of(request)
    if request.path_params["model_name"] != context.model_name:
        raise ProblemError("no-model", f"The model of this server is named '{context.model_name}'.")
    _require_version(request, context.service.model.state.version)
    return context


def _require_version(request: Request, present: int) -> None:
    if request.path_params.get("model_version", str(present)) != str(present):
        detail = f"The server has version {present} of the model: ask for that one, or without a version."
        raise ProblemError("no-version", detail)
