"""The Open Inference Protocol, version 2, REST: for clients of KServe, Triton and others that speak it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import Context, context_of
from oubli.app.http.inference import (
    BINARY_TYPE,
    EXTENSIONS,
    HEADER_LENGTH,
    describe,
    explain_inputs,
    inference_content,
    read_inference,
)
from oubli.app.http.openapi import PATH, body, inference_problems, parameter
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import NO_STORE, json_answer
from oubli.app.http.schemas.inference import (
    InferenceAnswer,
    InferenceRequest,
    ModelHealth,
    ModelMetadata,
    ServerHealth,
    ServerMetadata,
)
from oubli.app.version import VERSION
from oubli.core.errors import InputError

router = APIRouter(tags=["inference"])
NAME = "oubli"  # of the server

_MODEL = "/v2/models/{model_name}"
_VERSION = f"{_MODEL}/versions/{{model_version}}"
_BYTES = {"schema": {"type": "string", "format": "binary"}}
_LENGTH = parameter(
    HEADER_LENGTH,
    "How many bytes of the body are JSON, when bytes of tensors are behind it.",
    {"type": "integer", "minimum": 0},
    "header",
)


@router.get("/v2", summary="The server", response_model=ServerMetadata, responses=inference_problems())
async def get_server_metadata() -> Response:
    """Return name and version of the server, and the extensions of the protocol that it has."""
    return json_answer({"name": NAME, "version": VERSION, "extensions": EXTENSIONS})


@router.get("/v2/health/live", summary="Liveness", response_model=ServerHealth, responses=inference_problems())
async def get_server_live() -> Response:
    """Say that the process answers, whatever it is busy with."""
    return json_answer({"live": True})


@router.get(
    "/v2/health/ready",
    summary="Readiness",
    response_model=ServerHealth,
    responses=inference_problems("not-ready", "model-unusable"),
)
async def get_server_ready(request: Request) -> Response:
    """Say whether predictions are answered: not before the kernels are compiled, and not after a signal to stop."""
    context_of(request).require_ready()
    return json_answer({"live": True, "ready": True})  # clients look for the one or the other


def _route(end: str, method: str, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
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
                responses={**inference_problems(*slugs), **options.get("answers", {})},
                openapi_extra={**extra, "parameters": [*own, *more]},
                **{key: value for key, value in options.items() if key != "answers"},
            )
        return endpoint

    return add


@_route("", "GET", summary="The model's tensors", response_model=ModelMetadata)
async def get_model_metadata(request: Request) -> Response:
    """Return the model's present version, and the tensors that it takes and answers with."""
    context = _asked(request)
    known = context.service.describe()
    version = str(known["model_version"])
    content = {"name": context.model_name, "versions": [version], "platform": f"{NAME}_{known['kind']}"}
    return json_answer({**content, **describe(context.service.state.model.schema_)})


@_route("/ready", "GET", summary="Readiness of the model", response_model=ModelHealth)
async def get_model_ready(request: Request) -> Response:
    """Say whether the model answers predictions."""
    context = _asked(request)
    context.require_ready()
    return json_answer({"name": context.model_name, "ready": True})


@_route(
    "/infer",
    "POST",
    summary="Predict",
    response_model=InferenceAnswer,
    slugs=(
        "broken-json",
        "empty-model",
        "body-too-large",
        "too-many-rows",
        "invalid-input",
        "queue-full",
        "behind",
    ),
    answers={
        200: {
            "headers": {HEADER_LENGTH: {"description": "How many bytes are JSON.", "schema": {"type": "string"}}},
            "content": {BINARY_TYPE: _BYTES},
        }
    },
    openapi_extra={"parameters": [_LENGTH], **body(InferenceRequest, {BINARY_TYPE: _BYTES})},
)
async def infer(request: Request) -> Response:
    """Predict for some rows, with the model as it is now: every change answered before is in it.

    Tensors are JSON, or with the binary tensor extension bytes behind the JSON; the type of the body is not looked at.
    """
    context = _asked(request)
    service, reader = context.service, context.reader()
    lengths = request.headers.getlist(HEADER_LENGTH)
    asked = read_inference(await request.body(), lengths, reader.schema, reader.max_rows)
    if asked.min_version is not None and asked.min_version > service.state.version:
        await service.reach(asked.min_version)
    if asked.min_version is not None and asked.min_version > service.state.version:
        raise ProblemError("behind")
    try:
        predicted = await service.predict(asked.rows)
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
    _require_version(request, context.service.state.version)
    return context


def _require_version(request: Request, present: int) -> None:
    if request.path_params.get("model_version", str(present)) != str(present):
        detail = f"The server has version {present} of the model: ask for that one, or without a version."
        raise ProblemError("no-version", detail)
