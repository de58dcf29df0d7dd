"""Pieces of the OpenAPI document: parameters, bodies and an example of every error, for the routes to name."""

from collections.abc import Callable, Iterable
from typing import Any

from oubli.app.http.formats import Format
from oubli.app.http.problems import KINDS, MEDIA_TYPE, Kind, ProblemError, opendsr_status
from oubli.app.http.schemas.inference import InferenceError
from oubli.app.http.schemas.opendsr import OpendsrError
from oubli.app.http.schemas.shapes import Problem

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
    "behind",
    "not-leader",
    "too-many-connections",
    "internal-error",
)
_WITH_BODY = ("foreign-origin", "not-json", "unsupported-encoding", "broken-encoding")
_INFERENCE_BODY = ("foreign-origin", "unsupported-encoding", "broken-encoding")
_INFERENCE_EXAMPLES = {"invalid-input": (("/inputs/0/shape", "must have at least one row"),)}
REF = "#/components/schemas/{model}"
DEFAULT_PAGE = 100


def ref_to(shape: Any) -> dict[str, str]:
    """Return the schema that refers to a shape."""
    return {"$ref": REF.format(model=shape.__name__)}


def problems(*slugs: str) -> Responses:
    """Return the error answers of a route, each with an example, for its `responses`."""
    if "changes-stopped" in slugs:
        slugs = (*slugs, "journal-unreachable")
    return _errors(
        (*slugs, *_WITH_BODY) if "broken-json" in slugs else slugs, MEDIA_TYPE, Problem, ProblemError.content
    )


def inference_problems(*slugs: str) -> Responses:
    """Return the error answers of a route of the Open Inference Protocol."""
    named = (*slugs, *_INFERENCE_BODY) if "broken-json" in slugs else slugs
    return _errors(named, "application/json", InferenceError, ProblemError.inference_content)


def opendsr_problems(*slugs: str) -> Responses:
    """Return the error answers of a route of OpenDSR."""
    named = (*slugs, *_WITH_BODY) if "broken-json" in slugs else slugs
    return _errors(named, "application/json", OpendsrError, ProblemError.opendsr_content, opendsr_status)


def _errors(
    slugs: Iterable[str],
    media_type: str,
    shape: Any,
    content: Callable[[ProblemError], dict[str, Any]],
    status: Callable[[Kind], int] = lambda kind: kind.status,
) -> Responses:
    responses: Responses = {}
    for slug in sorted(dict.fromkeys((*slugs, *EVERYWHERE)), key=lambda slug: KINDS[slug].status):
        kind = KINDS[slug]
        problem = ProblemError(
            slug, errors=_INFERENCE_EXAMPLES.get(slug, ()) if shape is InferenceError else kind.example
        )
        answer = responses.setdefault(
            status(kind), {"description": "", "content": {media_type: {"schema": ref_to(shape), "examples": {}}}}
        )
        answer["description"] = " / ".join(filter(None, (answer["description"], kind.title)))
        answer["content"][media_type]["examples"][slug] = {"summary": kind.title, "value": content(problem)}
        if kind.headers:
            answer["headers"] = {name: {"schema": {"type": "string"}} for name in kind.headers}
    return responses


def body(shape: Any, others: dict[str, Any] | None = None, *, required: bool = True) -> dict[str, Any]:
    """Return the request body of a route that parses it itself; `others` are bodies of other types."""
    content = {"application/json": {"schema": ref_to(shape)}, **(others or {})}
    return {"requestBody": {"required": required, "content": content}}


def table_body(shape: Any) -> dict[str, Any]:
    """Return the request body of a route that takes tables as well, in the formats of `TABLES`."""
    described = body(shape)
    described["requestBody"]["content"].update(TABLES)
    return described


