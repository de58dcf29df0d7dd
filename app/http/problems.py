"""Errors as HTTP answers: RFC 9457 `application/problem+json`, except below `/v2` and `/opendsr`.

Texts are built from positions, names of the schema and rules. Nothing that was submitted is repeated, and no text of
an exception is passed on: it could hold an id or a value. `KINDS` is the list of all problems there are; the OpenAPI
page shows each as an example.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson
from starlette.responses import Response

from oubli.app import errors
from oubli.app.errors import StopReason
from oubli.app.logs import place_of
from oubli.core.errors import CapacityError, EmptyModelError, FileError, InputError, UnusableModelError

log = logging.getLogger("oubli.http")

NOT_ADDED = "does not come with a sample: leave out samples that are restricted at their source"
MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:oubli:problem:"
RETRY_SECONDS = 1
_REDIRECT = 307
INFERENCE_PATH = "/v2"
"""Below it the routes are those of the Open Inference Protocol, whose errors are `{"error": "..."}`."""
OPENDSR_FOLDER = "/opendsr/"
"""Below it the routes are those of OpenDSR, whose errors are `{"error": {"code": ..., ...}}`."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem.

    `detail` is the default text of its answers; `example` shows the `errors` they can have.
    """

    slug: str
    status: int
    title: str
    detail: str
    example: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


_TABLE = """
400 broken-json: The body is not JSON
The body is not valid JSON: send one JSON object in UTF-8. A missing value is null, not NaN.

400 broken-records: The body is not in its format
The body does not have the format of its 'Content-Type' (CSV, NDJSON or an Arrow stream), is not UTF-8, or is
incomplete.

400 bad-request: The request cannot be read
The request is not valid HTTP for this server.

400 bad-host: The 'Host' header is malformed
Send one 'Host' header, with a name or an address and optionally a port.

401 key-needed: A key is needed
Send a valid key, as 'Authorization: Bearer <key>' or as 'X-API-Key: <key>'.

403 scope-needed: The key does not have the needed scope
The request needs a key with another scope: `oubli keys create` makes one.

403 foreign-origin: The request comes from a page of another origin
Pages of other origins may neither change this server nor ask for samples: scheme, host and port in the 'Origin' header
must be those of the request itself. Set cors_origins to admit pages of another origin, or allowed_origins behind a
proxy.

404 no-such-route: No route has this path
There is no route with this path: '/docs' lists all routes.

404 not-held: The sample or subject is not held
No sample is held under this id or subject. POST /samples adds one.

404 no-receipt: There is no such receipt
No erasure has this id or case number: the answer to a deletion names both.

404 not-logged: The log does not have this entry
No entry of the log has this number, or no checkpoint over it could be signed yet. Entries are numbered from 1 to the
size in GET /log/checkpoint.

404 no-opening: The erasure has no opening
It was made by a version without openings, or the hashing key of its opening was destroyed.

404 no-dead-letter: There is no such dead letter
No delivery for a receipt or request with this id was given up: GET /webhooks/dead-letters lists those that were.

404 no-opendsr: OpenDSR is not set up
Nothing was done. Set opendsr_domain, opendsr_cert_file and opendsr_key_file to accept requests of OpenDSR.

404 no-request: There is no such request
No request of OpenDSR has this id.

409 request-repeated: The id belongs to another request
Nothing was done: an earlier request with this subject_request_id asked for something else. Use a new id.

409 request-begun: The request is not pending any more
It is being processed, or is done, and cannot be cancelled.

404 no-node: There is no such node
The cluster has no node with this name: GET /cluster lists all nodes.

409 node-alive: The node is not expelled
Nothing was changed: the node has reported within member_timeout. Stop it, wait until GET /cluster
shows it as 'expelled', and try again.

404 no-job: There is no such job
No job has this id, or it ended long ago and was removed.

409 job-uncancellable: The job cannot be cancelled
Only a job that answers a question or makes a bundle can be cancelled: wait until this one has ended.

404 no-result: The job has no result
The result of the job is gone: samples were erased or restricted after the question, or newer results took its place.
Ask again.

404 no-snapshot: There is no snapshot
No snapshot has been written yet: POST /snapshot writes one.

