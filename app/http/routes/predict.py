"""`POST /predict`."""

from functools import partial

import numpy as np
from fastapi import APIRouter, Request, Response

from oubli.app.http.context import bulk_of, context_of
from oubli.app.http.formats import Format, formats_of
from oubli.app.http.openapi import TABLES, problems, table_body
from oubli.app.http.parsing import explain
from oubli.app.http.problems import invalid
from oubli.app.http.responses import json_answer, prediction_content
from oubli.app.http.schemas.predictions import PredictAnswer, PredictRequest
from oubli.core.errors import InputError

router = APIRouter(tags=["predictions"])


@router.post(
    "/predict",
    summary="Predict",
    response_model=PredictAnswer,
    responses={
        200: {"content": TABLES},
        **problems(
            "broken-json",
            "broken-records",
            "empty-model",
            "body-too-large",
            "record-too-large",
            "too-many-rows",
            "invalid-input",
            "queue-full",
            "model-unusable",
            "model-changed",
        ),
    },
    openapi_extra=table_body(PredictRequest),
)
async def predict(request: Request) -> Response:
    """Predict for some rows, with the model as it is now: every change answered before is in it.

    Rows may also be sent as CSV with a header, as NDJSON (a row a line) or as an Arrow IPC stream, and `Accept` names
    the format of the answer; JSON is the default. A body in one of these formats may be of any size: it is answered
    while it comes in, batch by batch, and each row names the version of the model that predicted it. So read the
    answer while you send. An error after the first batch is the last record of the answer, which is then cut off.

    With `receipt` the answer has a signature over it, the rows, the version, and the root over the samples that the
    model was a function of: keep both, and an audit of that version can say whether that model has answered.
    """
    context = context_of(request)
    given, wanted = formats_of(request.headers)
    if given is not Format.JSON:
        return await bulk_of(request).predict(request, given, wanted)
    reader, service = context.reader(), context.service
    instances, with_receipt = reader.prediction(await request.body())
    if with_receipt and wanted is not Format.JSON:
        raise invalid("/receipt", "is given in JSON answers only: leave it out, or accept JSON")
    rows, root = reader.rows(instances), ""
    try:
        if with_receipt:
            predicted, root = await service.prediction_signer.predict(partial(service.predict, rows))
        else:
            predicted = await service.predict(rows)
    except InputError as error:
        raise explain(error, lambda row: ("instances", row), instances, reader.schema) from None
    if wanted is not Format.JSON:
        return await bulk_of(request).predictions_as(wanted, predicted)
    content = prediction_content(predicted)
    if with_receipt:
        answer = {name: part.tolist() if isinstance(part, np.ndarray) else part for name, part in content.items()}
        version = answer.pop("model_version")
        receipt = await service.prediction_signer.sign(version, root, instances, answer)
        content["receipt"] = receipt._asdict()
    return json_answer(content)
