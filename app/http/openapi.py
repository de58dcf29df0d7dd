"""Pieces of the OpenAPI page: request bodies of the routes that parse themselves, and an example of every error."""

from typing import Any

from pydantic import BaseModel

from oubli.app.http.problems import KINDS, MEDIA_TYPE, ProblemError

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
_WITH_BODY = ("foreign-origin", "not-json", "unsupported-encoding", "broken-encoding")

PROBLEM_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "RFC 9457. Texts name positions, names of the schema and rules, and never repeat what was sent.",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body, or /name."},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}


def problems(*slugs: str) -> Responses:
    """Return the error answers of a route, each with an example, for its `responses`."""
    named = (*slugs, *EVERYWHERE)
    if "broken-json" in slugs:
        named = (*named, *_WITH_BODY)
    responses: Responses = {}
    for slug in sorted(named, key=lambda slug: KINDS[slug].status):
        kind = KINDS[slug]
        problem = ProblemError(slug, errors=kind.example)
        answer = responses.setdefault(
            kind.status, {"description": "", "content": {MEDIA_TYPE: {"schema": PROBLEM_SCHEMA, "examples": {}}}}
        )
        answer["description"] = " / ".join(filter(None, (answer["description"], kind.title)))
        answer["content"][MEDIA_TYPE]["examples"][slug] = {"summary": kind.title, "value": problem.content()}
        if kind.headers:
            answer["headers"] = {name: {"schema": {"type": "string"}} for name in kind.headers}
    return responses


def body(shape: type[BaseModel]) -> dict[str, Any]:
    """Return the request body of a route that parses it itself."""
    schema = shape.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": _inline(schema, definitions)}}}
    }


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Put definitions where they are referred to: FastAPI collects only those of models it knows."""
    if isinstance(schema, dict):
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name in definitions:
            return _inline(definitions[name], definitions)
        return {key: _inline(value, definitions) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_inline(value, definitions) for value in schema]
    return schema


def parameter(name: str, description: str, schema: dict[str, Any], place: str = "query") -> dict[str, Any]:
    """Return the description of a parameter; those in a path are required."""
    return {"name": name, "in": place, "required": place == "path", "description": description, "schema": schema}


_TEXT = {"type": "string", "minLength": 1, "maxLength": 256}
ID = parameter("id", "The sample's id, percent-encoded; any text, slashes included.", _TEXT, "path")
QUERY: dict[str, dict[str, Any]] = {
    "subject": parameter("subject", "Whose samples to list.", _TEXT),
    "cursor": parameter("cursor", "`next` of the page before.", {"type": "string"}),
    "limit": parameter("limit", "Samples on a page.", {"type": "integer", "minimum": 1, "default": 100}),
    "format": parameter("format", "Instead of the `Accept` header.", {"type": "string", "enum": ["json", "csv"]}),
    "ids": parameter("id", "Samples to delete; may be repeated.", {"type": "array", "items": _TEXT}),
    "subjects": parameter("subject", "Subjects to delete; may be repeated.", {"type": "array", "items": _TEXT}),
    "ref": parameter("ref", "The caller's case number.", {"type": "string", "format": "uuid"}),
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
FILE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
