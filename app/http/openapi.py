"""The OpenAPI documents: what routes say of their parameters, bodies, answers and errors, and how it is put together.

FastAPI collects the routes. Messages come from `oubli.api`, and each error is a component that operations refer to. The
main document has what most clients need; protocols of others, proofs and the cluster have documents of their own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode
from starlette.routing import BaseRoute, Route
from typing_extensions import TypeAliasType

from oubli.api import base, erasures, ledger, model, predictions, protocols, samples, server
from oubli.api.base import Message, Problem
from oubli.api.protocols import InferenceError, OpendsrError
from oubli.app.access.scopes import SCOPES, needed_scopes
from oubli.app.http.auth import is_open
from oubli.app.http.formats import Format
from oubli.app.http.inference import describe
from oubli.app.http.parsing import KEY_HEADER
from oubli.app.http.problems import KINDS, MEDIA_TYPE, Kind, ProblemError, opendsr_status
from oubli.core.data.schema import COLUMN_RULES, Schema
from oubli.core.data.values import ColumnType, LabelType
from oubli.core.registry import PLACES

Responses = dict[int | str, dict[str, Any]]

# Any route can answer these.
EVERYWHERE = (
    "bad-host",
    "key-needed",
    "scope-needed",
    "foreign-origin",
    "too-slow",
    "unknown-host",
    "head-too-large",
    "not-ready",
    "behind",
    "not-leader",
    "too-many-connections",
    "internal-error",
)
# What most routes with a JSON body can answer, and what each change can.
INPUT = ("broken-json", "body-too-large", "invalid-input")
ROWS_INPUT = (*INPUT, "too-many-rows", "queue-full")
TABLE_INPUT = (*ROWS_INPUT, "broken-records", "record-too-large")
CHANGE = ("changes-stopped", "storage")
_WITH_BODY = ("not-json", "unsupported-encoding", "broken-encoding", "too-many-frames", "out-of-memory")


class _Family(NamedTuple):
    """A form that errors are written in.

    Attributes
    ----------
    media_type, message, content
        How an error is written.
    status
        Of a kind of problem.
    with_body
        Kinds that every route with a JSON body can answer.
    examples
        What is wrong with the input in an example, where it is not what the kind says.
    """

    media_type: str
    message: Any
    content: Callable[[ProblemError], dict[str, Any]]
    status: Callable[[Kind], int] = lambda kind: kind.status
    with_body: tuple[str, ...] = _WITH_BODY
    examples: Mapping[str, Any] = {}


_FAMILIES = {
    "": _Family(MEDIA_TYPE, Problem, ProblemError.content),
    "inference-": _Family(
        "application/json",
        InferenceError,
        ProblemError.inference_content,
        with_body=tuple(slug for slug in _WITH_BODY if slug != "not-json"),
        examples={"invalid-input": (("/inputs/0/shape", "must have at least one row"),)},
    ),
    "opendsr-": _Family("application/json", OpendsrError, ProblemError.opendsr_content, opendsr_status),
}
_BODY = "body"  # in the name of a component, in place of the kinds of `with_body`
_COMPONENTS = "#/components/"
REF = "#/components/schemas/{model}"
DEFAULT_PAGE = 100


def ref_to(message: Any) -> dict[str, str]:
    """Return the schema that refers to a message."""
    return {"$ref": REF.format(model=message.__name__)}


def answers(message: Any, status: int = 200, description: str = "", **more: dict[str, Any]) -> Responses:
    """Return the answer of a route, for its `responses`; `more` has headers, and content of other types than JSON."""
    content = {"application/json": {"schema": ref_to(message)}, **more.pop("content", {})}
    return {status: {"description": description or "Successful Response", "content": content, **more}}


def problems(*slugs: str, family: str = "") -> Responses:
    """Return the errors of a route, for its `responses`: by status a reference to what `_error` makes."""
    if "changes-stopped" in slugs:
        slugs = (*slugs, "journal-unreachable")
    status, with_body = _FAMILIES[family].status, _FAMILIES[family].with_body
    found: dict[int, list[str]] = {status(KINDS[slug]): [] for slug in EVERYWHERE}
    for slug in slugs:
        found.setdefault(status(KINDS[slug]), []).append(slug)
    for code in {status(KINDS[slug]) for slug in with_body} if "broken-json" in slugs else ():
        found.setdefault(code, []).append(_BODY)
    return {
        code: {"$ref": f"{_COMPONENTS}responses/{family}{'.'.join((str(code), *sorted(named)))}"}
        for code, named in sorted(found.items())
    }


inference_problems = partial(problems, family="inference-")
opendsr_problems = partial(problems, family="opendsr-")


def _error(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the component of an error by its name, and its examples by their names."""
    prefix = next(one for one in reversed(_FAMILIES) if name.startswith(one))
    family = _FAMILIES[prefix]
    code, *named = name.removeprefix(prefix).split(".")
    slugs = [slug for slug in named if slug != _BODY]
    shared = (*(family.with_body if _BODY in named else ()), *EVERYWHERE)
    slugs += [slug for slug in shared if str(family.status(KINDS[slug])) == code and slug not in slugs]
    examples: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    for slug in slugs:
        problem = ProblemError(slug, errors=family.examples.get(slug, KINDS[slug].example))
        examples[prefix + slug] = {"summary": problem.kind.title, "value": family.content(problem)}
        headers |= {header: {"schema": {"type": "string"}} for header in problem.kind.headers}
    shown = {slug: {"$ref": f"{_COMPONENTS}examples/{prefix}{slug}"} for slug in slugs}
    error = {
        "description": " / ".join(KINDS[slug].title for slug in slugs),
        "content": {family.media_type: {"schema": ref_to(family.message), "examples": shown}},
        "headers": headers | _NAMED_ANSWER,
    }
    return error, examples


