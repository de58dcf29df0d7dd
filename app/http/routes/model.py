"""The model: description, trees and columns, and the jobs on the model as a whole (verify, scrub, fit).

Jobs: list, read and watch them, get their results, cancel them. The answers to long questions and long exports are kept
in memory for a while, and are the results of their jobs.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from oubli.api.model import (
    ColumnsAnswer,
    FitRequest,
    ImportancesAnswer,
    JobsAnswer,
    KindsAnswer,
    Model,
    TreeAnswer,
)
from oubli.api.model import Job as JobAnswer
from oubli.api.predictions import JobResult
from oubli.app.http.openapi import CHANGE, CSV, IDEMPOTENCY_KEY, INPUT, PATH, QUERY, answers, body, problems
from oubli.app.http.parsing import KEY_HEADER, flag_of, parse_flag, parse_object, parse_values, read, service_of
from oubli.app.http.problems import ProblemError, invalid, pointer
from oubli.app.http.responses import (
    KEPT,
    bundle_answer,
    comparison_content,
    job_answer,
    job_content,
    json_answer,
    to_json,
    wants_csv,
)
from oubli.app.service.jobs.fits import estimator_of
from oubli.app.service.jobs.jobs import Job
from oubli.app.service.model.questions import kinds_for
from oubli.core.data.schema import Schema, Task
from oubli.core.drawing import LONGEST_PATH, MOST_LEVELS
from oubli.core.errors import InputError
from oubli.core.estimators import KINDS
from oubli.core.parameters import N_JOBS

router = APIRouter(tags=["model"])
jobs = APIRouter(tags=["jobs"])


@router.get(
    "/model",
    summary="The model",
    responses=answers(Model) | problems("invalid-input", "queue-full", "model-unusable"),
    openapi_extra={"parameters": [QUERY["score"]]},
)
async def get_model(request: Request) -> Response:
    """Return kind, guarantee, parameters, feature schema and size of the model.

    With `score` also how well it predicts samples that it has not learned: out of bag for a forest, and by the samples
    that boosting with `early_stopping` validates on. The first such request after a change takes longer.
    """
    service = service_of(request)
    (score,) = parse_values(request.scope["query_string"], "score")
    found = {"score": await service.questions.inspector.quality()} if parse_flag(score, "/score") else {}
    return json_answer(service.describe() | found)


@router.post("/expiry/confirm", summary="Resume expiry", responses=answers(Model) | problems(*CHANGE))
async def confirm_expiry(request: Request) -> Response:
    """Accept the clock and let all samples expire that are due.

    Expiry pauses if the clock jumps ahead by more than a day, or if more samples are due at once than
    `max_expiry_share` allows: see `expiry_paused` in `GET /model`.
    """
    service = service_of(request)
    await service.erasure.retention.confirm()
    return json_answer(service.describe())


_DEFAULT_LEVELS = 3


@router.get(
    "/model/importances",
    summary="Importances of the features",
    responses=answers(ImportancesAnswer) | problems("queue-full", "model-unusable"),
)
async def get_importances(request: Request) -> Response:
    """Return each feature's share of the total gain of all splits. This takes a while for a large model."""
    return json_answer(await service_of(request).questions.inspector.importances())


@router.get(
    "/model/trees/{n}",
    summary="A part of a tree",
    responses=answers(TreeAnswer) | problems("invalid-input", "no-tree", "queue-full", "model-unusable"),
    openapi_extra={"parameters": [PATH["tree"], QUERY["node"], QUERY["levels"]]},
)
async def get_tree(request: Request) -> Response:
    """Return a node of a tree with some levels below it, with names of columns and categories, without samples.

    Trees change with the samples: a node that existed a moment ago may be gone.
    """
    node, levels = parse_values(request.scope["query_string"], "node", "levels")
    path = node or ""
    if len(path) > LONGEST_PATH or path.strip("lr"):
        raise invalid("/node", f"must be the way from the root: at most {LONGEST_PATH} letters, 'l' and 'r'")
    shown = _number(levels, "levels", MOST_LEVELS) if levels is not None else _DEFAULT_LEVELS
    number = _number(request.path_params["n"], "n", 10**9)
    return json_answer(await service_of(request).questions.inspector.tree(number, path, shown))


@router.get(
    "/model/columns",
    summary="Ranges and categories of the columns",
    responses=answers(ColumnsAnswer) | problems("queue-full", "model-unusable"),
)
async def get_columns(request: Request) -> Response:
    """Return the range of each numeric column and the categories of the others, over the samples held."""
    return json_answer(await service_of(request).questions.inspector.columns())


@router.get("/model/kinds", summary="Kinds of models", responses=answers(KindsAnswer) | problems())
async def get_kinds(request: Request) -> Response:
    """Return the kinds of models that `POST /model/fit` accepts here, with their parameters."""
    described: dict[str, Any] = service_of(request).describe()
    task, kind, parameters = (described[name] for name in ("task", "kind", "parameters"))
    # In a thread: the first look at a kind imports it, which reads files and may compile.
    return json_answer({"kinds": await asyncio.to_thread(kinds_for, task, kind, parameters)})


