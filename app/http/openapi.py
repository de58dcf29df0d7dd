"""The OpenAPI document: what FastAPI knows of the routes, and what routes that parse by themselves do not tell it."""

import warnings
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from oubli.app.access.scopes import SCOPES, needed_scopes
from oubli.app.http.auth import OPEN_PATHS
from oubli.app.http.problems import KINDS, MEDIA_TYPE, ProblemError
from oubli.app.http.schemas import (
    AddRequest,
    BatchDeleteRequest,
    FitRequest,
    InfluenceRequest,
    PredictRequest,
    Problem,
    ReplaceRequest,
    SearchRequest,
)
from oubli.core.data.schema import Schema
from oubli.core.data.values import ColumnType, LabelType

Responses = dict[int | str, dict[str, Any]]

# Any route can answer these.
EVERYWHERE = (
    "bad-host",
    "key-needed",
    "scope-needed",
    "too-slow",
    "unknown-host",
    "head-too-large",
    "not-ready",
    "too-many-connections",
    "internal-error",
)
_WITH_ORIGIN = ("foreign-origin", "not-json")
_REF = "#/components/schemas/{model}"
# FastAPI collects answers; these it does not see.
_COLLECTED: tuple[Any, ...] = (
    AddRequest,
    BatchDeleteRequest,
    FitRequest,
    InfluenceRequest,
    PredictRequest,
    Problem,
    ReplaceRequest,
    SearchRequest,
)

SECURITY_SCHEMES: dict[str, dict[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, as `oubli keys create` makes them."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key, in this header."},
}
DEFAULT_PAGE = 100


def ref_to(shape: Any) -> dict[str, str]:
    """Return the schema that refers to a shape."""
    return {"$ref": _REF.format(model=shape.__name__)}


def problems(*slugs: str) -> Responses:
    """Return the error answers of a route, each with an example, for its `responses`."""
    named = (*slugs, *EVERYWHERE)
    if "broken-json" in slugs:
        named = (*named, *_WITH_ORIGIN)
    responses: Responses = {}
    for slug in sorted(dict.fromkeys(named), key=lambda slug: KINDS[slug].status):
        kind = KINDS[slug]
        problem = ProblemError(slug, errors=kind.example)
        answer = responses.setdefault(
            kind.status, {"description": "", "content": {MEDIA_TYPE: {"schema": ref_to(Problem), "examples": {}}}}
        )
        answer["description"] = " / ".join(filter(None, (answer["description"], kind.title)))
        answer["content"][MEDIA_TYPE]["examples"][slug] = {"summary": kind.title, "value": problem.content()}
        if kind.headers:
            answer["headers"] = {name: {"schema": {"type": "string"}} for name in kind.headers}
    return responses


