"""Kinds are imported when they are asked for, and adding one touches its folder and the registry, and nothing else."""

import inspect
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oubli.core
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import InputError
from oubli.core.estimators import KINDS
from oubli.core.parameters import WEIGHTS, Parameter
from oubli.core.registry import ESTIMATORS, PLACES, parameters_of
from tests.serving import output_of


def test_each_kind_is_what_it_is_called() -> None:
    assert len(KINDS) == 7
    assert all(getattr(oubli.core, estimator.__name__) is estimator for estimator in KINDS.values())
    assert set(oubli.core.__all__) == {*ESTIMATORS, "lightgbm_rows", "load", "warm_up"} <= set(dir(oubli.core))
    assert ("forest", "clustering") not in KINDS
    with pytest.raises(KeyError):
        KINDS["shrub", next(iter(KINDS))[1]]
    with pytest.raises(AttributeError, match="no attribute 'Shrub'"):
        _ = oubli.core.Shrub


def test_a_forest_does_not_bring_the_other_kinds_along() -> None:
    """Only the tables of what can be set of them."""
    script = (
        "import sys; from oubli.core import DynamicForestClassifier; import oubli.app.service.build; "
        "others = ('oubli.core.tree.grow', 'oubli.core.boosting.state', 'oubli.core.influence.methods'); "
        "print([name for name in others if name in sys.modules])"
    )
    assert output_of(sys.executable, "-c", script) == "[]\n"


def test_a_kind_from_elsewhere_is_fitted_changed_saved_loaded_verified_and_set_by_settings(tmp_path: Path) -> None:
    """In a process of its own, because the settings are made of all kinds when they are imported."""
    output_of(sys.executable, "-m", "tests.toy_kind", tmp_path)


@pytest.mark.parametrize(("kind", "task"), list(KINDS))
def test_the_constructor_is_what_the_table_says(kind: str, task: Task) -> None:
    signature = inspect.signature(KINDS[kind, task].__init__)
    defaults: dict[str, Any] = {name: one.default for name, one in signature.parameters.items() if name != "self"}
    table = {one.name: one.of(task) for one in parameters_of(kind)}
    if task is Task.REGRESSION:  # which has no classes; some constructors are those of the classifier all the same
        for name in WEIGHTS:
            defaults.pop(name, None)
            table.pop(name, None)
    assert defaults == {name: one.default for name, one in table.items()}
    for one in table.values():
        if one.name != "random_state":
            one.check(one.default)


# Of parameters that are no plain numbers, texts or truth values.
WRONG: dict[str, list[Any]] = {"max_features": [0, 0.0, 1.01, True, "auto"], "random_state": [-1, 2**63, 0.5, True]}


def wrong_values(one: Parameter) -> list[Any]:
    """Values of another type, and those just outside of the bounds."""
    if one.type is bool:
        return [1, "no", None]
    if one.type is str:
        return ["other", 3, np.array(["gini", "entropy"])]
    if one.type not in (int, float):
        return WRONG.get(one.name, [])
    values: list[Any] = [one.low - 1, "10", True, 1.5 if one.type is int else math.nan]
    high = one.high if one.limit is None else one.limit
    values += [high + 1] if math.isfinite(high) else [math.inf]
    values += {"low": [one.low], "high": [one.high], "": []}[one.opens]
    return values if one.optional else [*values, None]


@pytest.mark.parametrize(("kind", "task"), list(KINDS))
def test_a_wrong_parameter_is_named_with_its_rule_and_nothing_is_fitted(kind: str, task: Task) -> None:
    labels = LabelType.NUMBER if task is Task.REGRESSION else LabelType.STRING
    X, y = [[0.0], [1.0], [2.0]], [1.0, 2.0, 3.0] if task is Task.REGRESSION else ["a", "b", "b"]
    schema = Schema((Column("x0", ColumnType.NUMERIC),), task, labels)
    for one in (parameter.of(task) for parameter in parameters_of(kind)):
        for value in wrong_values(one):
            model: Any = KINDS[kind, task](**{one.name: value})
            for call in (model.fit, lambda X, y, model=model: model.start(schema)):
                with pytest.raises(InputError, match=rf"^{one.name}.* (must be|goes with|is for) ") as caught:
                    call(X, y)
                assert len(str(caught.value)) < 300
                assert not model.__sklearn_is_fitted__()


def test_every_parameter_has_a_text_that_holds_for_all_kinds() -> None:
    texts = [one.text for kind in PLACES for one in parameters_of(kind)]
    assert all(text.endswith(".") and "\n" not in text for text in texts)
