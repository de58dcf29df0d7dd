"""`POST /predict/without`: what would be predicted without some samples."""

from typing import Any

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import PATH, body, problems
from oubli.app.http.parsing import explain
from oubli.app.http.problems import ProblemError
from oubli.app.http.responses import job_answer, json_answer, result_content
from oubli.app.http.schemas.inspection import WithoutAnswer, WithoutRequest
from oubli.app.http.schemas.model import JobAnswer
from oubli.app.service.without import Absence, Comparison
from oubli.core.errors import InputError

router = APIRouter(tags=["predictions"])


@router.post(
    "/predict/without",
    summary="Predict as if some samples had never been learned",
    response_model=WithoutAnswer,
    responses={
        202: {"model": JobAnswer, "description": "It takes long: the job that was begun."},
        **problems(
            "broken-json",
            "empty-model",
            "not-exact",
            "body-too-large",
            "too-many-rows",
            "invalid-input",
            "queue-full",
            "model-unusable",
            "superseded",
        ),
    },
    openapi_extra=body(WithoutRequest),
)
async def predict_without(request: Request) -> Response:
    """Predict with the model as it is, and with a copy of it that has unlearned some samples; nothing is changed.

    The copy of an exact model is the model that training without these samples would give, bit for bit; other kinds are
    refused. What takes long is answered with a job; its result names the comparison, which
    `GET /predict/without/{id}` returns until samples are erased.
    """
    context = context_of(request)
    reader = context.reader()
    instances, ids, subjects = reader.absence(await request.body())
    try:
        found = await context.service.comparer.ask(Absence(reader.rows(instances), ids, subjects))
    except InputError as error:
        raise explain(error, lambda row: ("instances", row), instances, reader.schema) from None
    if isinstance(found, Comparison):
        return json_answer(_content(found))
    return job_answer(found)


@router.get(
    "/predict/without/{id}",
    summary="The comparison of a long question",
    response_model=WithoutAnswer,
    responses=problems("no-comparison"),
    openapi_extra={"parameters": [PATH["comparison"]]},
)
async def get_comparison(request: Request) -> Response:
    """Return what a job has found. Comparisons are forgotten when samples are erased, and when there are many."""
    found = context_of(request).service.comparer.kept(request.path_params["id"])
    if found is None:
        raise ProblemError("no-comparison")
    return json_answer(_content(found))


def _content(found: Comparison) -> dict[str, Any]:
    return {
        "with": result_content(found.with_them),
        "without": None if found.without_them is None else result_content(found.without_them),
        "removed": found.removed,
        "absent": found.absent,
        "n_samples": found.n_samples,
        "model_version": found.model_version,
    }
