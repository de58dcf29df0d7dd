"""Over HTTP: sets of classes, intervals of numbers and the score of the model, as the library computes them."""

import math
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from oubli import DynamicForestClassifier, DynamicForestRegressor, DynamicTreeClassifier
from oubli.core.data.schema import Schema
from tests.unit.app.support import CLASSES, NUMBERS, make_service, pick, rows, served

N = 300


def model_of(schema: Schema, estimator: Any, **parameters: Any) -> Any:
    y = [float(i % 17) if schema is NUMBERS else "abc"[(i * 7 + i // 11) % 3] for i in range(N)]
    return estimator(random_state=1, **parameters).fit(rows(N), y, schema=schema)


def test_sets_are_those_of_the_library() -> None:
    model = model_of(CLASSES, DynamicForestClassifier, n_estimators=20)
    with served(make_service(model)) as client:
        for by_class in (False, True):
            asked = {"instances": rows(9), "coverage": 0.8, "by_class": by_class}
            answer = client.post("/predict", json=asked).json()
            classes, inside = np.array(answer["classes"]), model.predict_set(rows(9), 0.8, by_class=by_class)
            assert answer["sets"] == [classes[row].tolist() for row in inside]
            assert "intervals" not in answer
        score = client.get("/model?score=true").json()["score"]
        assert pick(score, "metric method n_samples value") == ("accuracy", "out-of-bag", N, model.oob_score_)
        probabilities = model.oob_decision_function_
        truth = [model.samples_.get(name).label for name in model.data_values().ids]
        own = [p[list(classes).index(label)] for p, label in zip(probabilities, truth, strict=True)]
        assert score["log_loss"] == pytest.approx(-np.mean([math.log(max(p, 1e-15)) for p in own]))
        assert score["auc"] == pytest.approx(roc_auc_score(truth, probabilities, multi_class="ovr"))
        bins: dict[int, list[float]] = {}
        for row, label in zip(probabilities, truth, strict=True):
            bins.setdefault(min(int(row.max() * 10), 9), []).append(row.max() - (classes[row.argmax()] == label))
        assert score["calibration_error"] == pytest.approx(sum(abs(sum(gaps)) for gaps in bins.values()) / N)
        assert "score" not in client.get("/model").json()
        assert client.delete("/samples/3").status_code == 200
        score = client.get("/model?score=true").json()["score"]
        assert pick(score, "n_samples model_version") == (N - 1, 2)


def test_intervals_are_those_of_the_library() -> None:
    model = model_of(NUMBERS, DynamicForestRegressor, n_estimators=20)
    with served(make_service(model)) as client:
        answer = client.post("/predict", json={"instances": rows(9), "coverage": 0.8}).json()
        assert answer["intervals"] == model.predict_interval(rows(9), 0.8).tolist()
        wide = client.post("/predict", json={"instances": rows(1), "coverage": 0.999}).json()
        assert wide["intervals"] == [[None, None]]
        score = client.get("/model?score=true").json()["score"]
        assert (score["rmse"] > 0, score.get("auc")) == (True, None)
        refused = client.post("/predict", json={"instances": rows(1), "coverage": 0.5, "by_class": True})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/by_class")


def test_what_a_model_cannot_tell_is_said() -> None:
    with served(make_service(model_of(CLASSES, DynamicTreeClassifier))) as client:
        refused = client.post("/predict", json={"instances": rows(1), "coverage": 0.9})
        assert (refused.status_code, "use a forest" in refused.json()["errors"][0]["detail"]) == (422, True)
        assert client.get("/model?score=true").json()["score"] is None