def body(message: Any, others: dict[str, Any] | None = None, *, required: bool = True) -> dict[str, Any]:
    """Return the request body of a route that parses it itself; `others` are bodies of other types."""
    content = {"application/json": {"schema": ref_to(message)}, **(others or {})}
    return {"requestBody": {"required": required, "content": content}}


def table_body(message: Any) -> dict[str, Any]:
    """Return the request body of a route that takes tables as well, in the formats of `TABLES`."""
    described = body(message)
    described["requestBody"]["content"].update(TABLES)
    return described


def events_of(*messages: Any) -> dict[str, Any]:
    """Return the answer of a route that sends server-sent events; their data are one of the messages."""
    content = {"oneOf": [ref_to(message) for message in messages]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": content}
    event = {"event": {"type": "string"}, "id": {"type": "string"}, "data": data}
    return {"content": {"text/event-stream": {"itemSchema": {"type": "object", "properties": event}}}}


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
        "(`search`, `batch-delete`, `absence-proofs`) are not ids here: use `/samples?id=search`.",
        _TEXT,
        "path",
    ),
    "erasure": parameter("id", "The receipt's id.", _UUID, "path"),
    "letter": parameter("id", "`id` of the dead letter: the id of the receipt or request.", _UUID, "path"),
    "request": parameter("id", "`subject_request_id` of the request.", _UUID, "path"),
    "job": parameter("id", "The job's id.", _UUID, "path"),
    "member": parameter("name", "`name` of the node.", _TEXT, "path"),
    "index": parameter("index", "`index` of the entry.", {"type": "integer", "minimum": 1}, "path"),
    "level": parameter("level", "Level of the tile.", {"type": "integer", "minimum": 0, "maximum": 9}, "path"),
    "tile": parameter(
        "number",
        "Number of the tile in three digits each, such as `x001/x234/067`; with `.p/{width}` for an incomplete one.",
        {"type": "string"},
        "path",
    ),
    "tree": parameter("n", "The tree's number, from 0.", {"type": "integer", "minimum": 0}, "path"),
    "model": parameter("model_name", "The model's name: `model_name` in the settings.", {"type": "string"}, "path"),
    "version": parameter(
        "model_version",
        "The model's current version; another one gets 404, with the current version.",
        {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "path",
    ),
}
QUERY: dict[str, dict[str, Any]] = {
    "id": parameter("id", "The one sample to list; without `subject` and `cursor`.", _TEXT),
    "node": parameter(
        "node", "The path to the node from the root: `l` and `r`.", {"type": "string", "pattern": "^[lr]{0,512}$"}
    ),
    "levels": parameter(
        "levels", "Levels below the node.", {"type": "integer", "minimum": 0, "maximum": 8, "default": 3}
    ),
    "replaced": {**parameter("id", "The sample to replace.", _TEXT), "required": True},
    "subject": parameter("subject", "The subject whose samples to list.", _TEXT),
    "cursor": parameter(
        "cursor",
        "`next` of the page before, as it is. It is refused (422) when a restore has replaced the list.",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]{22}$"},
    ),
    "from": {
        **parameter("from", "Size of the log in an earlier checkpoint.", {"type": "integer", "minimum": 0}),
        "required": True,
    },
    "to": parameter("to", "Size of the later log; by default the published one.", {"type": "integer", "minimum": 0}),
    "index": parameter("cursor", "`next` of the page before.", {"type": "string", "pattern": "^[0-9]{1,15}$"}),
    "limit": parameter(
        "limit", "Maximum number of entries on a page.", {"type": "integer", "minimum": 1, "default": DEFAULT_PAGE}
    ),
    "format": parameter(
        "format", "Use this instead of the `Accept` header.", {"type": "string", "enum": ["json", "csv"]}
    ),
    "openings": parameter(
        "openings", "Whether to include nonces; needs the scope `audit`.", {"type": "boolean", "default": False}
    ),
    "score": parameter(
        "score", "Whether to say how well unlearned samples are predicted.", {"type": "boolean", "default": False}
    ),
    "trees": parameter("trees", "Whether to compute the digests of the trees.", {"type": "boolean", "default": False}),
    "fresh": parameter("fresh", "Whether to write a snapshot first.", {"type": "boolean", "default": False}),
    "ids": parameter("id", "Samples to delete; may be repeated. Either this or `subject`.", _TEXTS),
    "subjects": parameter("subject", "Subjects to delete; may be repeated. Either this or `id`.", _TEXTS),
    "ref": parameter("ref", "The caller's case number.", _UUID),
    "status": parameter(
        "status",
        "`unlearned`: not erased yet; `overdue`: not erased and past the deadline; `erased`.",
        {"type": "string", "enum": ["unlearned", "erased", "overdue"]},
    ),
    "order": parameter(
        "order", "Which receipts come first.", {"type": "string", "enum": ["oldest", "newest"], "default": "oldest"}
    ),
}
_RULES = {
    "extra_columns": "Whether named features that the model does not have are ignored; by default as its schema says.",
    "missing_columns": "Whether features that are not named are missing values; by default as the schema says.",
}
COLUMNS = [parameter(name, text, {"type": "string", "enum": [*COLUMN_RULES[name]]}) for name, text in _RULES.items()]
IDEMPOTENCY_KEY: dict[str, Any] = {
    "name": KEY_HEADER,
    "in": "header",
    "required": False,
    "description": "A repeated request with this key and the same body gets the answer of the first, and changes "
    "nothing. The server stores a keyed hash of it for a day. When a sample or subject of the first request is erased, "
    "the key is spent: every body with it is refused (409 `key-spent`).",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_TAG = {"type": "string"}
IF_MATCH = parameter("If-Match", "`ETag` of the sample as you have read it: otherwise nothing is done.", _TAG, "header")
IF_NONE_MATCH = parameter(
    "If-None-Match", "`ETag` of the sample that you have: if it is still so, 304.", _TAG, "header"
)
LAST_EVENT_ID: dict[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "`id` of the last event before the stream was cut; `hello` says whether you missed anything.",
    "schema": {"type": "string"},
}
# Generators of clients know bytes; what a table holds depends on the model that is served.
TABLES: dict[str, Any] = {
    str(one): {"schema": {"type": "string", "format": "binary"}} for one in Format if one is not Format.JSON
}
FILE: dict[str, Any] = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
FILE_BODY: dict[str, Any] = {"requestBody": {"required": True, "content": FILE}}
TEXT: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
CSV: dict[str, Any] = {"text/csv": {"schema": {"type": "string"}}}
ETAG: dict[str, Any] = {
    "ETag": {"description": "Random; changes with the sample, but not with `model_version`.", "schema": _TAG}
}
NOT_MODIFIED: Responses = {304: {"description": "The sample is as in `If-None-Match`.", "headers": ETAG}}
NEXT_CURSOR: dict[str, Any] = {
    "Next-Cursor": {"description": "With CSV: `next`; left out on the last page.", "schema": {"type": "string"}}
}


SECURITY_SCHEMES: dict[str, dict[str, str]] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key, as `oubli keys create` makes them."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same key, in this header."},
}
_REQUEST_ID = "RequestId"
REQUEST_ID: dict[str, Any] = {
    "name": "X-Request-ID",
    "in": "header",
    "required": False,
    "description": "Names the request in the answer, the log and traces: 1 to 64 letters, digits, dots, underscores "
    "and hyphens. Otherwise the server chooses one. It appears in the log, and is stored with the samples of the "
    "request: put no personal data into it.",
    "schema": {"type": "string"},
}
REQUEST_ID_OF_ANSWER: dict[str, Any] = {
    "description": "The `X-Request-ID` of the request, or one from the server.",
    "required": True,
    "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
}
_NAMED_REQUEST = {"$ref": f"{_COMPONENTS}parameters/{_REQUEST_ID}"}
_NAMED_ANSWER = {"X-Request-ID": {"$ref": f"{_COMPONENTS}headers/{_REQUEST_ID}"}}
_EXAMPLE_CELLS = {ColumnType.NUMERIC: 1, ColumnType.CATEGORICAL: "text", ColumnType.BOOLEAN: True}
_EXAMPLE_ELEMENTS = {"BYTES": "text", "BOOL": True}
_EXAMPLE_LABELS = {
    LabelType.STRING: "text",
    LabelType.INTEGER: 1,
    LabelType.NUMBER: 1.5,
    LabelType.BOOLEAN: True,
    LabelType.SCALAR: 1,
}


