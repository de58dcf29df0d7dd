"""Questions about influence, and predictions without some samples: answered at once or as a job, and forgotten."""

import threading
from typing import Any

import numpy as np
import pytest

from oubli.app.service import compiling
from oubli.app.service.jobs.jobs import Asked, JobBoard
from oubli.app.service.model import influence as asking
from oubli.core.influence import influence
from tests.unit.app.hosted import wait_until
from tests.unit.app.support import NUMBERS, boosted, ended, fitted, forest, make_service, pick, problem_of, rows, served

pytestmark = pytest.mark.usefixtures("patient")


def pairs(found: list[tuple[str, float]]) -> list[dict[str, Any]]:
    return [{"id": name, "score": score} for name, score in found]


LABELS, FEW = ["no", "yes", "yes"], {"method": "leaf-refit", "update_set": 2}
CASES = [(boosted, LABELS, {"method": "leaf-influence"}), (forest, LABELS, {"method": "leaf-refit"})]
CASES += [(lambda: boosted(NUMBERS), None, FEW)]  # the predicted labels are meant


@pytest.mark.parametrize(("make", "labels", "asked"), CASES)
def test_the_answer_is_the_library_s(make, labels, asked):
    model = make()
    with served(make_service(make())) as client:
        before = client.get("/model").json()
        by_object = [dict(zip(("age", "job", "member"), row, strict=True)) for row in rows(3)]
        more = asked if labels is None else {"labels": labels}  # the method of the kind is meant
        answer = client.post("/influence", json={"instances": by_object, "top": 4, **more}).json()
        found = influence(model, rows(3), labels or model.predict(rows(3)), **asked)
        assert pick(answer, "helpful harmful") == (pairs(found.helpful(4)), pairs(found.harmful(4)))
        assert pick(answer, "method n_samples model_version") == (asked["method"], 60, 1)
        assert labels or "structure" in answer["note"]
        after = client.get("/model").json()
        assert {**after, "memory_bytes": 0} == {**before, "memory_bytes": 0}


def test_the_kind_decides_which_methods_there_are():
    tree = fitted("tree", 30)
    wrong = ((tree, {}), (forest(), {"method": "leaf-influence"}), (boosted(NUMBERS), {"method": "leave-one-out"}))
    for model, more in wrong:
        with served(make_service(model)) as client:
            answer = client.post("/influence", json={"instances": rows(1), **more})
            assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/method")
            if model.guarantee != "exact":
                without = client.post("/predict/without", json={"instances": rows(1), "ids": ["1"]})
                assert problem_of(without) == (409, "not-exact")
    with served(make_service(forest(0))) as client:
        assert client.post("/influence", json={"instances": rows(1)}).status_code == 409


@pytest.mark.parametrize("body", [{}, {"update_set": 2}, {"method": "leaf-refit"}, {"method": "leave-one-out"}])
def test_the_progress_of_a_job_moves(monkeypatch, body):
    monkeypatch.setattr(asking, "_LONG", 0.0)
    told: list[float] = []
    advance = JobBoard._advance

    def listen(self: JobBoard, entry: Any, share: float) -> None:
        told.append(share)
        advance(self, entry, share)

    monkeypatch.setattr(JobBoard, "_advance", listen)
    with served(make_service(boosted(n=300))) as client:
        job = ended(client, client.post("/influence", json={"instances": rows(2), **body}).json())
    assert (job["status"], job["progress"], told[-1]) == ("succeeded", 1.0, 1.0)
    assert len(told) >= 4
    assert told == sorted(set(told))
    assert 0 < told[0] < 0.5


@pytest.mark.parametrize(("path", "more"), [("/influence", {}), ("/predict/without", {"ids": ["c1", "c2"]})])
def test_what_takes_long_is_a_job_whose_answer_goes_with_the_next_erasure(path, more, monkeypatch, tmp_path):
    body = {"instances": rows(2), **more}
    with served(make_service(boosted(), tmp_path / "data")) as client:
        expected = client.post(path, json=body)
        assert expected.status_code == 200
        monkeypatch.setattr(asking, "_LONG", 0.0)
        begun = client.post(path, json=body)
        assert (begun.status_code, begun.headers["Location"]) == (202, f"/jobs/{begun.json()['id']}")
        job = ended(client, begun.json())
        assert (job["status"], job["kind"]) == ("succeeded", path.rpartition("/")[2])
        assert set(job["result"]) - {"n_samples"} == {"url", "model_version"}
        assert client.get(job["result"]["url"]).json() == expected.json()
        assert client.delete("/samples/c9").status_code == 200
        assert client.post("/snapshot").status_code == 201
        assert problem_of(client.get(job["result"]["url"])) == (404, "no-result")