def events_of(shape: Any) -> dict[str, Any]:
    """Return the answer of a route that sends server-sent events; the shape is that of their data."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": ref_to(shape)}
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
        "(`search`, `batch-delete`, `absence-proofs`) are no ids here: write `/samples?id=search`.",
        _TEXT,
        "path",
    ),
    "erasure": parameter("id", "The receipt's id.", _UUID, "path"),
    "letter": parameter("id", "`id` of the dead letter: that of the receipt or request.", _UUID, "path"),
    "request": parameter("id", "`subject_request_id` of the request.", _UUID, "path"),
    "job": parameter("id", "The job's id.", _UUID, "path"),
    "member": parameter("name", "`name` of the node.", _TEXT, "path"),
    "index": parameter("index", "`index` of the entry.", {"type": "integer", "minimum": 1}, "path"),
    "level": parameter("level", "Level of the tile.", {"type": "integer", "minimum": 0, "maximum": 9}, "path"),
    "tile": parameter(
        "number",
        "Number of the tile in three digits each, such as `x001/x234/067`; `.p/{width}` of one that is not whole.",
        {"type": "string"},
        "path",
    ),
    "export": parameter("id", "`export` in the job's result.", _UUID, "path"),
    "comparison": parameter("id", "`without` in the job's result.", _UUID, "path"),
    "tree": parameter("n", "The tree's number, from 0.", {"type": "integer", "minimum": 0}, "path"),
    "ranking": parameter("id", "`influence` in the job's result.", _UUID, "path"),
    "model": parameter("model_name", "The model's name: `model_name` in the settings.", {"type": "string"}, "path"),
    "version": parameter(
        "model_version",
        "The model's present version; another one is answered 404, with the version that is served.",
        {"type": "string", "pattern": "^[0-9]{1,19}$"},
        "path",
    ),
}
QUERY: dict[str, dict[str, Any]] = {
    "id": parameter("id", "The one sample to list; without `subject` and `cursor`.", _TEXT),
    "node": parameter(
        "node", "The way to the node from the root: `l` and `r`.", {"type": "string", "pattern": "^[lr]{0,512}$"}
    ),
    "levels": parameter(
        "levels", "Levels below the node.", {"type": "integer", "minimum": 0, "maximum": 8, "default": 3}
    ),
    "replaced": {**parameter("id", "The sample to replace.", _TEXT), "required": True},
    "subject": parameter("subject", "Whose samples to list.", _TEXT),
    "cursor": parameter(
        "cursor",
        "`next` of the page before, as it is. It is refused (422) when a restore has replaced the list meanwhile.",
        {"type": "string", "pattern": "^[A-Za-z0-9_-]{22}$"},
    ),
    "from": {
        **parameter("from", "Size of the log in a checkpoint that was kept.", {"type": "integer", "minimum": 0}),
        "required": True,
    },
    "to": parameter("to", "Size of the later log; by default the published one.", {"type": "integer", "minimum": 0}),
    "index": parameter("cursor", "`next` of the page before.", {"type": "string", "pattern": "^[0-9]{1,15}$"}),
    "limit": parameter("limit", "Most entries on a page.", {"type": "integer", "minimum": 1, "default": DEFAULT_PAGE}),
    "format": parameter("format", "Instead of the `Accept` header.", {"type": "string", "enum": ["json", "csv"]}),
    "openings": parameter(
        "openings", "Whether to list nonces, too; takes the scope `audit`.", {"type": "boolean", "default": False}
    ),
    "trees": parameter(
        "trees", "Whether to compute the digests of the trees, too.", {"type": "boolean", "default": False}
    ),
    "ids": parameter("id", "Samples to delete; may be repeated. Either this or `subject`.", _TEXTS),
    "subjects": parameter("subject", "Subjects to delete; may be repeated. Either this or `id`.", _TEXTS),
    "ref": parameter("ref", "The caller's case number.", _UUID),
    "status": parameter(
        "status",
        "`unlearned`: not erased yet; `overdue`: those of them whose deadline has passed; `erased`.",
        {"type": "string", "enum": ["unlearned", "erased", "overdue"]},
    ),
    "order": parameter(
        "order", "Which receipts come first.", {"type": "string", "enum": ["oldest", "newest"], "default": "oldest"}
    ),
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
LAST_EVENT_ID: dict[str, Any] = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "description": "`id` of the last event before the stream was cut; `hello` says whether anything was missed.",
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
NEXT_CURSOR: dict[str, Any] = {
    "Next-Cursor": {"description": "With CSV: `next`; left out on the last page.", "schema": {"type": "string"}}
}