404 no-model: No model has this name
The server has one model: use GET /v2/models/NAME with the name in the setting model_name.

404 no-version: This version of the model is not served
The server has only the current version of the model: ask for that one, or leave the version out.

405 wrong-method: The route does not have this method
This route does not have this method: '/docs' lists its methods.

408 upload-slow: The upload took too long
Nothing was changed: the file paused for longer than 30 seconds, or took longer than an hour. Upload it again over a
faster connection.

404 no-tree: There is no such tree or node
The model has no such tree, or the tree has no such node, at present: trees change with the samples. Start at the root
of tree 0; the answer gives the number of trees.

409 still-held: The sample or subject is held
A name that is in the model cannot be proved absent: delete it first.

409 not-exact: The model is not exact
A model of this kind that has unlearned samples differs from one that never learned them. Fit an exact kind: 'forest'
or 'incremental-boosting'.

409 empty-model: No samples are held
The model has no samples to predict from: add samples first.

409 id-conflict: An id is held with other content
Nothing was added: ids in the request are held with other content. PUT /samples/{id} rectifies a sample; another id adds
a new one.

409 erased-lately: An id was erased recently
Nothing was added: ids in the request were erased recently. The request may be a late retry. Send 'readd': true with
each sample that you want to add again.

409 key-spent: A sample or subject of the first request with this key was erased
Nothing was changed: 'Idempotency-Key' was used, and a sample or subject of the first request was erased since, so the
server cannot recognise the request. Use a new key. To add an erased sample again, send 'readd': true with it.

409 restricted: The processing of an id or a subject is restricted
Nothing was changed: restricted samples are kept, the model does not learn from them, and no sample can be added to a
restricted subject. POST /subjects/release ends the restriction. PUT /samples/{id} corrects a sample, which stays
restricted with its subject.

409 ephemeral: Nothing is kept on disk
The server was started with --ephemeral: start it with --data-dir to write snapshots.

408 too-slow: The request takes too long
The request did not arrive in time: send it again, without pauses. A head may take 10 seconds; a body 60 seconds, and
one more for each 8 KiB.

412 sample-changed: The sample was changed
Nothing was changed: the sample is not as it was when you read it, because its 'ETag' is none of those in 'If-Match'.
Read it again, and decide again.

413 body-too-large: The body is too large
The body is larger than this server accepts.

413 record-too-large: A record is too large
One line, or one message of an Arrow stream, is larger than max_body_bytes. A body has no limit, a record has.

413 too-many-rows: Too many rows in one request
The request has more rows than one request may have: split it.

400 broken-encoding: The body does not decode
Nothing was changed: the body does not have the encoding in 'Content-Encoding', or it is incomplete.

400 too-many-frames: The body has too many zstd frames or gzip members
Nothing was changed: a body may have 1,000 of them, plus one for each 256 decoded bytes. Compress it as a whole.

415 unsupported-encoding: The body has an encoding that is not supported
Send the body without an encoding, or with 'Content-Encoding: gzip' or 'zstd'.

415 not-json: The content type of the body is not JSON
Send the body as JSON, with 'Content-Type: application/json'.

421 unknown-host: The request is meant for another host
The 'Host' header names no host name of this server: use one of its names, or set allowed_hosts.

422 invalid-input: The input is not valid
Nothing was changed. Correct the places in 'errors' and send the request again.

422 unreadable-file: The file is not a valid model file
Nothing was changed: the file cannot be read as a model.

431 head-too-large: The target and headers of the request are too large
A request may have 64 KiB of target and headers, and 100 headers, including those after its body.

429 queue-full retry: Too many requests wait
The maximum number of requests waits for the model. Try again a little later. Erasures are always accepted.

500 internal-error: The server failed
This is an error of the server, not of the request. The server's log names the place in the code.

503 not-ready retry: The server is not ready
The server is starting or stopping, or it is a node that may have missed an erasure: see 'detail'. Try again a little
later, or use another node.

503 behind retry: The server is behind
The request asks for a later version of the model ('Min-Version') than this server has. Try again a little later, or use
another node. If the server was put back to an older state, it will not reach the version: leave the header out.

