"""The OpenAPI document: what FastAPI knows of the routes, and what routes that parse by themselves do not tell it."""

import math
import warnings
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from oubli.app.access.scopes import SCOPES, needed_scopes
from oubli.app.http.auth import is_open
from oubli.app.http.inference import describe
from oubli.app.http.openapi import DEFAULT_PAGE, REF
from oubli.app.http.schemas.erasures import BatchDeleteRequest
from oubli.app.http.schemas.inference import InferenceError, InferenceRequest
from oubli.app.http.schemas.inspection import MetricsEvent, StateEvent, WithoutRequest
from oubli.app.http.schemas.model import FitRequest
from oubli.app.http.schemas.opendsr import OpendsrError, OpendsrRequest
from oubli.app.http.schemas.predictions import InfluenceRequest, PredictRequest
from oubli.app.http.schemas.samples import AbsenceRequest, AddRequest, ReplaceRequest, SearchRequest
from oubli.app.http.schemas.shapes import Problem
from oubli.app.http.schemas.subjects import ExportRequest, ReleaseRequest, RestrictRequest, RetainRequest
from oubli.core.data.schema import Schema
from oubli.core.data.values import ColumnType, LabelType

# FastAPI collects answers; these it does not see.
_COLLECTED: tuple[Any, ...] = (
    AddRequest,
    BatchDeleteRequest,
    ExportRequest,
    FitRequest,
    InferenceError,
    InferenceRequest,
    InfluenceRequest,
    OpendsrError,
    OpendsrRequest,
    PredictRequest,
    Problem,
    ReleaseRequest,
    ReplaceRequest,
    RestrictRequest,
    RetainRequest,
    AbsenceRequest,
    SearchRequest,
    WithoutRequest,
    StateEvent,
    MetricsEvent,
)

SECURITY_SCHEMES: dict[str, dict[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, as `oubli keys create` makes them."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key, in this header."},
}
_REQUEST_ID = "RequestId"
REQUEST_ID: dict[str, Any] = {
    "name": "X-Request-ID",
    "in": "header",
    "required": False,
    "description": "Names the request in the answer, the log and traces. Taken when it is 1 to 64 letters, digits, "
    "dots, underscores and hyphens; otherwise the server makes one. It appears in the log, and is kept with the "
    "samples that the request adds: put nothing personal into it.",
    "schema": {"type": "string"},
}
REQUEST_ID_OF_ANSWER: dict[str, Any] = {
    "description": "The request's `X-Request-ID`, or one that the server has made.",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
}
_EXAMPLE_CELLS = {ColumnType.NUMERIC: 1, ColumnType.CATEGORICAL: "text", ColumnType.BOOLEAN: True}
_EXAMPLE_ELEMENTS = {"BYTES": "text", "BOOL": True}
_EXAMPLE_LABELS = {
    LabelType.STRING: "text",
    LabelType.INTEGER: 1,
    LabelType.NUMBER: 1.5,
    LabelType.BOOLEAN: True,
    LabelType.SCALAR: 1,
}


def document(
    app: FastAPI, schema: Schema | None, *, asks_for_key: bool, page_size_max: int, model_name: str = "oubli"
) -> dict[str, Any]:
    """Return the OpenAPI document of an application.

    Parameters
    ----------
    app
        Has the routes.
    schema
        Of the model that is served, for examples of bodies; None: there are none.
    asks_for_key
        Whether requests need a key.
    page_size_max
        Most entries of one page.
    model_name
        Of the model, in the Open Inference Protocol.
    """
    with warnings.catch_warnings(action="ignore"):  # HEAD has the operation id of its GET, and is left out below
        content = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = content["components"]
    schemas = components["schemas"]
    inputs: list[tuple[Any, JsonSchemaMode, TypeAdapter[Any]]] = [
        (shape, "validation", TypeAdapter(shape)) for shape in _COLLECTED
    ]
    schemas.update(TypeAdapter.json_schemas(inputs, ref_template=REF)[1]["$defs"])
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = SECURITY_SCHEMES
    examples = {} if schema is None else _examples(schema)
    components["parameters"] = {_REQUEST_ID: REQUEST_ID}
    components["headers"] = {_REQUEST_ID: REQUEST_ID_OF_ANSWER}
    limits = schemas["SearchSubjectRequest"]["properties"]["limit"]["anyOf"]
    limits[0]["maximum"] = page_size_max
    for path, operations in content["paths"].items():
        operations.pop("head", None)
        for method, operation in operations.items():
            if operation["operationId"] in examples:
                operation["requestBody"]["content"]["application/json"]["example"] = examples[operation["operationId"]]
            operation["responses"] = dict(sorted(operation["responses"].items()))
            operation["security"] = _security(method.upper(), path, asks_for_key)
            if is_open(path):
                operation["responses"].pop("401", None)
                operation["responses"].pop("403", None)
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "model_name":
                    parameter["schema"] = {**parameter["schema"], "enum": [model_name]}
                if parameter["name"] == "limit":
                    default = min(DEFAULT_PAGE, page_size_max)
                    parameter["schema"] = {**parameter["schema"], "maximum": page_size_max, "default": default}
            # Lists and headers may be those that routes share: they are not changed.
            named = {"$ref": f"#/components/parameters/{_REQUEST_ID}"}
            operation["parameters"] = [*operation.get("parameters", ()), named]
            for answer in operation["responses"].values():
                header = {"$ref": f"#/components/headers/{_REQUEST_ID}"}
                answer["headers"] = {**answer.get("headers", {}), "X-Request-ID": header}
    return content


def _examples(schema: Schema) -> dict[str, Any]:
    """Return a body that the model of a schema takes, by operation; its values are made up by their types."""
    cells = [_EXAMPLE_CELLS[column.type] for column in schema.columns]
    features: Any = dict(zip(schema.names, cells, strict=True)) if schema.named else cells
    content = {"features": features, "label": _EXAMPLE_LABELS[schema.label_type]}
    return {
        "predict": {"instances": [features]},
        "infer": {"inputs": [_example_tensor(one) for one in describe(schema)["inputs"]]},
        "rank_influence": {"instances": [features], "top": 3},
        "add_samples": {"samples": [{"id": "example", **content}]},
        "replace_sample": content,
        "replace_sample_by_id": content,
    }


def _example_tensor(told: dict[str, Any]) -> dict[str, Any]:
    """Return a tensor of one row, as the metadata of the model describe it."""
    shape = [1, *told["shape"][1:]]
    return {**told, "shape": shape, "data": [_EXAMPLE_ELEMENTS.get(told["datatype"], 1)] * math.prod(shape)}


def _security(method: str, path: str, asks_for_key: bool) -> list[dict[str, list[str]]]:
    """Return what a request may identify itself with: one of the schemes, with one of the scopes as its role."""
    if is_open(path):
        return []
    needed = needed_scopes(method, path)
    roles = [[scope] for scope in SCOPES if scope in needed] or [[]]
    schemes = [{name: role} for role in roles for name in SECURITY_SCHEMES]
    return schemes if asks_for_key else [*schemes, {}]
