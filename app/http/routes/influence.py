"""`POST /influence`: which samples made these predictions."""

from typing import Any

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import PATH, body, problems
from oubli.app.http.parsing import explain
from oubli.app.http.problems import ProblemError, invalid, pointer
from oubli.app.http.responses import job_answer, json_answer
from oubli.app.http.schemas.model import JobAnswer
from oubli.app.http.schemas.predictions import InfluenceAnswer, InfluenceRequest
from oubli.app.service.influence import Question
from oubli.app.service.influence_methods import UnfitError
from oubli.core.data.schema import Schema
from oubli.core.errors import InputError

router = APIRouter(tags=["influence"])


@router.post(
    "/influence",
    summary="Explain predictions by their training samples",
    response_model=InfluenceAnswer,
    responses={
        202: {"model": JobAnswer, "description": "It takes long: the job that was begun."},
        **problems(
            "broken-json", "empty-model", "body-too-large", "too-many-rows", "invalid-input", "queue-full", "superseded"
        ),
    },
    openapi_extra=body(InfluenceRequest),
)
async def rank_influence(request: Request) -> Response:
    """Rank the samples held by what they do for the predictions of some rows.

    A positive score says that a sample helps: without it the loss on these rows would be higher. The loss is log-loss
    for classes and squared error for numbers, its mean over the rows. What takes long is answered with a job; its
    result names the ranking, which `GET /influence/{id}` returns until samples are erased.
    """
    context = context_of(request)
    reader = context.reader()
    asked = reader.question(await request.body())
    question = Question(reader.rows(asked.instances), asked.labels, asked.method, asked.update_set, asked.top)
    ranker = context.service.influence
    try:
        found = await ranker.ask(question)
    except UnfitError as error:
        raise invalid("/method", str(error)) from None
    except InputError as error:
        raise _explain(error, asked.instances, reader.schema) from None
    if isinstance(found, dict):
        return json_answer(found)
    return job_answer(found)


@router.get(
    "/influence/{id}",
    summary="The ranking of a long question",
    response_model=InfluenceAnswer,
    responses=problems("no-ranking"),
    openapi_extra={"parameters": [PATH["ranking"]]},
)
async def get_ranking(request: Request) -> Response:
    """Return what a job has ranked.

    Rankings are forgotten when samples are erased or a sample that they name is restricted, and when there are many.
    """
    ranking = context_of(request).service.influence.kept(request.path_params["id"])
    if ranking is None:
        raise ProblemError("no-ranking")
    return json_answer(ranking)


def _explain(error: InputError, instances: list[Any], schema: Schema) -> ProblemError:
    if error.row is not None and error.field is not None and error.field not in schema.names:
        return invalid(pointer("labels", error.row), error.rule)
    return explain(error, lambda row: ("instances", row), instances, schema)