class Part(NamedTuple):
    """A document apart from the main one: its title, and the tag of its routes."""

    title: str
    tag: str


# The main document, which has no name, has the routes that no other has.
PARTS = {
    "inference": Part("Open Inference Protocol (V2)", "inference"),
    "opendsr": Part("OpenDSR", "opendsr"),
    "proofs": Part("Proofs and the log", "log"),
    "cluster": Part("Nodes of a cluster", "cluster"),
}
MAIN = ""


def documents(
    app: FastAPI, schema: Schema | None, *, asks_for_key: bool, page_size_max: int, model_name: str = "oubli"
) -> dict[str, dict[str, Any]]:
    """Return the OpenAPI documents of an application, by the names of `PARTS` and `MAIN`.

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
    examples = {} if schema is None else _examples(schema)
    limit = {"maximum": page_size_max, "default": min(DEFAULT_PAGE, page_size_max)}
    changed = {"model_name": {"enum": [model_name]}, "limit": limit}
    for path, operations in content["paths"].items():
        operations.pop("head", None)
        for method, operation in operations.items():
            if operation["operationId"] in examples:
                operation["requestBody"]["content"]["application/json"]["example"] = examples[operation["operationId"]]
            operation["security"] = _security(method.upper(), path, asks_for_key)
            closed = ("401", "403") if is_open(path) else ()
            operation["responses"] = {
                status: answer if "$ref" in answer else {**answer, "headers": answer.get("headers", {}) | _NAMED_ANSWER}
                for status, answer in sorted(operation["responses"].items())
                if status not in closed
            }
            # Routes share their parameters: none is changed in its place.
            operation["parameters"] = [
                {**one, "schema": one["schema"] | changed.get(one["name"], {})}
                for one in operation.get("parameters", ())
            ] + [_NAMED_REQUEST]
    components = {
        "schemas": _schemas(page_size_max),
        "securitySchemes": SECURITY_SCHEMES,
        "parameters": {_REQUEST_ID: REQUEST_ID},
        "headers": {_REQUEST_ID: REQUEST_ID_OF_ANSWER},
    }
    return {name: _part(content, components, name) for name in (MAIN, *PARTS)}


_MESSAGES: list[Any] = [
    message
    for module in (base, erasures, ledger, model, predictions, protocols, samples, server)
    for message in vars(module).values()
    if isinstance(message, TypeAliasType) or (isinstance(message, type) and issubclass(message, Message))
]


def _schemas(page_size_max: int) -> dict[str, Any]:
    """Return the JSON schemas of all messages, by name."""
    inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (message.__name__, "validation", TypeAdapter(message)) for message in _MESSAGES
    ]
    schemas: dict[str, Any] = TypeAdapter.json_schemas(inputs, ref_template=REF)[1]["$defs"]
    schemas["SearchSubjectRequest"]["properties"]["limit"]["anyOf"][0]["maximum"] = page_size_max
    schemas["FitRequest"]["properties"]["kind"]["anyOf"][0]["enum"] = [*PLACES]
    return schemas


def _part(content: dict[str, Any], components: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the document of a name, with the components that its operations refer to."""
    by_tag = {part.tag: other for other, part in PARTS.items()}
    paths = {
        path: operations
        for path, operations in content["paths"].items()
        if {by_tag.get(operation["tags"][0], MAIN) for operation in operations.values()} == {name}
    }
    found: dict[str, dict[str, Any]] = {"securitySchemes": components["securitySchemes"]}
    left: list[Any] = [paths]
    while left:
        one = left.pop()
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        if not isinstance(one, dict) or not isinstance(one.get("$ref"), str):
            continue
        kind, named = one["$ref"].removeprefix(_COMPONENTS).split("/")
        if named in found.setdefault(kind, {}):
            continue
        if kind == "responses":
            found[kind][named], examples = _error(named)
            found.setdefault("examples", {}).update(examples)
        else:
            found[kind][named] = components[kind][named]
        left.append(found[kind][named])
    info = content["info"]
    others = ", ".join(f"`/openapi/{other}.json` ({part.title})" for other, part in PARTS.items())
    text = f"{info['description']}\n\nOther routes have documents of their own: {others}."
    if name:
        text = f"{PARTS[name].title}. The other routes are in `/openapi.json`."
    used = {kind: dict(sorted(named.items())) for kind, named in sorted(found.items())}
    return {**content, "info": {**info, "description": text}, "paths": paths, "components": used}


