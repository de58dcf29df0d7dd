"""Predictions: as the model is, as it would be without some samples, and which samples made them."""

from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from oubli.api.model import Job
from oubli.api.predictions import (
    ExplainRequest,
    Explanations,
    Influence,
    InfluenceRequest,
    PredictAnswer,
    PredictRequest,
    WithoutAnswer,
    WithoutRequest,
)
from oubli.app.http.bulk.answers import bulk_of
from oubli.app.http.formats import Format, formats_of
from oubli.app.http.openapi import COLUMNS, ROWS_INPUT, TABLE_INPUT, TABLES, answers, body, problems, table_body
from oubli.app.http.parsing import context_of, explain, read, reader_of
from oubli.app.http.problems import ProblemError, invalid, pointer
from oubli.app.http.responses import comparison_content, job_answer, json_answer, prediction_content
from oubli.app.service.model.influence import Absence, Comparison, Question, UnfitError
from oubli.app.service.model.questions import ExplanationError
from oubli.core.data.schema import Schema, Task
from oubli.core.errors import InputError, UnavailableError

router = APIRouter(tags=["predictions"])
influence = APIRouter(tags=["influence"])


@router.post(
    "/predict",
    summary="Predict",
    responses={
        **answers(PredictAnswer, content=TABLES),
        **problems(*TABLE_INPUT, "empty-model", "model-unusable", "model-changed"),
    },
    openapi_extra={"parameters": COLUMNS, **table_body(PredictRequest)},
)
async def predict(request: Request) -> Response:
    """Predict for some rows with the current model, which includes every change that was answered before.

    You can also send rows as CSV with a header, as NDJSON (a row a line) or as an Arrow IPC stream. `Accept` names the
    format of the answer; JSON is the default. A body in one of these formats may have any size: the server answers it
    batch by batch while it arrives, and each row names the version of the model that predicted it. So read the answer
    while you send. After an error behind the first batch, the last record of the answer is the error, and the answer is
    cut off.

    With `receipt` the server signs the rows, the answer, the version and the root over the samples of the model. Keep
    rows and answer: an audit of that version can check whether that model gave the answer.

    With `coverage` the answer has, for each row, the set of classes or the interval of numbers that holds the right one
    with this probability. A forest computes it from samples that trees have not learned, boosting with `early_stopping`
    from the samples that it validates on. The first such request after a change takes longer.
    """
    context = context_of(request)
    given, wanted = formats_of(request.headers)
    if given is not Format.JSON:
        return await bulk_of(request).predict(request, given, wanted)
    service, (reader, _) = context.service, reader_of(request)
    asked = await read(reader.prediction, await request.body())
    if wanted is not Format.JSON and (asked.with_receipt or asked.coverage is not None):
        name = "receipt" if asked.with_receipt else "coverage"
        raise invalid(pointer(name), "is answered in JSON only: leave it out, or accept JSON")
    if asked.with_receipt and asked.coverage is not None:
        raise invalid("/coverage", "is not signed: leave `receipt` out, or ask twice")
    if asked.by_class and reader.schema.task is Task.REGRESSION:
        raise invalid("/by_class", "is for classes: leave it out")
    root, ranges = "", dict[str, Any]()
    try:
        if asked.with_receipt:
            predicted, root = await service.evidence.signer.predict(partial(service.questions.predict, asked.rows))
        elif asked.coverage is not None:
            predicted, ranges = await service.questions.predict_ranges(asked.rows, asked.coverage, asked.by_class)
        else:
            predicted = await service.questions.predict(asked.rows)
    except UnavailableError as error:
        raise invalid("/coverage", error.rule) from None
    except InputError as error:
        raise explain(error, lambda row: ("instances", row), asked.instances, reader.schema) from None
    if wanted is not Format.JSON:
        return await bulk_of(request).predictions_as(wanted, predicted)
    content = {**prediction_content(predicted), **ranges}
    if asked.with_receipt:
        answer = {name: part.tolist() if isinstance(part, np.ndarray) else part for name, part in content.items()}
        version = answer.pop("model_version")
        receipt = await service.evidence.signer.sign(version, root, asked.instances, answer)
        content["receipt"] = receipt._asdict()
    return json_answer(content)


