"""What would be predicted without some samples: the library's answer, at once or as a job, and nothing is changed."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

import oubli.app.service.model.influence
from oubli.api.predictions import WithoutAnswer
from oubli.core import DynamicTreeClassifier, IncrementalBoostingClassifier, OnlineBoostingClassifier
from tests.unit.app.support import CLASSES, NUMBERS, ended, forest, make_service, require_conforms, rows, served

LABELS = ["yes" if i % 4 else "no" for i in range(60)]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is answered at once, however slow the machine is."""
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 120.0)


def boosted(estimator: Any = IncrementalBoostingClassifier) -> Any:
    model = estimator(n_estimators=5, random_state=0)
    model.fit(rows(60), LABELS, ids=[f"c{i}" for i in range(60)], schema=CLASSES)
    for i in range(60):
        model.samples_.set_subject(f"c{i}", f"s{i % 5}")
    return model


@pytest.mark.parametrize("make", [forest, lambda: forest(schema=NUMBERS), boosted])
@pytest.mark.parametrize("by_subject", [False, True])
def test_the_answer_is_that_of_a_model_that_was_never_told(make: Any, by_subject: bool) -> None:
    gone = {i for i in range(60) if (i % 5 in (1, 3) if by_subject else i in (4, 5, 17))}
    named = {"subjects": ["s1", "s3", "nobody"]} if by_subject else {"ids": ["c4", "c5", "c17", "c4", "x1", "x2"]}
    model, rest = make(), [i for i in range(60) if i not in gone]
    held = [model.samples_.get(f"c{i}") for i in rest]
    fresh = type(model)(**model.get_params()).fit(
        [one.features for one in held], [one.label for one in held], ids=[one.id for one in held], schema=model.schema_
    )
    with served(make_service(make())) as client:
        before = client.get("/model").json()
        answer = client.post("/predict/without", json={"instances": rows(7), **named}).json()
        require_conforms(WithoutAnswer, answer)
        now = client.post("/predict", json={"instances": rows(7)}).json()
        assert answer["with"] == {name: value for name, value in now.items() if name != "model_version"}
        assert answer["without"]["predictions"] == fresh.query(rows(7)).labels.tolist()
        if model.schema_ is CLASSES:
            assert answer["without"]["classes"] == fresh.classes_.tolist()
            assert np.array_equal(answer["without"]["probabilities"], fresh.predict_proba(rows(7)))
        assert (answer["removed"], answer["n_samples"]) == (len(gone), len(rest))
        assert answer["absent"] == (1 if by_subject else 2)
        after = client.get("/model").json()
        assert {**after, "memory_bytes": 0} == {**before, "memory_bytes": 0}


def test_without_anybody_there_is_no_prediction() -> None:
    with served(make_service(forest(10))) as client:
        answer = client.post("/predict/without", json={"instances": rows(1), "subjects": [f"s{i}" for i in range(5)]})
        assert (answer.json()["without"], answer.json()["n_samples"], answer.json()["removed"]) == (None, 0, 10)
        assert client.post("/predict", json={"instances": rows(1)}).status_code == 200


def test_what_is_restricted_is_not_learned_from() -> None:
    with served(make_service()) as client:
        client.post("/subjects/restrict", json={"subjects": ["s2"]})
        for named in ({"subjects": ["s2"]}, {"ids": ["c7"]}):
            answer = client.post("/predict/without", json={"instances": rows(2), **named}).json()
            assert (answer["removed"], answer["absent"]) == (0, 1)
            assert answer["with"] == answer["without"]


