"""The kinds of models there are, with their parameters, as people choose them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from oubli.app.service.fitting import estimator_of
from oubli.core.data.schema import Task
from oubli.core.parameters import N_JOBS, Parameter
from oubli.core.registry import PLACES, parameters_of

_TYPES = {int: "integer", float: "number", str: "text", bool: "boolean", object: "integer"}


def kinds_for(task: str, kind: str, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describe the kinds for a task; `KindsAnswer` documents the fields.

    Parameters
    ----------
    task
        Of the model in force.
    kind, parameters
        Its kind and parameters.
    """
    described = []
    for name, place in PLACES.items():
        if Task(task) in place.estimators:
            in_force = name == kind
            values = parameters if in_force else {}
            table = [one.of(task) for one in parameters_of(name) if one.name != N_JOBS]
            described.append(
                {
                    "kind": name,
                    "guarantee": estimator_of(name, Task(task), {}).guarantee,
                    "in_force": in_force,
                    "parameters": [_describe(one, values) for one in table],
                }
            )
    return described


def _describe(one: Parameter, values: Mapping[str, Any]) -> dict[str, Any]:
    greatest = one.high if one.limit is None else one.limit
    return {
        "name": one.name,
        "text": one.text,
        "types": _types_of(one.type),
        "default": one.default,
        "value": values.get(one.name, one.default),
        "least": one.low if math.isfinite(one.low) else None,
        "greatest": greatest if math.isfinite(greatest) else None,
        "choices": list(one.choices) or None,
        "optional": one.optional,
        "none_word": one.none_word,
    }


def _types_of(declared: Any) -> list[str]:
    if isinstance(declared, tuple):
        return [name for one in declared for name in _types_of(one)]
    # A pair of numbers also has a word that stands for one.
    return ["text", "list"] if isinstance(declared, list) else [_TYPES[declared]]