def _examples(schema: Schema) -> dict[str, Any]:
    """Return a body that the model of a schema takes, by operation; its values are made up by their types."""
    cells = [_EXAMPLE_CELLS[column.type] for column in schema.columns]
    features: Any = dict(zip(schema.names, cells, strict=True)) if schema.named else cells
    content = {"features": features, "label": _EXAMPLE_LABELS[schema.label_type]}
    return {
        "predict": {"instances": [features]},
        "infer": {"inputs": [_example_tensor(one) for one in describe(schema)["inputs"]]},
        "explain_predictions": {"instances": [features]},
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


def add_heads(router: APIRouter) -> None:
    """Have every GET route answer HEAD with the same head, where it has no HEAD route of its own."""
    found = [(route.path, route.methods) for route in router.routes if isinstance(route, APIRoute) and route.methods]
    heads = {path for path, methods in found if methods == {"HEAD"}}
    for path, methods in found:
        if "GET" in methods and path not in heads:
            methods.add("HEAD")


class RouteTable:
    """What each path takes.

    Parameters
    ----------
    routes
        Of the application, and of its routers: what it makes of these itself takes it long.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        self._routes = [
            (route.path_format, route.path_regex, frozenset(route.methods or ()))
            for route in routes
            if isinstance(route, Route)
        ]

    def methods(self, path: str) -> list[str]:
        """Return the methods of all routes that a path fits."""
        found = (methods for _, pattern, methods in self._routes if pattern.match(path))
        return sorted(frozenset[str]().union(*found))

    def names_in(self, folder: str) -> frozenset[str]:
        """Return the last parts of the routes in a folder that take no parameter; none of them is an id there."""
        formats = (path.removeprefix(folder) for path, _, _ in self._routes if path.startswith(folder))
        return frozenset(name for name in formats if "{" not in name)