def _number(text: str, name: str, most: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= most:
        return int(text)
    raise invalid(f"/{name}", f"must be a whole number from 0 to {most}")


_KINDS = sorted({kind for kind, _ in KINDS})


@router.post(
    "/model/verify",
    summary="Verify the model",
    status_code=202,
    responses=answers(JobAnswer, 202) | problems("queue-full"),
)
async def verify_model(request: Request) -> Response:
    """Start to compare the model with a fresh fit on the samples held; the result has `ok` and both digests.

    If they differ, `wrong` and the server's log name the wrong counters.
    """
    return job_answer(service_of(request).jobs.verify())


@router.post(
    "/model/scrub",
    summary="Erase now",
    status_code=202,
    responses=answers(JobAnswer, 202) | problems("queue-full", "ephemeral", "changes-stopped"),
)
async def scrub_model(request: Request) -> Response:
    """Start to erase all unlearned samples from all files, without waiting for the deadline."""
    return job_answer(service_of(request).jobs.scrub())


@router.post(
    "/model/fit",
    summary="Fit the model again",
    status_code=202,
    responses=answers(JobAnswer, 202) | problems(*INPUT, "queue-full", "changes-stopped"),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(FitRequest, required=False)},
)
async def fit_model(request: Request) -> Response:
    """Start a fit on the samples held with other parameters. The new model then replaces the old one.

    The server answers predictions and accepts changes during the fit, and the new model has these changes too. A
    repeated request with the same `Idempotency-Key` is answered with the job of the first.

    The job's result has the `score` of the old and the new model: accuracy, or R^2 for regression, on samples that the
    scored trees have not learned. If each sample is outside of some trees, these score it (`out-of-bag`); otherwise
    five fits on four fifths of the samples do (`5-fold`, by a hash of the id). At most 20,000 samples are scored.
    """
    service, sent_body = service_of(request), await request.body()
    kind, parameters, options = await read(_read, sent_body)
    described = service.describe()
    most, schema = options["max_classes"], service.model.state.model.schema_
    if schema.task is Task.REGRESSION and (most is not None or options["classes"] is not None):
        raise invalid("", "has 'classes' or 'max_classes', and a regression has no classes: leave them out")
    if most is not None and most < len(described["classes"]):
        raise invalid("/max_classes", f"must be at least {len(described['classes'])}, the number of classes held")
    kind = described["kind"] if kind is None else kind
    kept = described["parameters"] if kind == described["kind"] else {}
    # In a thread: the first look at a kind imports it, which reads files and may compile.
    await asyncio.to_thread(check_parameters, kind, parameters, kept, schema)
    header = request.headers.get(KEY_HEADER)
    async with service.changes.idempotency_keys.use(header, "POST /model/fit", sent_body) as key:
        return job_answer(service.jobs.fit(kind, parameters, key, **options))


def check_parameters(kind: str, parameters: dict[str, Any], kept: dict[str, Any], schema: Schema) -> None:
    """Have parameters checked by the estimator that is to take them.

    Parameters
    ----------
    kind
        Of the estimator.
    parameters
        What was sent.
    kept
        The parameters in force, as far as they stay.
    schema
        Of the samples.

    Raises
    ------
    ProblemError
        When there is no such estimator for the task, or it does not know a parameter or take its value.
    """
    try:
        known = estimator_of(kind, schema.task, {}).parameters_of_model()
    except InputError as error:
        raise invalid("/kind", error.rule) from None
    if N_JOBS in parameters:
        raise invalid(pointer("parameters", N_JOBS), "is no parameter of a model: start the server with --threads")
    if not known.keys() >= parameters.keys():
        raise invalid("/parameters", f"has a name that is not known; known are {', '.join(sorted(known))}")
    if _refusal(kind, schema, {**kept, **parameters}) is None:
        return
    errors = []
    for name, value in parameters.items():
        refusal = _refusal(kind, schema, {name: value})
        if refusal is not None:
            errors.append((pointer("parameters", name), _rule(refusal, name, value)))
    if not errors:
        errors.append(("/parameters", "do not fit together, or not with those in force"))
    raise ProblemError("invalid-input", errors=errors)


def _refusal(kind: str, schema: Schema, parameters: dict[str, Any]) -> InputError | None:
    """Return why an estimator does not take its parameters, None when it does."""
    try:
        estimator_of(kind, schema.task, parameters).start(schema)
    except InputError as error:
        return error
    return None


def _read(content: bytes) -> tuple[str | None, dict[str, Any], dict[str, Any]]:
    """Return kind and parameters of a body, and what else `Jobs.fit` takes; one that is empty leaves all as it is."""
    sent = parse_object(content or b"{}", 0, 0)
    if not FitRequest.model_fields.keys() >= sent.keys():
        raise invalid("", "has a key that is not known; known are " + ", ".join(map(repr, FitRequest.model_fields)))
    kind, parameters, scores = sent.get("kind"), sent.get("parameters"), flag_of(sent, "score", default=True)
    classes, max_classes = sent.get("classes"), sent.get("max_classes")
    if kind is not None and kind not in _KINDS:
        raise invalid("/kind", f"must be one of {', '.join(map(repr, _KINDS))}")
    if classes not in (None, "open", "closed"):
        raise invalid("/classes", "must be 'open' or 'closed'")
    if max_classes is not None and (type(max_classes) is not int or max_classes < 1):
        raise invalid("/max_classes", "must be an integer of at least 1")
    options = {"scores": scores, "classes": classes, "max_classes": max_classes}
    if parameters is None:
        return kind, {}, options
    if not isinstance(parameters, dict):
        raise invalid("/parameters", "must be an object")
    return kind, parameters, options


