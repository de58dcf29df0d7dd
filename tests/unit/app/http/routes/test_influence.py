"""Questions about influence: answered at once or as a job, forgotten with erasures."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import oubli.app.service.compiling
import oubli.app.service.model.influence
from oubli.api.predictions import Influence
from oubli.app.service.jobs.jobs import Asked, JobBoard
from oubli.core import DynamicTreeClassifier, IncrementalBoostingClassifier, OnlineBoostingRegressor
from oubli.core.data.schema import Schema, Task
from oubli.core.influence import influence
from tests.unit.app.support import CLASSES, NUMBERS, forest, make_service, require_conforms, rows, served


def boosted(schema: Schema = CLASSES, n: int = 60) -> Any:
    is_classification = schema.task is Task.CLASSIFICATION
    estimator = IncrementalBoostingClassifier if is_classification else OnlineBoostingRegressor
    model = estimator(n_estimators=5, min_child_weight=0.1, random_state=0)
    labels = [("yes" if i % 4 else "no") if is_classification else i / 8 for i in range(n)]
    return model.fit(rows(n), labels, ids=[f"c{i}" for i in range(n)], schema=schema)


@pytest.fixture(autouse=True)
def _kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions are answered at once, however long their kernels take to be compiled or loaded."""
    monkeypatch.setattr(oubli.app.service.model.influence, "is_influence_prepared", lambda model: True)


def pairs(found: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"id": name, "score": score} for name, score in found]


@pytest.mark.parametrize("make", [boosted, forest])
def test_the_answer_is_the_library_s(make):
    model = make()
    with served(make_service(make())) as client:
        before = client.get("/model").json()
        body = {"instances": rows(3), "labels": ["no", "yes", "yes"], "top": 4}
        answer = client.post("/influence", json=body).json()
        require_conforms(Influence, answer)
        method = "leave-one-out" if make is forest else "leaf-influence"
        found = influence(model, rows(3), ["no", "yes", "yes"], method=method)
        assert answer["helpful"] == pairs(found.helpful(4))
        assert answer["harmful"] == pairs(found.harmful(4))
        assert (answer["method"], answer["n_samples"], answer["model_version"]) == (method, 60, 1)
        after = client.get("/model").json()
        assert {**after, "memory_bytes": 0} == {**before, "memory_bytes": 0}


def test_without_labels_the_predicted_ones_are_meant():
    model = boosted(NUMBERS)
    with served(make_service(boosted(NUMBERS))) as client:
        by_object = [dict(zip(("age", "job", "member"), row, strict=True)) for row in rows(2)]
        answer = client.post(
            "/influence", json={"instances": by_object, "method": "leaf-refit", "update_set": 2}
        ).json()
        found = influence(model, rows(2), model.predict(rows(2)), method="leaf-refit", update_set=2)
        assert answer["helpful"] == pairs(found.helpful())
        assert "structure" in answer["note"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/instances"),
        ({"instances": []}, "/instances"),
        ({"instances": [[1, "a"]]}, "/instances/0"),
        ({"instances": rows(2), "labels": ["yes"]}, "/labels"),
        ({"instances": rows(2), "labels": ["yes", 7]}, "/labels/1"),
        ({"instances": [[1, "a", True], ["strange", "a", True]], "labels": ["no", "no"]}, "/instances/1/0"),
        ({"instances": rows(1), "method": "guess"}, "/method"),
        ({"instances": rows(1), "method": "leave-one-out", "update_set": "single"}, "/method"),
        ({"instances": rows(1), "update_set": 0}, "/update_set"),
        ({"instances": rows(1), "top": 0}, "/top"),
        ({"instances": rows(1), "tops": 3}, ""),
    ],
)
def test_what_cannot_be_asked_is_refused(body, pointer):
    with served(make_service(boosted())) as client:
        answer = client.post("/influence", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == pointer
        assert "strange" not in answer.text


def test_the_kind_decides_which_methods_there_are():
    tree = DynamicTreeClassifier().fit(rows(30), ["yes" if i % 4 else "no" for i in range(30)], schema=CLASSES)
    for model, method in ((tree, None), (forest(), "leaf-influence"), (boosted(NUMBERS), "leave-one-out")):
        with served(make_service(model)) as client:
            asked = {"instances": rows(1)} if method is None else {"instances": rows(1), "method": method}
            answer = client.post("/influence", json=asked)
            assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/method")
    with served(make_service(forest(0))) as client:
        assert client.post("/influence", json={"instances": rows(1)}).status_code == 409


@pytest.mark.parametrize("body", [{}, {"update_set": 2}, {"method": "leaf-refit"}, {"method": "leave-one-out"}])
def test_the_progress_of_a_job_moves(monkeypatch, body):
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.0)
    told: list[float] = []
    advance = JobBoard._advance

    def listen(self: JobBoard, entry: Any, share: float) -> None:
        told.append(share)
        advance(self, entry, share)

    monkeypatch.setattr(JobBoard, "_advance", listen)
    with served(make_service(boosted(n=300))) as client:
        job = client.post("/influence", json={"instances": rows(2), **body}).json()
        while job["status"] in ("queued", "running"):
            time.sleep(0.01)
            job = client.get(f"/jobs/{job['id']}").json()
    assert job["status"] == "succeeded"
    assert len(told) >= 4
    assert told == sorted(set(told))
    assert 0 < told[0] < 0.5
    assert told[-1] == job["progress"] == 1.0


