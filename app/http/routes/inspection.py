"""What people look at: importances, trees, columns, kinds of models."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request, Response

from oubli.app.http.context import context_of
from oubli.app.http.openapi import PATH, QUERY, problems
from oubli.app.http.parsing import one_value, parse_query
from oubli.app.http.problems import invalid
from oubli.app.http.responses import json_answer
from oubli.app.http.schemas.inspection import ColumnsAnswer, ImportancesAnswer, KindsAnswer, TreeAnswer
from oubli.app.service.kinds import kinds_for
from oubli.core.drawing import LONGEST_PATH, MOST_LEVELS

router = APIRouter(tags=["model"])
_DEFAULT_LEVELS = 3


@router.get(
    "/model/importances",
    summary="What the trees split by",
    response_model=ImportancesAnswer,
    responses=problems("queue-full", "model-unusable"),
)
async def get_importances(request: Request) -> Response:
    """Return each feature's share in what all splits gain. Takes a while where the model is large."""
    return json_answer(await context_of(request).service.inspector.importances())


@router.get(
    "/model/trees/{n}",
    summary="A part of a tree",
    response_model=TreeAnswer,
    responses=problems("invalid-input", "no-tree", "queue-full", "model-unusable"),
    openapi_extra={"parameters": [PATH["tree"], QUERY["node"], QUERY["levels"]]},
)
async def get_tree(request: Request) -> Response:
    """Return a node of a tree with some levels below it, in the names of columns and categories, without samples.

    Trees change with the samples: a node that was there a moment ago may be gone.
    """
    query = parse_query(request.scope["query_string"], ("node", "levels"))
    path, levels = one_value(query, "node") or "", one_value(query, "levels")
    if len(path) > LONGEST_PATH or path.strip("lr"):
        raise invalid("/node", f"must be the way from the root: at most {LONGEST_PATH} letters, 'l' and 'r'")
    shown = _number(levels, "levels", MOST_LEVELS) if levels is not None else _DEFAULT_LEVELS
    number = _number(request.path_params["n"], "n", 10**9)
    return json_answer(await context_of(request).service.inspector.tree(number, path, shown))


@router.get(
    "/model/columns",
    summary="What the columns hold",
    response_model=ColumnsAnswer,
    responses=problems("queue-full", "model-unusable"),
)
async def get_columns(request: Request) -> Response:
    """Return the range of each numeric column and the categories of the others, as the samples have them."""
    return json_answer(await context_of(request).service.inspector.columns())


@router.get("/model/kinds", summary="Kinds of models", response_model=KindsAnswer, responses=problems())
async def get_kinds(request: Request) -> Response:
    """Return the kinds of models that `POST /model/fit` takes here, with their parameters."""
    described: dict[str, Any] = context_of(request).service.describe()
    task, kind, parameters = (described[name] for name in ("task", "kind", "parameters"))
    # In a thread: the first look at a kind imports it, which reads files and may compile.
    return json_answer({"kinds": await asyncio.to_thread(kinds_for, task, kind, parameters)})


def _number(text: str, name: str, most: int) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= most:
        return int(text)
    raise invalid(f"/{name}", f"must be a whole number from 0 to {most}")