@router.post(
    "/predict/without",
    summary="Predict as if some samples had never been learned",
    responses={
        **answers(WithoutAnswer),
        **answers(Job, 202, "It takes long: the job that was begun."),
        **problems(*ROWS_INPUT, "empty-model", "not-exact", "model-unusable", "superseded"),
    },
    openapi_extra={"parameters": COLUMNS, **body(WithoutRequest)},
)
async def predict_without(request: Request) -> Response:
    """Predict with the model, and with a copy of it that has unlearned some samples. The model does not change.

    The copy of an exact model is the model that training without these samples would give, bit for bit; other kinds are
    refused. What takes long is answered with a job: `GET /jobs/{id}/result` returns the comparison until samples are
    erased.
    """
    context = context_of(request)
    reader, _ = reader_of(request)
    instances, ids, subjects = await read(reader.absence, await request.body())
    try:
        found = await context.service.questions.comparer.ask(Absence(reader.rows(instances), ids, subjects))
    except InputError as error:
        raise explain(error, lambda row: ("instances", row), instances, reader.schema) from None
    if isinstance(found, Comparison):
        return json_answer(comparison_content(found))
    return job_answer(found)


@router.post(
    "/explain",
    summary="Explain predictions by their features",
    responses={**answers(Explanations), **problems(*ROWS_INPUT, "empty-model", "model-unusable")},
    openapi_extra={"parameters": COLUMNS, **body(ExplainRequest)},
)
async def explain_predictions(request: Request) -> Response:
    """Say what each feature adds to the predictions for some rows: Shapley values, computed from the trees.

    With `change`, also find for each row the smallest change of one or two features that changes its prediction. The
    answer shows more of the samples than predictions do, so it needs a scope of its own.
    """
    context = context_of(request)
    reader, _ = reader_of(request)
    instances, change = await read(reader.explanation, await request.body())
    try:
        found = await context.service.questions.explain(reader.rows(instances), change)
    except ExplanationError as error:
        raise invalid(error.place, str(error)) from None
    except UnavailableError as error:
        raise invalid("", error.rule) from None
    except InputError as error:
        raise explain(error, lambda row: ("instances", row), instances, reader.schema) from None
    return json_answer(found)


@influence.post(
    "/influence",
    summary="Explain predictions by their training samples",
    responses={
        **answers(Influence),
        **answers(Job, 202, "It takes long: the job that was begun."),
        **problems(*ROWS_INPUT, "empty-model", "superseded"),
    },
    openapi_extra={"parameters": COLUMNS, **body(InfluenceRequest)},
)
async def rank_influence(request: Request) -> Response:
    """Rank the samples held by what they do for the predictions of some rows.

    A positive score says that a sample helps: without it the loss on these rows would be higher. The loss is log-loss
    for classes and squared error for numbers, its mean over the rows. What takes long is answered with a job:
    `GET /jobs/{id}/result` returns the ranking until samples are erased.
    """
    context = context_of(request)
    reader, _ = reader_of(request)
    asked = await read(reader.question, await request.body())
    question = Question(reader.rows(asked.instances), asked.labels, asked.method, asked.update_set, asked.top)
    ranker = context.service.questions.influence
    try:
        found = await ranker.ask(question)
    except UnfitError as error:
        raise invalid("/method", str(error)) from None
    except InputError as error:
        raise _explain(error, asked.instances, reader.schema) from None
    if isinstance(found, dict):
        return json_answer(found)
    return job_answer(found)


def _explain(error: InputError, instances: list[Any], schema: Schema) -> ProblemError:
    if error.row is not None and error.field is not None and error.field not in schema.names:
        return invalid(pointer("labels", error.row), error.rule)
    return explain(error, lambda row: ("instances", row), instances, schema)
