"""The routes of jobs, over jobs that wait until they are let go."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from oubli.app.service.jobs.jobs import Job, JobBoard, Report
from oubli.app.service.jobs.model_jobs import Jobs
from oubli.core.data.schema import Task
from oubli.core.estimators import KINDS
from tests.unit.app.service.support import until
from tests.unit.app.support import JSON, NUMBERS, forest, make_service, problem_of, served, served_here

pytestmark = pytest.mark.anyio


@dataclass
class Work:
    """What jobs do that wait, and who asks for them."""

    client: httpx2.AsyncClient
    board: JobBoard
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    report: Report | None = None

    async def __call__(self, report: Report) -> dict[str, Any]:
        self.report = report
        await self.go_on.wait()
        return {"ok": True}

    def start(self) -> Job:
        return self.board.start("scrub", self)

    async def end(self, name: str) -> str:
        """Let a job end; return its status."""
        self.go_on.set()
        await until(lambda: self.board.get(name).has_ended)  # type: ignore[union-attr]
        return self.board.get(name).status  # type: ignore[union-attr]


@pytest.fixture
async def work(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Work]:
    service = make_service()
    async with served_here(service) as client:
        waiting = Work(client, service.jobs.board)
        monkeypatch.setattr(service.jobs, "_verify", waiting)
        yield waiting
        waiting.go_on.set()


async def test_a_job_is_begun_and_can_be_looked_up(work: Work) -> None:
    client = work.client
    begun = await client.post("/model/verify")
    place, name = begun.headers["location"], begun.json()["id"]
    assert (begun.status_code, place) == (202, f"/jobs/{name}")
    assert begun.json() == {"id": name, "kind": "verify", "status": "queued", "progress": 0.0}
    await until(lambda: work.report is not None)
    assert (await client.get(place)).json() == {**begun.json(), "status": "running"}
    early = await client.get(f"{place}/result")
    assert (*problem_of(early), "has not ended" in early.json()["detail"]) == (404, "no-result", True)
    await work.end(name)
    assert (await client.get(f"{place}/result")).json() == {"ok": True}
    refused = await client.get(f"{place}/result?format=csv")
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/format")
    expected = {**begun.json(), "status": "succeeded", "progress": 1.0, "result": {"ok": True}}
    assert (await client.get(place)).json() == expected
    for method, path in (("GET", "x"), ("GET", "x/events"), ("GET", "x/result"), ("DELETE", "x")):
        assert problem_of(await client.request(method, f"/jobs/{path}")) == (404, "no-job")


@pytest.mark.parametrize("waits", [False, True])
async def test_a_question_is_cancelled_and_the_next_job_has_its_turn(work: Work, waits: bool) -> None:
    cancelled, client = asyncio.Event(), work.client

    async def question(report: Report) -> dict[str, Any]:
        await cancelled.wait()
        raise RuntimeError

    if waits:
        work.start()
    job = work.board.start("influence", question, cancel=cancelled.set)
    await asyncio.sleep(0)
    answer = await client.delete(f"/jobs/{job.id}")
    assert (answer.status_code, cancelled.is_set(), answer.json()["status"]) == (200, True, "failed")
    assert "cancelled" in answer.json()["error"]
    assert "has failed" in (await client.get(f"/jobs/{job.id}/result")).json()["detail"]
    assert await work.end(work.start().id) == "succeeded"
    for method in ("GET", "DELETE"):
        assert (await client.request(method, f"/jobs/{job.id}")).json() == answer.json()


async def test_what_changes_the_model_or_its_files_is_not_cancelled(work: Work) -> None:
    job = work.start()
    assert problem_of(await work.client.delete(f"/jobs/{job.id}")) == (409, "job-uncancellable")
    await work.end(job.id)
    assert (await work.client.delete(f"/jobs/{job.id}")).json()["status"] == "succeeded"


async def test_events_tell_the_whole_course_of_a_job(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.01)
    job = work.start()

    async def move() -> None:
        await until(lambda: work.report is not None)
        work.report(0.5)
        await asyncio.sleep(0.1)
        work.go_on.set()

    response, _ = await asyncio.gather(work.client.get(f"/jobs/{job.id}/events"), move())
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "no-" in response.headers["cache-control"]
    assert ": ping" in response.text
    lines = [line for line in response.text.splitlines() if line and not line.startswith(":")]
    told = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert {one["id"] for one in told} == {job.id}
    assert [one["progress"] for one in told if one["status"] == "running"][-1] == 0.5
    assert told[-1]["status"] == "succeeded"
    assert told[-1] == (await work.client.get(f"/jobs/{job.id}")).json()


# --- what a fit may be asked for: the rules of parameters are tested with the estimators


@pytest.fixture(scope="module")
def clients() -> Iterator[dict[Task, TestClient]]:
    with served() as classes, served(make_service(forest(schema=NUMBERS))) as numbers:
        yield {Task.CLASSIFICATION: classes, Task.REGRESSION: numbers}


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What fits were begun with."""
    begun: list[tuple[str, dict[str, Any]]] = []

    async def nothing(report: Report) -> dict[str, Any]:
        return {}

    def fit(jobs: Jobs, kind: str, parameters: dict[str, Any], *more: Any, **options: Any) -> Job:
        begun.append((kind, parameters))
        return jobs.board.start("fit", nothing)

    monkeypatch.setattr(Jobs, "fit", fit)
    return begun