def body(shape: Any, *, required: bool = True) -> dict[str, Any]:
    """Return the request body of a route that parses it itself."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": ref_to(shape)}}}}


def parameter(name: str, description: str, schema: dict[str, Any], place: str = "query") -> dict[str, Any]:
    """Return the description of a parameter; those in a path are required."""
    return {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}


_TEXT = {"type": "string", "minLength": 1, "maxLength": 256}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1}
_UUID = {"type": "string", "format": "uuid"}
PATH: dict[str, dict[str, Any]] = {
    "sample": parameter(
        "id",
        "The sample's id, percent-encoded; any text, slashes included. The names of other routes of this folder "
        "(`search`, `batch-delete`) are no ids here: write `/samples?id=search`.",
        _TEXT,
        "path",
    ),
    "erasure": parameter("id", "The receipt's id.", _UUID, "path"),
    "job": parameter("id", "The job's id.", _UUID, "path"),
    "ranking": parameter("id", "`influence` in the job's result.", _UUID, "path"),
}
QUERY: dict[str, dict[str, Any]] = {
    "id": parameter("id", "The one sample to list; without `subject` and `cursor`.", _TEXT),
    "replaced": {**parameter("id", "The sample to replace.", _TEXT), "required": True},
    "subject": parameter("subject", "Whose samples to list.", _TEXT),
    "cursor": parameter(
        "cursor",
        "`next` of the page before, as it is. It is refused (422) when a restore has replaced the list meanwhile.",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]{22}$"},
    ),
    "index": parameter("cursor", "`next` of the page before.", {"type": "string", "pattern": "^[0-9]{1,15}$"}),
    "limit": parameter("limit", "Most entries on a page.", {"type": "integer", "minimum": 1, "default": DEFAULT_PAGE}),
    "format": parameter("format", "Instead of the `Accept` header.", {"type": "string", "enum": ["json", "csv"]}),
    "ids": parameter("id", "Samples to delete; may be repeated. Either this or `subject`.", _TEXTS),
    "subjects": parameter("subject", "Subjects to delete; may be repeated. Either this or `id`.", _TEXTS),
    "ref": parameter("ref", "The caller's case number.", _UUID),
}
KEY_HEADER = "Idempotency-Key"
IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": KEY_HEADER,
    "in": "header",
    "required": False,
    "description": "A repeated request with this key and the same body gets the answer of the first, and changes "
    "nothing. Kept for a day, as a keyed hash.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
FILE: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
FILE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": FILE}}
CSV: dict[str, Any] = {"text/csv": {"schema": {"type": "string"}}}
_EXAMPLE_CELLS = {ColumnType.NUMERIC: 1, ColumnType.CATEGORICAL: "text", ColumnType.BOOLEAN: True}
_EXAMPLE_LABELS = {
    LabelType.STRING: "text",
    LabelType.INTEGER: 1,
    LabelType.NUMBER: 1.5,
    LabelType.BOOLEAN: True,
    LabelType.SCALAR: 1,
}


def document(app: FastAPI, schema: Schema | None, *, asks_for_key: bool, page_size_max: int) -> dict[str, Any]:
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
    """
    with warnings.catch_warnings(action="ignore"):  # HEAD has the operation id of its GET, and is left out below
        content = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = content["components"]
    schemas = components["schemas"]
    inputs: list[tuple[Any, JsonSchemaMode, TypeAdapter[Any]]] = [
        (shape, "validation", TypeAdapter(shape)) for shape in _COLLECTED
    ]
    schemas.update(TypeAdapter.json_schemas(inputs, ref_template=_REF)[1]["$defs"])
    components["schemas"] = dict(sorted(schemas.items()))
    components["securitySchemes"] = SECURITY_SCHEMES
    examples = {} if schema is None else _examples(schema)
    limits = schemas["SearchRequest"]["properties"]["limit"]["anyOf"]
    limits[0]["maximum"] = page_size_max
    for path, operations in content["paths"].items():
        operations.pop("head", None)
        for method, operation in operations.items():
            if operation["operationId"] in examples:
                operation["requestBody"]["content"]["application/json"]["example"] = examples[operation["operationId"]]
            operation["responses"] = dict(sorted(operation["responses"].items()))
            operation["security"] = _security(method.upper(), path, asks_for_key)
            if path in OPEN_PATHS:
                operation["responses"].pop("401", None)
                operation["responses"].pop("403", None)
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "limit":
                    default = min(DEFAULT_PAGE, page_size_max)
                    parameter["schema"] = {**parameter["schema"], "maximum": page_size_max, "default": default}
    return content


def _examples(schema: Schema) -> dict[str, Any]:
    """Return a body that the model of a schema takes, by operation; its values are made up by their types."""
    cells = [_EXAMPLE_CELLS[column.type] for column in schema.columns]
    features: Any = dict(zip(schema.names, cells, strict=True)) if schema.named else cells
    content = {"features": features, "label": _EXAMPLE_LABELS[schema.label_type]}
    return {
        "predict": {"instances": [features]},
        "rank_influence": {"instances": [features], "top": 3},
        "add_samples": {"samples": [{"id": "example", **content}]},
        "replace_sample": content,
        "replace_sample_by_id": content,
    }


def _security(method: str, path: str, asks_for_key: bool) -> list[dict[str, list[str]]]:
    """Return what a request may identify itself with: one of the schemes, with one of the scopes as its role."""
    if path in OPEN_PATHS:
        return []
    needed = needed_scopes(method, path)
    roles = [[scope] for scope in SCOPES if scope in needed] or [[]]
    schemes = [{name: role} for role in roles for name in SECURITY_SCHEMES]
    return schemes if asks_for_key else [*schemes, {}]