503 too-many-connections retry: Too many connections are open
The maximum number of connections is open, in total or from this address. Close idle ones, or send several requests over
each.

503 changes-stopped retry: The model accepts no changes at present
An earlier error left the model or the disk in doubt, so nothing is changed until the server is restarted. Predictions
are still answered.

503 out-of-memory retry: The server has not enough memory
Nothing was changed: there is not enough memory for the request. Send less in one request, free memory on the machine,
or lower max_classes (each class takes memory).

503 model-unusable: The model cannot be used
A change of the model was interrupted halfway, so the model answers nothing and accepts nothing. No acknowledged change
is lost: restart the server.

503 capacity: A limit of the model is reached
Nothing was changed: the model cannot hold more. Delete samples, or serve a second model.

503 journal retry: The journal cannot be written
Nothing was changed: a file of the journal could not be opened or written, and no flush had failed. Check the disk
and the limit of open files, and try again.

503 journal-unreachable retry: PostgreSQL cannot be reached
Nothing was changed: PostgreSQL, which keeps the journal, cannot be reached, or refuses to write. Check it and the
network, and try again: the server accepts changes as soon as PostgreSQL writes.

503 not-leader retry: Another node accepts the changes
Nothing was changed: another node leads and accepts changes. 'leader' names it. If its URL is known, the answer is a
redirect (307) to it.

503 model-changed retry: The model changed during the answer
The model has other classes or columns than at the start of the answer: send the unanswered rows again.

503 superseded retry: Samples were erased while the answer was made
The answer could hold erased samples: ask again.

503 upload-dropped retry: The upload was stopped
Nothing was changed. Samples were erased during the upload, and the file may contain them: upload it again. The server
drops erased samples from a complete file.