def _rule(error: InputError, name: str, value: Any) -> str:
    """Return what the estimator says of a parameter, without the value that it repeats."""
    for repeated in (f"{name}={value!r} ", f"{name} "):
        if error.rule.startswith(repeated):
            return error.rule.removeprefix(repeated)
    return "has a value that the model does not take"


_ID = {"parameters": [PATH["job"]]}
_NO_RESULT = {
    "unfinished": "The job has not ended: GET /jobs/{id}/events says when it has.",
    "failed": "The job has failed: `error` of GET /jobs/{id} says why.",
}


def known_job(request: Request) -> Job:
    """Return the job that a path names, before an answer has begun.

    Raises
    ------
    ProblemError
        When there is none.
    """
    job = service_of(request).jobs.board.get(request.path_params["id"])
    if job is None:
        raise ProblemError("no-job")
    return job


KnownJob = Annotated[Job, Depends(known_job)]


@jobs.get("/jobs", summary="All jobs", responses=answers(JobsAnswer) | problems())
async def list_jobs(request: Request) -> Response:
    """Return the jobs that wait or run, and those that ended a short time ago."""
    return json_answer({"jobs": [job_content(job) for job in service_of(request).jobs.board.all()]})


@jobs.get("/jobs/{id}", summary="A job", responses=answers(JobAnswer) | problems("no-job"), openapi_extra=_ID)
async def get_job(job: KnownJob) -> Response:
    """Return the state of a job. Jobs that have ended are kept for a while, not for ever."""
    return json_answer(job_content(job))


@jobs.get(
    "/jobs/{id}/result",
    summary="The result of a job",
    responses=answers(JobResult, content=CSV) | problems("no-job", "no-result", "invalid-input"),
    openapi_extra={"parameters": [PATH["job"], QUERY["format"]]},
)
async def get_result(request: Request, job: KnownJob) -> Response:
    """Return what a job has found: the answer to a long question, the bundle of a long export, or `result` of the job.

    Answers and bundles are forgotten when samples are erased, and when there are many. A ranking is forgotten when a
    sample that it names is restricted. Only a bundle can be had as CSV, which has the samples alone.
    """
    service = service_of(request)
    (chosen,) = parse_values(request.scope["query_string"], "format")
    csv = wants_csv(request, chosen)
    if chosen == "csv" and job.kind != "export":
        raise invalid("/format", "can be 'csv' for the bundle of an export only")
    if job.result is None:
        raise ProblemError("no-result", _NO_RESULT["failed" if job.has_ended else "unfinished"])
    if job.kind not in KEPT:
        return json_answer(job.result)
    name = job.result[job.kind]
    if job.kind == "influence":
        found: Any = service.questions.influence.kept(name)
    elif job.kind == "export":
        found = service.jobs.exporter.kept(name)
    else:
        found = service.questions.comparer.kept(name)
    if found is None:
        raise ProblemError("no-result")
    if job.kind == "export":
        return await bundle_answer(service, found, csv=csv)
    return json_answer(found if job.kind == "influence" else comparison_content(found))


@jobs.delete(
    "/jobs/{id}",
    summary="Cancel a job",
    responses=answers(JobAnswer) | problems("no-job", "job-uncancellable"),
    openapi_extra=_ID,
)
async def cancel_job(request: Request, job: KnownJob) -> Response:
    """Cancel a job that answers a question or makes a bundle: it is `failed` then. One that has ended stays so."""
    return json_answer(job_content(service_of(request).jobs.board.cancel(job.id)))


@jobs.head("/jobs/{id}/events", include_in_schema=False)
async def head_of_events(job: KnownJob) -> Response:
    """Return the head of the stream at once, not when the job has ended."""
    del job
    return Response(headers={"Cache-Control": "no-cache"}, media_type=EventSourceResponse.media_type)


@jobs.get(
    "/jobs/{id}/events",
    summary="A job's progress",
    response_class=EventSourceResponse,
    responses=problems("no-job"),
    openapi_extra=_ID,
)
async def watch_job(request: Request, job: KnownJob) -> AsyncIterator[ServerSentEvent]:
    """Send the job as `GET /jobs/{id}` has it, as server-sent events: at once, and whenever it has changed.

    The stream ends after the event with `succeeded` or `failed`, and when the server stops. While nothing happens a
    comment is sent now and then, so that the connection stays open. Browsers open a stream that has ended again: close
    it at the last event.
    """
    async for state in service_of(request).jobs.board.watch(job.id):
        yield ServerSentEvent(raw_data=to_json(job_content(state)).decode("utf-8"))
