"""Long work on the model as a whole: verify, scrub, fit. Each answers at once with the job that it began."""

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import IDEMPOTENCY_KEY, KEY_HEADER, body, problems
from oubli.app.http.problems import ProblemError, invalid, pointer
from oubli.app.http.responses import job_answer
from oubli.app.http.schemas.model import FitRequest, JobAnswer
from oubli.app.service.fitting import estimator_of
from oubli.core.data.schema import Schema
from oubli.core.errors import InputError
from oubli.core.parameters import N_JOBS
from oubli.core.registry import KINDS

router = APIRouter(tags=["model"])
_KINDS = sorted({kind for kind, _ in KINDS})


@router.post(
    "/model/verify",
    summary="Verify the model",
    status_code=202,
    response_model=JobAnswer,
    responses=problems("queue-full"),
)
async def verify_model(request: Request) -> Response:
    """Begin to compare the model with a fresh one on the samples held; the result says `ok` and both digests."""
    return job_answer(context_of(request).service.verify_job())


@router.post(
    "/model/scrub",
    summary="Erase now",
    status_code=202,
    response_model=JobAnswer,
    responses=problems("queue-full", "ephemeral", "changes-stopped"),
)
async def scrub_model(request: Request) -> Response:
    """Begin to erase from all files what was unlearned, without waiting for the deadline."""
    return job_answer(context_of(request).service.scrub_job())


@router.post(
    "/model/fit",
    summary="Fit anew",
    status_code=202,
    response_model=JobAnswer,
    responses=problems("broken-json", "body-too-large", "invalid-input", "queue-full", "changes-stopped"),
    openapi_extra={"parameters": [IDEMPOTENCY_KEY], **body(FitRequest, required=False)},
)
async def fit_model(request: Request) -> Response:
    """Begin to fit anew on the samples held, with other parameters; the new model then takes the place of the old.

    Predictions and changes go on meanwhile, and the changes are in the new model as well. A request that comes again
    with the same `Idempotency-Key` is answered with the job of the first.

    The job's result has the model's `score` before and after: accuracy, or R^2 of numbers, on samples that were not
    learned. It is that of the trees that have not learned a sample, where there are such (`out-of-bag`), and else of
    five fits on four fifths of the samples (`5-fold`, by a hash of the id). Of many samples 20,000 are looked at.
    """
    service, sent_body = context_of(request).service, await request.body()
    kind, parameters, scores = _read(sent_body)
    described = service.describe()
    kind = described["kind"] if kind is None else kind
    kept = described["parameters"] if kind == described["kind"] else {}
    # In a thread: the first look at a kind imports it, which reads files and may compile.
    await asyncio.to_thread(check_parameters, kind, parameters, kept, service.state.model.schema_)
    async with service.idempotency_keys.use(request.headers.get(KEY_HEADER), "POST /model/fit", sent_body) as key:
        return job_answer(service.fit_job(kind, parameters, key, scores=scores))


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


def _read(content: bytes) -> tuple[str | None, dict[str, Any], bool]:
    """Return kind and parameters of a body, and whether to score; one that is empty leaves all as it is."""
    try:
        sent = orjson.loads(content) if content else {}
    except orjson.JSONDecodeError:
        raise ProblemError("broken-json") from None
    if not isinstance(sent, dict):
        raise invalid("", "must be a JSON object")
    if not FitRequest.model_fields.keys() >= sent.keys():
        raise invalid("", "has a key that is not known; known are 'kind', 'parameters', 'score'")
    kind, parameters, scores = sent.get("kind"), sent.get("parameters"), sent.get("score", True)
    if kind is not None and kind not in _KINDS:
        raise invalid("/kind", f"must be one of {', '.join(map(repr, _KINDS))}")
    if not isinstance(scores, bool):
        raise invalid("/score", "must be true or false")
    if parameters is None:
        return kind, {}, scores
    if not isinstance(parameters, dict):
        raise invalid("/parameters", "must be an object")
    return kind, parameters, scores


def _rule(error: InputError, name: str, value: Any) -> str:
    """Return what the estimator says of a parameter, without the value that it repeats."""
    for repeated in (f"{name}={value!r} ", f"{name} "):
        if error.rule.startswith(repeated):
            return error.rule.removeprefix(repeated)
    return "has a value that the model does not take"