503 storage retry: The data directory cannot be written
Nothing was changed. Check that the disk has space and that the data directory can be written.
"""
_HEADERS = {"key-needed": {"WWW-Authenticate": 'Bearer realm="oubli"'}}
_EXAMPLES = {
    "id-conflict": (("/samples/0/id", "is held with other content"),),
    "erased-lately": (("/samples/0/id", "was erased lately"),),
    "restricted": (("/samples/0/subject", "is restricted"),),
    "invalid-input": (("/samples/0/features/age", "must be a finite number: send null when it is unknown"),),
}


def _kinds() -> dict[str, Kind]:
    """Read the table: status, slug, whether to try again soon, and title of each kind; below them its text."""
    kinds = {}
    for entry in _TABLE.strip().split("\n\n"):
        first, *text = entry.split("\n")
        name, _, title = first.partition(": ")
        status, slug, *retry = name.split()
        headers = {"Retry-After": str(RETRY_SECONDS)} if retry else _HEADERS.get(slug, {})
        kinds[slug] = Kind(slug, int(status), title, " ".join(text), _EXAMPLES.get(slug, ()), headers)
    return kinds


KINDS = _kinds()


class ProblemError(Exception):
    """A request that is answered with a problem.

    Parameters
    ----------
    slug
        Key of `KINDS`.
    detail
        More precise than the kind's own text.
    errors
        Pairs of a JSON pointer into the request and what is wrong there.
    headers
        Further headers of the answer.
    """

    def __init__(
        self,
        slug: str,
        detail: str | None = None,
        errors: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(slug)
        self.kind = KINDS[slug]
        self.detail = detail or self.kind.detail
        self.errors = tuple(errors)
        self.headers = {**self.kind.headers, **(headers or {})}

    def content(self) -> dict[str, Any]:
        """Return the body as an object."""
        body: dict[str, Any] = {
            "type": TYPE_PREFIX + self.kind.slug,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
        if self.errors:
            body["errors"] = [{"pointer": pointer, "detail": detail} for pointer, detail in self.errors]
        return body

    def inference_content(self) -> dict[str, str]:
        """Return the body as the Open Inference Protocol has it: one text, which names the wrong places itself."""
        if not self.errors:
            return {"error": self.detail}
        places = "; ".join(f"{pointer} {detail}" if pointer else detail for pointer, detail in self.errors)
        return {"error": f"{self.kind.title}: {places}."}

    def opendsr_content(self) -> dict[str, Any]:
        """Return the body as OpenDSR has it."""
        details = self.errors or (("", self.detail),)
        errors = [
            {
                "domain": "Validation" if place else "Processing",
                "reason": self.kind.slug,
                "message": f"{place} {text}".strip(),
            }
            for place, text in details
        ]
        return {"error": {"code": opendsr_status(self.kind), "message": self.detail, "errors": errors}}

    def response(self, path: str = "", target: str = "") -> Response:
        """Return the answer to a request for a path, which decides its form; `target` is where a redirect leads."""
        del target
        status = self.kind.status
        if is_inference(path):
            content, media_type = orjson.dumps(self.inference_content()), "application/json"
        elif path.startswith(OPENDSR_FOLDER):
            content, media_type = orjson.dumps(self.opendsr_content()), "application/json"
            status = opendsr_status(self.kind)
        else:
            content, media_type = orjson.dumps(self.content()), MEDIA_TYPE
        return Response(content, status, self.headers, media_type=media_type)


class OtherLeaderError(ProblemError):
    """A change that another node takes.

    Parameters
    ----------
    leader
        Where that is reached; None when it is not known.
    detail
        More precise than the kind's own text.
    is_redirected
        Whether the answer leads there.
    """

    def __init__(self, leader: str | None, detail: str | None = None, *, is_redirected: bool = True) -> None:
        super().__init__("not-leader", detail)
        self.leader = leader
        self._redirects = is_redirected and leader is not None

    def content(self) -> dict[str, Any]:
        """Return the body as an object."""
        content = {**super().content(), "leader": self.leader}
        return {**content, "status": _REDIRECT} if self._redirects else content

    def response(self, path: str = "", target: str = "") -> Response:
        """Return the answer: a redirect to the same target of the other node, where that is known."""
        answer = super().response(path)
        if self._redirects and target:
            answer.status_code = _REDIRECT
            answer.headers["Location"] = f"{self.leader}{target}"
            del answer.headers["Retry-After"]
        return answer


def target_of(scope: Mapping[str, Any]) -> str:
    """Return path and query of a request, as they were sent."""
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode("ascii")
    query: bytes = scope.get("query_string", b"")
    return (raw.partition(b"?")[0] + (b"?" + query if query else b"")).decode("latin-1")


def opendsr_status(kind: Kind) -> int:
    """Return the status of a problem below `/opendsr/`: every mistake of a request is 400 there."""
    return 400 if kind.status in (409, 413, 415, 422) else kind.status


def is_inference(path: str) -> bool:
    """Whether a path belongs to the Open Inference Protocol."""
    return path.startswith(INFERENCE_PATH) and path[len(INFERENCE_PATH) :][:1] in ("", "/")


def changes_stopped(reason: StopReason) -> ProblemError:
    """Return the problem of a server that answers predictions and takes no changes."""
    return ProblemError("changes-stopped", f"{reason.text} Predictions are still answered.")


def invalid(pointer: str, rule: str) -> ProblemError:
    """Return the problem of one wrong place in the request."""
    return ProblemError("invalid-input", errors=[(pointer, rule)])


def pointer(*parts: str | int) -> str:
    """Return a JSON pointer; the parts must be positions or names that the schema or this program defines."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def too_many_rows(what: str, given: int, limit: int) -> ProblemError:
    """Return the problem of a request with too many instances, samples or ids."""
    return ProblemError("too-many-rows", f"The request has {given} {what}, at most {limit} are accepted: split it.")


