from __future__ import annotations

import numpy as np
import pytest

from oubli.app.http.schemas import PredictAnswer
from tests.unit.app.support import NUMBERS, forest, make_service, rows, served


@pytest.fixture(scope="module")
def client():
    with served() as client:
        yield client


def test_predicts_what_the_estimator_predicts(client):
    model = forest()
    answer = client.post("/predict", json={"instances": rows(20)}).json()
    assert answer["predictions"] == model.predict(rows(20)).tolist()
    assert answer["classes"] == ["no", "yes"]
    assert np.array_equal(answer["probabilities"], model.predict_proba(rows(20)))
    assert answer["model_version"] == 1
    PredictAnswer.model_validate(answer)


def test_objects_are_taken_by_name_in_any_order_and_beside_lists(client):
    instances = [{"member": True, "age": 3, "job": "a"}, [3, "a", True]]
    answer = client.post("/predict", json={"instances": instances}).json()
    assert answer["probabilities"][0] == answer["probabilities"][1]


def test_missing_values_and_unseen_categories_are_accepted(client):
    response = client.post("/predict", json={"instances": [[None, None, None], [1, "never seen", False]]})
    assert response.status_code == 200


def test_nobody_may_keep_a_copy(client):
    response = client.post("/predict", json={"instances": rows(1)})
    assert response.headers["cache-control"] == "no-store"


def test_many_rows_at_once_are_the_same(client):
    many = client.post("/predict", json={"instances": rows(3000)}).json()
    few = client.post("/predict", json={"instances": rows(120)}).json()
    assert many["probabilities"][:120] == few["probabilities"]
    assert client.post("/predict", json={"instances": rows(3001)}).status_code == 413


def test_regression_has_neither_classes_nor_probabilities():
    model = forest(60, NUMBERS)
    with served(make_service(model)) as client:
        answer = client.post("/predict", json={"instances": rows(5)}).json()
    assert answer == {"predictions": forest(60, NUMBERS).predict(rows(5)).tolist(), "model_version": 1}


def test_an_empty_model_says_so_and_starts_again():
    with served(make_service(forest(0))) as client:
        response = client.post("/predict", json={"instances": rows(1)})
        assert response.status_code == 409
        assert response.json()["type"].endswith("empty-model")
        assert client.get("/model").json()["classes"] == []
        sample = {"features": rows(1)[0], "label": "maybe"}
        assert client.post("/samples", json={"samples": [sample]}).json()["ids"] == ["0"]
        answer = client.post("/predict", json={"instances": rows(1)}).json()
        assert (answer["predictions"], answer["classes"]) == (["maybe"], ["maybe"])
        assert client.delete("/samples/0").json()["unlearned"] == 1
        assert client.post("/predict", json={"instances": rows(1)}).status_code == 409
