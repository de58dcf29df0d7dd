"""Trees as tables, as JSON, and as the nodes that rows pass."""

import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from oubli.core.array_types import Array, Hashes, Ints
from oubli.core.drawing import Questions
from oubli.core.engine import Split
from oubli.core.export.trees import Node, ReadModel, Ways, held_categories, trees_of

FORMAT = "oubli-trees"
VERSION = 1
_LARGEST = float(np.finfo(np.float64).max)
_OF_TREE = ("tree", "iteration", "class")
_OF_NODE = ("node", "parent", "depth", "left", "right")
_OF_SPLIT = ("feature", "threshold", "categories", "missing", "text")
_COLUMNS = [*_OF_TREE, *_OF_NODE, *_OF_SPLIT, "n_samples", "counts", "value"]
_TYPES = {"iteration": "Int64", "threshold": "float64", "value": "float64"}  # where values may be missing


def needed(library: str, extra: str) -> Any:
    """Import a library that an export needs; ImportError says how to install it."""
    try:
        return import_module(library)
    except ImportError:
        raise ImportError(f"this needs {library.partition('.')[0]}: pip install {extra}") from None


def _splitter(model: ReadModel) -> Callable[[Split | None], dict[str, Any] | None]:
    """Return what makes plain values of splits: numbers up to the threshold, or the categories listed, go left."""
    columns, names, categories = model.schema_.columns, model.schema_.names, held_categories(model)
    questions = Questions(columns, model.samples_.categories, names)

    def plain(split: Split | None) -> dict[str, Any] | None:
        if split is None:
            return None
        threshold, listed, missing_left = split.threshold, None, split.missing_left
        if held := categories.get(split.feature):
            sides, missing_left = held.sides(split)
            threshold, listed = None, [held.texts[place] for place in np.flatnonzero(sides).tolist()]
        return {
            "feature": names[split.feature],
            "threshold": None if threshold is None else min(threshold, _LARGEST),
            "categories": listed,
            "missing": "left" if missing_left else "right",
            "text": questions.text(split),
        }

    return plain


def _described(model: ReadModel) -> list[dict[str, Any]]:
    """All trees as plain values."""
    classes, plain = model.samples_.classes.classes_array().tolist(), _splitter(model)
    return [
        {
            "says": facts.says,
            "iteration": facts.iteration,
            "class": None if facts.group is None else classes[facts.group],
            "nodes": [
                {name: getattr(node, name) for name in Node.__slots__} | {"split": plain(node.split)} for node in nodes
            ],
        }
        for facts, nodes in trees_of(model)
    ]


def data_frame(model: ReadModel) -> Any:
    """Put all nodes of a model without tags into a pandas DataFrame; see the method of the model."""
    pandas = needed("pandas", "'oubli-server[pandas]'")
    rows = [
        {**one, **node, **(node["split"] or {}), "tree": tree, "node": number}
        for tree, one in enumerate(_described(model))
        for number, node in enumerate(one["nodes"])
    ]
    return pandas.DataFrame(rows, columns=_COLUMNS).astype(_TYPES)


def document(model: ReadModel) -> str:
    """Write all trees of a model without tags as JSON; see the method of the model."""
    described = {
        "format": FORMAT,
        "version": VERSION,
        "kind": model.kind,
        "task": model.task,
        "guarantee": model.guarantee,
        "classes": model.samples_.classes.classes_array().tolist(),
        "columns": [{"name": one.name, "type": one.type, "dtype": one.dtype} for one in model.schema_.columns],
        "start_scores": model.engine_.start_scores,
        "trees": _described(model),
    }
    return json.dumps(described, allow_nan=False)


def decision_path(model: ReadModel, cells: Array, category_hashes: Hashes) -> tuple[Any, Ints]:
    """Say which nodes of a model without tags some encoded rows pass; see the method of the model."""
    sparse = needed("scipy.sparse", "scipy")
    ways = Ways(model.engine_, cells, category_hashes)
    offsets = [0]
    rows, passed = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for _, nodes in trees_of(model, inner_says=False):
        for number, some in ways.passed(nodes):
            rows.append(some)
            passed.append(np.full(len(some), offsets[-1] + number))
        offsets.append(offsets[-1] + len(nodes))
    places = np.concatenate(rows), np.concatenate(passed)
    ones = np.ones(len(places[0]), np.int8)
    return sparse.csr_array((ones, places), shape=(len(cells), offsets[-1])), np.array(offsets)