def ask(client: TestClient, content: Any) -> Any:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return client.post("/model/fit", content=body, headers=JSON)


DERIVED = {"epsilon": None, "alpha": 0.1, "beta": 0.1}
LATE = {"loss": "quantile", "quantile": 0.9, "monotone_constraints": {"0": 1}}


SQUARED, BOOSTED = {"criterion": "squared_error"}, ("incremental-boosting", "online-boosting")
EVERY_KEY = dict.fromkeys(("kind", "parameters", "classes", "max_classes"), None) | {"score": True}
RIGHT = [
    (EVERY_KEY, ("forest", {}), Task.CLASSIFICATION),
    *((content, ("forest", {}), Task.CLASSIFICATION) for content in (b"", {"kind": None, "parameters": None})),
    ({"parameters": {"n_estimators": 7}}, ("forest", {"n_estimators": 7}), Task.CLASSIFICATION),
    ({"kind": "tree", "parameters": DERIVED}, ("tree", DERIVED), Task.CLASSIFICATION),
    ({"parameters": SQUARED}, ("forest", SQUARED), Task.REGRESSION),
    *(({"kind": kind, "parameters": LATE}, (kind, LATE), Task.REGRESSION) for kind in BOOSTED),
    *(({"kind": kind}, (kind, {}), task) for kind, task in KINDS),
]


@pytest.mark.parametrize(("content", "expected", "task"), RIGHT)
def test_a_fit_takes_kind_and_parameters(clients, fitted, content, expected, task):
    assert ask(clients[task], content).status_code == 202
    assert fitted == [expected]


def wrong(kind: str | None = None, **parameters: Any) -> dict[str, Any]:
    return {"kind": kind, "parameters": parameters}


def test_what_a_fit_does_not_take_is_refused_before_it_begins(clients, fitted):
    constraints = "/parameters/monotone_constraints"
    for content, pointer, rule in (
        ([], "", "must be a JSON object"),
        ({"SECRET": 1}, "", "known are 'kind', 'parameters'"),
        *(({"kind": kind}, "/kind", "must be one of 'forest'") for kind in ("SECRET", ["SECRET"])),
        ({"parameters": []}, "/parameters", "must be an object"),
        (wrong(SECRET=1), "/parameters", "known are criterion"),
        (wrong(n_jobs=2), "/parameters/n_jobs", "start the server with --threads"),
        (wrong(n_jobs=None, n_estimators=7), "/parameters/n_jobs", "is no parameter of a model"),
        (wrong(n_estimators="SECRET must be"), "/parameters/n_estimators", "must be an integer in [1, 32768]"),
        (wrong(criterion="SECRET"), "/parameters/criterion", "must be one of 'gini'"),
        (wrong("tree", epsilon=None), "/parameters/epsilon", "make both greater than 0"),
        (wrong("incremental-boosting", loss="poisson"), "/parameters/loss", "is for numbers"),
        (wrong("online-boosting", monotone_constraints={"SECRET": 1}), constraints, "names no column in entry 1"),
        *(({"classes": classes}, "/classes", "must be") for classes in ("shut", ["yes"])),
        *(({"max_classes": most}, "/max_classes", "must be an integer") for most in (0, True)),
        ({"max_classes": 1}, "/max_classes", "must be at least 2"),
        *((content, None, "JSON") for content in (b"{", b"\xff", b'{"parameters": {"occurrence": NaN}}')),
    ):
        answer = ask(clients[Task.CLASSIFICATION], content)
        [error] = answer.json().get("errors", [{"pointer": None, "detail": answer.json()["detail"]}])
        assert (answer.status_code, error["pointer"]) == (422 if pointer is not None else 400, pointer)
        assert rule in error["detail"]
        assert "SECRET" not in answer.text
        assert fitted == []


def test_all_that_is_wrong_is_named_and_the_task_decides(clients, fitted):
    for task, content, pointers in (
        (Task.CLASSIFICATION, wrong(n_estimators=0, max_depth=3, occurrence=2), ["n_estimators", "occurrence"]),
        (Task.REGRESSION, wrong(criterion="gini"), ["criterion"]),
        (Task.REGRESSION, {"kind": "tree"}, ["kind"]),
    ):
        answer = ask(clients[task], content)
        named = [error["pointer"].rpartition("/")[2] for error in answer.json()["errors"]]
        assert (answer.status_code, named) == (422, pointers)
    assert fitted == []
