"""What models show in a prompt or a notebook: names for users alone, and short texts of what they return."""

import inspect
import re
from typing import Any

import numpy as np
import pytest

from oubli.core import DynamicForestClassifier, DynamicForestRegressor, IncrementalBoostingClassifier
from oubli.core.engine import TreeComparison, Verification
from oubli.core.estimators import KINDS
from oubli.core.influence import influence

MOST_METHODS = 42
OF_SERVICES = {
    *("wipe", "shred", "bytes_asked", "plan_add", "apply", "to_parts", "restrict", "lock", "small_parameters"),
    *("engine_type", "read_settings", "is_usable", "check_invariants", "problem", "hold", "yields_"),
}
X, Y = [[float(i % 7), float(i % 3)] for i in range(40)], [i % 2 for i in range(40)]


def fitted(estimator: Any) -> Any:
    return estimator(**({} if estimator.kind == "tree" else {"n_estimators": 3})).fit(X, Y)


def names_of(model: Any) -> set[str]:
    return {name for name in dir(model) if not name.startswith("_")}


@pytest.mark.parametrize("key", list(KINDS), ids=lambda key: KINDS[key].__name__)
def test_names_are_those_for_users_and_each_is_documented(key: Any) -> None:
    model = fitted(KINDS[key])
    names = names_of(model)
    assert names.isdisjoint(OF_SERVICES)
    assert {name for name in OF_SERVICES if hasattr(model, name)} >= OF_SERVICES
    assert {"fit", "add", "delete", "predict", "verify", "save", "to_lightgbm", "n_samples_", "schema_"} <= names
    assert set(model.get_params()) | {name for name in vars(model) if not name.startswith("_")} <= names
    assert names - set(dir(type(model))) <= set(vars(model))
    methods = [name for name in names if inspect.isroutine(inspect.getattr_static(type(model), name, None))]
    assert len(methods) <= MOST_METHODS
    unsaid = []
    for name in methods:
        method = getattr(model, name)
        text = inspect.getdoc(method) or ""
        asked = inspect.signature(method).parameters.values()
        parameters = {one.name for one in asked if one.kind is not inspect.Parameter.VAR_KEYWORD}
        is_said = "Parameters\n" in text or ">>>" in text or re.search(r"Parameters (and errors )?are those of", text)
        # Those that every tool for scikit-learn knows need no words.
        if not text or not (is_said or parameters <= {"X", "y", "sample_weight", "deep"}):
            unsaid.append(name)
    assert unsaid == []


def test_what_is_internal_still_works_and_unfitted_models_have_names() -> None:
    model = fitted(DynamicForestClassifier)
    assert model.class_order().tolist() == [0, 1]
    assert "__repr__" in dir(model)
    unfitted = names_of(DynamicForestClassifier())
    assert "fit" in unfitted
    assert unfitted.isdisjoint(OF_SERVICES)


def test_texts_of_what_models_return_are_short() -> None:
    model = IncrementalBoostingClassifier(n_estimators=3, random_state=0).fit(X, Y)
    assert repr(model.verify()) == "Verification(ok, 3 trees)"
    wrong = Verification("a", "b", [TreeComparison(0, "c", "d")], ["leaf values, tree 0: wrong places: 2"])
    assert repr(wrong) == "Verification(wrong: leaf values, tree 0: wrong places: 2 and 1 more, 1 trees)"
    assert repr(influence(model, X[:4], Y[:4])) == "Influence('leaf-influence', 40 samples)"
    assert repr(influence(model, X[:4], Y[:4], reduce=None)) == "Influence('leaf-influence', 40 samples, 4 rows)"
    rows = [["u", 1.0, True], ["v", 2.0, False], ["v", None, True]]
    schema = model.fit(rows, [0, 1, 1]).schema_
    assert repr(schema) == "Schema(classification of 'label' by 1 categorical, 1 numeric, 1 boolean)"
    regressor = DynamicForestRegressor(n_estimators=2).fit(np.ones((3, 2000)), [1.0, 2.0, 3.0])
    assert repr(regressor.schema_) == "Schema(regression of 'label' by 2000 numeric)"