_SLUGS: tuple[tuple[type[Exception], str], ...] = (  # the first that fits
    (errors.BusyError, "queue-full"),
    (errors.SpentKeyError, "key-spent"),
    (errors.NoReceiptError, "no-receipt"),
    (errors.NotLoggedError, "not-logged"),
    (errors.NoRequestError, "no-request"),
    (errors.RepeatedRequestError, "request-repeated"),
    (errors.UncancellableError, "request-begun"),
    (errors.UncancellableJobError, "job-uncancellable"),
    (errors.NoLetterError, "no-dead-letter"),
    (errors.JournalUnreachableError, "journal-unreachable"),
    (errors.JournalRefusedError, "journal"),
    (errors.NoDescriptorsError, "journal"),
    (errors.JournalFullError, "storage"),
    (errors.JournalError, "changes-stopped"),
    (errors.NotHeldError, "not-held"),
    (errors.SampleChangedError, "sample-changed"),
    (errors.NoNodeError, "no-node"),
    (errors.NodeAliveError, "node-alive"),
    (errors.StillHeldError, "still-held"),
    (errors.NoTreeError, "no-tree"),
    (errors.NotExactError, "not-exact"),
    (errors.NoSnapshotError, "no-snapshot"),
    (errors.EphemeralError, "ephemeral"),
    (errors.ModelChangedError, "model-changed"),
    (errors.SupersededError, "superseded"),
    (errors.FlushFailedError, "changes-stopped"),
    (errors.StorageError, "storage"),
    (EmptyModelError, "empty-model"),
    (UnusableModelError, "model-unusable"),
    (CapacityError, "capacity"),
)


def to_problem(error: Exception) -> ProblemError | None:
    """Return the problem that an exception of the service or of `core` means; None for a mistake of ours."""
    match error:
        case ProblemError():
            return error
        case errors.NotLeaderError(leader_url=leader):
            return OtherLeaderError(leader)
        case errors.DeposedError():
            return OtherLeaderError(None)
        case errors.UnavailableError(reason=reason):
            return ProblemError("changes-stopped" if reason == "failed" else "not-ready")
        case errors.ConflictError(rows=rows):
            rule = "is held with other content"
            return ProblemError("id-conflict", errors=[(pointer("samples", row, "id"), rule) for row in rows])
        case errors.ErasedLatelyError(rows=rows):
            rule = "was erased lately"
            return ProblemError("erased-lately", errors=[(pointer("samples", row, "id"), rule) for row in rows])
        case errors.RestrictedError(ids=ids, subjects=subjects):
            rule = "is restricted"
            places = [*((row, "id") for row in ids), *((row, "subject") for row in subjects)]
            return ProblemError("restricted", errors=[(pointer("samples", *place), rule) for place in sorted(places)])
        case errors.StillHeldError(is_restricted=True):
            rule = "It is restricted: the model has not learned it, and the server keeps it. Delete it first."
            return ProblemError("still-held", rule)
        case errors.NodeAliveError(leads=True):
            text = "Nothing was changed: this node leads. Stop it, so that another node leads, and ask that one."
            return ProblemError("node-alive", text)
        case errors.OwnerlessError():
            rule = "must be a subject, or left out: the sample is restricted, and could not be released without one"
            return ProblemError("restricted", errors=[("/subject", rule)])
        case errors.InvalidKeyError(rule=rule):
            return invalid("/Idempotency-Key", rule)
        case errors.RepeatedKeyError():
            return invalid("/Idempotency-Key", "was used for another body: use a new key for a new request")
        case errors.UploadError(reason=reason):
            return ProblemError("upload-slow" if reason == "slow" else "upload-dropped")
        case errors.StaleCursorError():
            return invalid("/cursor", "belongs to a list that no longer exists: start again without it")
        case FileError(rule=rule):
            return ProblemError("unreadable-file", f"Nothing was changed: {rule}.")
        case InputError(rule=rule):
            return invalid("", rule)
    return next((ProblemError(slug) for kind, slug in _SLUGS if isinstance(error, kind)), None)


def body_too_large(limit: int) -> ProblemError:
    """Return the problem of a body above the limit; the rest of it is not read, so the connection ends."""
    size = f"{limit / 2**20:g} MiB" if limit >= 2**20 else f"{limit} bytes"
    detail = f"The body is larger than {size}: send less in one request, or raise the limit in the settings."
    return ProblemError("body-too-large", detail, headers={"Connection": "close"})


def report_mistake(error: BaseException) -> ProblemError:
    """Log an exception that the request is not to blame for, and return the problem that it is answered with."""
    if isinstance(error, MemoryError):
        log.error("a request found no memory: %s", place_of(error))
        return ProblemError("out-of-memory")
    log.error("a request failed: %s", place_of(error))
    return ProblemError("internal-error")