@pytest.mark.parametrize("estimator", [DynamicTreeClassifier, OnlineBoostingClassifier])
def test_kinds_that_are_not_exact_are_refused(estimator: Any) -> None:
    model = estimator(random_state=0).fit(rows(60), LABELS, schema=CLASSES)
    with served(make_service(model)) as client:
        answer = client.post("/predict/without", json={"instances": rows(1), "ids": ["1"]})
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:oubli:problem:not-exact")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"ids": ["c1"]}, "/instances"),
        ({"instances": rows(1)}, ""),
        ({"instances": rows(1), "ids": ["c1"], "subjects": ["s1"]}, ""),
        ({"instances": rows(1), "ids": []}, "/ids"),
        ({"instances": rows(1), "subjects": [[]]}, "/subjects/0"),
        ({"instances": [[1, "a"]], "ids": ["c1"]}, "/instances/0"),
        ({"instances": [[1, "a", True], ["strange", "a", True]], "ids": ["c1"]}, "/instances/1/0"),
        ({"instances": rows(101), "ids": ["c1"]}, "/instances"),
        ({"instances": rows(1), "ids": ["c1"], "top": 1}, ""),
    ],
)
def test_what_cannot_be_asked_is_refused(body: Any, pointer: str) -> None:
    with served(make_service()) as client:
        answer = client.post("/predict/without", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == pointer
        assert "strange" not in answer.text
        assert not client.app.state.context.service.model.holders._holds  # type: ignore[attr-defined]


def test_what_takes_long_is_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(make_service()) as client:
        body = {"instances": rows(3), "ids": ["c1", "c2"]}
        expected = client.post("/predict/without", json=body).json()
        monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.0)
        begun = client.post("/predict/without", json=body)
        assert (begun.status_code, begun.json()["kind"]) == (202, "without")
        assert begun.headers["location"] == f"/jobs/{begun.json()['id']}"
        job = ended(client, begun.json())
        assert (job["status"], job["result"]["model_version"]) == ("succeeded", 1)
        place = job["result"]["url"]
        assert client.get(place).json() == expected
        monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 120.0)
        client.app.state.context.service.model.holders._forget_until(99)  # type: ignore[attr-defined]
        gone = client.get(place)
        assert (gone.status_code, gone.json()["type"]) == (404, "urn:oubli:problem:no-result")


def test_there_is_one_copy_at_a_time_and_few_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, compare = threading.Event(), oubli.app.service.model.influence._compare
    n_copies: list[int] = []

    def slow(*arguments: Any) -> Any:
        n_copies.append(1)
        assert gate.wait(60)
        return compare(*arguments)

    monkeypatch.setattr(oubli.app.service.model.influence, "_compare", slow)
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 0.05)
    with served(make_service()) as client:
        body = {"instances": rows(1), "ids": ["c1"]}
        begun = [client.post("/predict/without", json=body) for _ in range(4)]
        assert [one.status_code for one in begun] == [202] * 4
        assert client.post("/predict/without", json=body).status_code == 429
        assert len(n_copies) == 1
        assert client.post("/predict", json={"instances": rows(1)}).status_code == 200
        gate.set()
        assert {ended(client, one.json())["status"] for one in begun} == {"succeeded"}
        assert len(n_copies) == 4
        assert client.post("/predict/without", json=body).status_code in (200, 202)
        while client.app.state.context.service.model.holders._holds:  # type: ignore[attr-defined]
            time.sleep(0.01)


def test_a_question_that_fails_leaves_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    shredded = []
    let_go = oubli.app.service.model.influence.let_go_of

    def fail(*arguments: Any) -> Any:
        raise MemoryError("SEKRET")

    monkeypatch.setattr(oubli.app.service.model.influence, "_compare", fail)
    monkeypatch.setattr(oubli.app.service.model.influence, "let_go_of", lambda copy: (shredded.append(1), let_go(copy)))
    with served(make_service()) as client:
        answer = client.post("/predict/without", json={"instances": rows(1), "ids": ["c1"]})
        assert answer.status_code == 503
        assert "SEKRET" not in answer.text
        assert shredded == [1]
        assert not client.app.state.context.service.model.holders._holds  # type: ignore[attr-defined]
        monkeypatch.undo()
        assert client.post("/predict/without", json={"instances": rows(1), "ids": ["c1"]}).status_code in (200, 202)
