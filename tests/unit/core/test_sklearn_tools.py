"""The estimators at work inside scikit-learn's tools."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, StackingRegressor, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate, learning_curve
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.unit.core.test_sklearn_contract import NAMES, frame, make, samples


def test_pipeline_with_columns_and_pandas_output() -> None:
    X, y = frame()
    X["colour"] = np.where(np.arange(len(X)) % 3 == 0, "red", "blue")
    X.loc[5, "age"] = np.nan
    columns = ColumnTransformer(
        [("scaled", StandardScaler(), ["height", "weight"]), ("filled", SimpleImputer(), ["age"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    pipeline = make_pipeline(columns, make(n_estimators=10)).set_output(transform="pandas")
    pipeline.fit(X, y, dynamicforestclassifier__ids=[f"row {i}" for i in range(len(X))])
    forest = pipeline[-1]
    assert forest.feature_names_in_.tolist() == ["height", "weight", "age", "pulse", "colour"]
    assert forest.schema_.columns[-1].type.value == "categorical"
    forest.delete("row 59")
    assert forest.n_samples_ == 59
    assert pipeline.score(X, y) > 0.9
    assert (pipeline.predict_proba(X).shape, pipeline.classes_.tolist()) == ((60, 2), ["no", "yes"])
    assert "DynamicForestClassifier" in pipeline._repr_html_()


def test_cross_validation_and_learning_curve() -> None:
    X, y = samples()
    ids = np.array([f"id {i}" for i in range(len(X))])
    assert cross_val_score(make(), X, y, cv=3, params={"ids": ids}, error_score="raise").mean() > 0.6
    options = {"train_sizes": [10, 20, 40], "exploit_incremental_learning": True, "error_score": "raise"}
    sizes, _, scores = learning_curve(make(), X, y, cv=3, **options)
    assert sizes.tolist() == [10, 20, 40]
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("tool", [
    CalibratedClassifierCV(make(), cv=3, method="sigmoid"),
    CalibratedClassifierCV(make(), cv=3, method="isotonic", ensemble=False),
    VotingClassifier([("a", make()), ("b", make(random_state=1))], voting="soft"),
    *(BaggingClassifier(make(task), n_estimators=2, random_state=0) for task in ("classification", "tree")),
    *(OneVsRestClassifier(make(task)) for task in ("classification", "tree")),
    *(RFE(make(task), n_features_to_select=2) for task in ("classification", "tree")),
    *(make_pipeline(SelectFromModel(make(task)), make(task)) for task in ("classification", "tree")),
], ids=lambda tool: type(tool).__name__)  # fmt: skip
def test_inside_classifiers(tool: Any) -> None:
    X, y = samples()
    fitted = tool.fit(X, y)
    assert fitted.score(X, y) > 0.8
    assert np.allclose(fitted.predict_proba(X).sum(axis=1), 1.0)


def test_inside_regressors() -> None:
    X, y = samples("regression")
    stack = StackingRegressor([("forest", make("regression"))], final_estimator=make("regression"), cv=3)
    assert stack.fit(X, y).score(X, y) > 0.5
    both = MultiOutputRegressor(make("regression")).fit(X, np.column_stack([y, -y]))
    assert both.predict(X).shape == (60, 2)
    importances = permutation_importance(make("regression").fit(X, y), X, y, n_repeats=2, random_state=0)
    assert int(importances.importances_mean.argmax()) == 1


# Metadata routing


@sklearn.config_context(enable_metadata_routing=True)
def test_metadata_is_routed_through_pipelines_and_searches() -> None:
    X, y = samples()
    ids, subjects = [f"id {i}" for i in range(len(X))], np.array(["ada", "bob", "eve"] * (len(X) // 3))
    asked = make().set_fit_request(ids=True, subjects="owners", sample_weight=True)
    asked.set_score_request(sample_weight=True)
    scaler = StandardScaler().set_fit_request(sample_weight=False)
    pipeline = make_pipeline(scaler, asked).fit(X, y, ids=ids, owners=subjects)
    assert pipeline[-1].samples_.subject("id 1") == "bob"
    search = GridSearchCV(pipeline, {"dynamicforestclassifier__n_estimators": [2, 3]}, cv=3, error_score="raise")
    routed = {"ids": ids, "owners": subjects, "sample_weight": np.ones(len(X))}
    search.fit(X, y, **routed)
    forest = search.best_estimator_[-1]
    assert forest.samples_.ids() == ids
    forest.delete(subjects="ada")
    assert forest.n_samples_ == 40
    scores = cross_validate(clone(asked), X, y, cv=3, params=routed)
    assert np.isfinite(scores["test_score"]).all()


@sklearn.config_context(enable_metadata_routing=True)
@pytest.mark.parametrize("task", NAMES)
def test_what_was_not_asked_for_is_refused_and_works_without(task: str) -> None:
    X, y = samples(task)
    pipeline = make_pipeline(StandardScaler(), make(task)).fit(X, y)
    assert np.isfinite(GridSearchCV(make(task), {"random_state": [1, 2]}, cv=2).fit(X, y).best_score_)
    with pytest.raises(UnsetMetadataPassedError, match="ids"):
        pipeline.fit(X, y, ids=range(len(X)))
    model = make(task).set_fit_request(ids=False)
    assert model.get_metadata_routing().fit.requests["ids"] is False
    with pytest.raises(TypeError, match=r"fit has no parameter 'idz' .* use one of \['ids', 'subjects'"):
        model.set_fit_request(idz=True)
    model.set_partial_fit_request(classes=True)
    fitted = copy.deepcopy(model).fit(X, y)
    for other in (clone(model), clone(fitted), pickle.loads(pickle.dumps(model)), pickle.loads(pickle.dumps(fitted))):  # noqa: S301 - ours
        requests = other.get_metadata_routing()
        assert requests.fit.requests["ids"] is False
        assert requests.fit.requests["subjects"] is None
        assert requests.partial_fit.requests["classes"] is True
    assert make(task).get_metadata_routing().fit.requests["ids"] is None