def test_a_cancelled_question_ends_and_holds_nothing_any_more(monkeypatch):
    monkeypatch.setattr(asking, "_LONG", 0.0)
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
        assert ended(client, client.post("/influence", json={"instances": rows(2)}).json())["status"] == "succeeded"
        assert service.model.holders.is_rid(service.model.state.period)


def test_a_question_whose_kernels_take_long_is_a_job_and_then_is_not(monkeypatch, tmp_path):
    """As with an empty kernel cache."""
    monkeypatch.setattr(compiling, "_prepared", set())
    monkeypatch.setattr(asking, "is_influence_prepared", compiling.is_influence_prepared)
    monkeypatch.setattr(asking, "_LONG", 0.5)
    compiled = threading.Event()

    def prepare(needs):
        assert compiled.wait(30)
        compiling._prepared.add(needs)

    monkeypatch.setattr(compiling, "_prepare", prepare)
    body = {"instances": rows(2), "labels": ["no", "yes"]}
    with served(make_service(boosted(), tmp_path / "data")) as client:
        begun = client.post("/influence", json=body)
        assert [begun.status_code, client.get("/healthz").status_code] == [202, 200]
        compiled.set()
        kept = client.get(ended(client, begun.json())["result"]["url"])
        at_once = client.post("/influence", json=body)
        assert (kept.status_code, at_once.status_code) == (200, 200)
        assert kept.json() == at_once.json()
        monkeypatch.setattr(asking, "_LONG", 30.0)
        compiling._prepared.clear()
        assert client.post("/influence", json={**body, "labels": ["no", "never"]}).status_code == 422


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
        now = client.post("/predict", json={"instances": rows(7)}).json()
        assert answer["with"] == {name: value for name, value in now.items() if name != "model_version"}
        assert answer["without"]["predictions"] == fresh.query(rows(7)).labels.tolist()
        if model.schema_ is not NUMBERS:
            assert answer["without"]["classes"] == fresh.classes_.tolist()
            assert np.array_equal(answer["without"]["probabilities"], fresh.predict_proba(rows(7)))
        assert pick(answer, "removed n_samples absent") == (len(gone), len(rest), 1 if by_subject else 2)
        after = client.get("/model").json()
        assert {**after, "memory_bytes": 0} == {**before, "memory_bytes": 0}


def test_what_is_restricted_is_not_learned_from_and_without_anybody_there_is_no_prediction() -> None:
    with served() as client:
        client.post("/subjects/restrict", json={"subjects": ["s2"]})
        for named in ({"subjects": ["s2"]}, {"ids": ["c7"]}):
            answer = client.post("/predict/without", json={"instances": rows(2), **named}).json()
            assert pick(answer, "removed absent with") == (0, 1, answer["without"])
        everybody = {"instances": rows(1), "subjects": [f"s{i}" for i in range(5)]}
        answer = client.post("/predict/without", json=everybody).json()
        assert pick(answer, "without n_samples removed") == (None, 0, 48)


def test_there_is_one_copy_at_a_time_and_few_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, compare = threading.Event(), asking._compare
    n_copies: list[int] = []

    def slow(*arguments: Any) -> Any:
        n_copies.append(1)
        assert gate.wait(60)
        return compare(*arguments)

    monkeypatch.setattr(asking, "_compare", slow)
    monkeypatch.setattr(asking, "_LONG", 0.05)
    with served(make_service()) as client:
        body = {"instances": rows(1), "ids": ["c1"]}
        begun = [client.post("/predict/without", json=body) for _ in range(4)]
        assert [one.status_code for one in begun] == [202] * 4
        assert (client.post("/predict/without", json=body).status_code, len(n_copies)) == (429, 1)
        assert client.post("/predict", json={"instances": rows(1)}).status_code == 200
        gate.set()
        assert {ended(client, one.json())["status"] for one in begun} == {"succeeded"}
        assert len(n_copies) == 4
        assert client.post("/predict/without", json=body).status_code in (200, 202)
        wait_until(lambda: not client.app.state.context.service.model.holders._holds)  # type: ignore[attr-defined]


def test_a_question_that_fails_leaves_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    shredded, let_go = list[int](), asking.let_go_of

    def fail(*arguments: Any) -> Any:
        raise MemoryError("SEKRET")

    monkeypatch.setattr(asking, "_compare", fail)
    monkeypatch.setattr(asking, "let_go_of", lambda copy: (shredded.append(1), let_go(copy)))
    with served(make_service()) as client:
        answer = client.post("/predict/without", json={"instances": rows(1), "ids": ["c1"]})
        assert (answer.status_code, "SEKRET" in answer.text, shredded) == (503, False, [1])
        assert not client.app.state.context.service.model.holders._holds  # type: ignore[attr-defined]
        monkeypatch.undo()
        assert client.post("/predict/without", json={"instances": rows(1), "ids": ["c1"]}).status_code in (200, 202)