def test_by_default_only_long_questions_are_jobs():
    with served(make_service(boosted())) as client:
        for body in ({}, {"update_set": 2}, {"method": "leaf-refit"}, {"method": "leave-one-out"}):
            assert client.post("/influence", json={"instances": rows(2), **body}).status_code == 200


def test_a_long_question_is_a_job_whose_ranking_goes_with_the_next_erasure(monkeypatch, tmp_path):
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.0)
    with served(make_service(boosted(), tmp_path / "data")) as client:
        answer = client.post("/influence", json={"instances": rows(2)})
        assert answer.status_code == 202
        job = answer.json()
        assert answer.headers["Location"] == f"/jobs/{job['id']}"
        while job["status"] in ("queued", "running"):
            time.sleep(0.01)
            job = client.get(f"/jobs/{job['id']}").json()
        assert (job["status"], job["kind"]) == ("succeeded", "influence")
        assert set(job["result"]) == {"url", "n_samples", "model_version"}
        path = job["result"]["url"]
        ranking = client.get(path).json()
        require_conforms(Influence, ranking)
        model = boosted()
        found = influence(model, rows(2), model.predict(rows(2)))
        assert np.allclose([one["score"] for one in ranking["helpful"]], [score for _, score in found.helpful()])
        assert client.delete(f"/samples/{ranking['helpful'][0]['id']}").status_code == 200
        assert client.post("/snapshot").status_code == 201
        gone = client.get(path)
        assert (gone.status_code, gone.json()["type"].rpartition(":")[2]) == (404, "no-result")


def test_a_cancelled_question_ends_and_holds_nothing_any_more(monkeypatch):
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.0)
    service = make_service(boosted(n=300))
    begun, go_on = threading.Event(), threading.Event()

    def tell(asked: Asked, share: float) -> None:
        begun.set()
        assert go_on.wait(30)

    monkeypatch.setattr(Asked, "tell", tell)
    with served(service) as client:
        body = {"instances": rows(2), "method": "leave-one-out"}
        running, waiting = (client.post("/influence", json=body).json() for _ in range(2))
        assert begun.wait(30)
        for job in (running, waiting):
            answer = client.delete(f"/jobs/{job['id']}")
            assert (answer.status_code, answer.json()["status"]) == (200, "failed")
        go_on.set()
        kept = client.post("/influence", json={"instances": rows(2)}).json()
        while kept["status"] in ("queued", "running"):
            kept = client.get(f"/jobs/{kept['id']}").json()
        assert kept["status"] == "succeeded"
        assert service.model.holders.is_rid(service.model.state.period)


def test_a_question_whose_kernels_take_long_is_a_job_and_then_is_not(monkeypatch, tmp_path):
    """As with an empty kernel cache."""
    monkeypatch.setattr(oubli.app.service.compiling, "_prepared", set())
    monkeypatch.setattr(
        oubli.app.service.model.influence, "is_influence_prepared", oubli.app.service.compiling.is_influence_prepared
    )
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.5)
    compiled = threading.Event()

    def prepare(needs):
        assert compiled.wait(30)
        oubli.app.service.compiling._prepared.add(needs)

    monkeypatch.setattr(oubli.app.service.compiling, "_prepare", prepare)
    body = {"instances": rows(2), "labels": ["no", "yes"]}
    with served(make_service(boosted(), tmp_path / "data")) as client:
        begun = client.post("/influence", json=body)
        assert begun.status_code == 202
        assert client.get("/healthz").status_code == 200
        compiled.set()
        while (job := client.get(begun.headers["Location"]).json())["status"] in ("queued", "running"):
            time.sleep(0.01)
        assert job["status"] == "succeeded", job
        kept = client.get(job["result"]["url"])
        at_once = client.post("/influence", json=body)
        assert (kept.status_code, at_once.status_code) == (200, 200)
        assert kept.json() == at_once.json()


def test_a_wrong_question_is_refused_also_when_kernels_have_to_be_loaded(monkeypatch):
    monkeypatch.setattr(oubli.app.service.compiling, "_prepared", set())
    monkeypatch.setattr(
        oubli.app.service.model.influence, "is_influence_prepared", oubli.app.service.compiling.is_influence_prepared
    )
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 30.0)
    monkeypatch.setattr(oubli.app.service.compiling, "_prepare", oubli.app.service.compiling._prepared.add)
    with served(make_service(boosted())) as client:
        answer = client.post("/influence", json={"instances": rows(2), "labels": ["no", "never"]})
        assert answer.status_code == 422
