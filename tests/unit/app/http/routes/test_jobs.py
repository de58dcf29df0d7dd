"""The routes of jobs, over a service that has nothing but jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from oubli.api.model import Job as JobAnswer
from oubli.app.errors import UncancellableJobError
from oubli.app.http.problems import ProblemError, to_problem
from oubli.app.http.routes import model
from oubli.app.service.jobs.jobs import Job, JobBoard, Report
from oubli.core.data.schema import Task
from oubli.core.estimators import KINDS
from tests.unit.app.support import CLASSES, NUMBERS, require_conforms

BASE = "http://127.0.0.1"


@asynccontextmanager
async def no_key(*request: Any) -> AsyncIterator[None]:
    yield None


@dataclass
class Service:
    """Begins jobs that wait until they are let go."""

    schema: Any = CLASSES
    board: JobBoard = field(default_factory=JobBoard)
    fitted: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    report: Report | None = None
    changes: Any = field(default_factory=lambda: SimpleNamespace(idempotency_keys=SimpleNamespace(use=no_key)))

    async def work(self, report: Report) -> dict[str, Any]:
        self.report = report
        self.begun.set()
        await self.go_on.wait()
        return {"ok": True}

    @property
    def model(self) -> Any:
        return SimpleNamespace(state=SimpleNamespace(model=SimpleNamespace(schema_=self.schema)))

    @property
    def jobs(self) -> Service:
        """The room of jobs is the service itself."""
        return self

    def describe(self) -> Any:
        return {"kind": "forest", "parameters": {"n_estimators": 5, "random_state": 0}}

    def verify(self) -> Job:
        return self.board.start("verify", self.work)

    def scrub(self) -> Job:
        return self.board.start("scrub", self.work)

    def fit(self, kind: str, parameters: dict[str, Any], key: None, **options: Any) -> Job:
        self.fitted.append((kind, parameters))
        return self.board.start("fit", self.work)


def application(service: Service) -> FastAPI:
    app = FastAPI()
    app.state.context = SimpleNamespace(service=service)
    app.include_router(model.jobs)
    app.include_router(model.router)

    @app.exception_handler(ProblemError)
    @app.exception_handler(UncancellableJobError)
    async def answer(request: Any, error: Exception) -> Any:
        problem = to_problem(error)
        assert problem is not None
        return problem.response()

    return app


def client_of(service: Service) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=application(service)), base_url=BASE)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["verify", "scrub", "fit"])
def test_a_job_is_begun_and_can_be_looked_up(kind):
    async def test() -> None:
        service = Service()
        async with client_of(service) as client:
            begun = await client.post(f"/model/{kind}")
            assert begun.status_code == 202
            require_conforms(JobAnswer, begun.json())
            assert begun.json() == {"id": begun.json()["id"], "kind": kind, "status": "queued", "progress": 0.0}
            place = begun.headers["location"]
            assert place == f"/jobs/{begun.json()['id']}"
            running = await client.get(place)
            assert running.json() == {**begun.json(), "status": "running"}
            early = await client.get(f"{place}/result")
            assert (early.status_code, early.json()["type"]) == (404, "urn:oubli:problem:no-result")
            assert "has not ended" in early.json()["detail"]
            service.go_on.set()
            await settle()
            assert (await client.get(f"{place}/result")).json() == {"ok": True}
            refused = await client.get(f"{place}/result?format=csv")
            assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/format")
            ended = (await client.get(place)).json()
            require_conforms(JobAnswer, ended)
            assert ended == {**begun.json(), "status": "succeeded", "progress": 1.0, "result": {"ok": True}}

    asyncio.run(test())


@pytest.mark.parametrize(
    "path", ["/jobs/x", "/jobs/x/events", "/jobs/x/result", "/jobs/00000000-0000-4000-8000-000000000000"]
)
def test_an_unknown_job_is_not_found(path):
    with TestClient(application(Service()), base_url=BASE) as client:
        response = client.get(path)
        assert response.status_code == 404
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["type"].endswith("no-job")


@pytest.mark.parametrize("waits", [False, True])
def test_a_question_is_cancelled_and_the_next_job_has_its_turn(waits):
    async def test() -> None:
        service = Service()
        cancelled = asyncio.Event()

        async def question(report: Report) -> dict[str, Any]:
            await cancelled.wait()
            raise RuntimeError

        async with client_of(service) as client:
            if waits:
                service.jobs.verify()
            job = service.jobs.board.start("influence", question, cancel=cancelled.set)
            await settle()
            answer = await client.delete(f"/jobs/{job.id}")
            assert (answer.status_code, cancelled.is_set()) == (200, True)
            require_conforms(JobAnswer, answer.json())
            assert answer.json()["status"] == "failed"
            assert "cancelled" in answer.json()["error"]
            assert "has failed" in (await client.get(f"/jobs/{job.id}/result")).json()["detail"]
            later = service.jobs.verify()
            service.go_on.set()
            await settle()
            assert service.jobs.board.get(later.id).status == "succeeded"
            assert (await client.get(f"/jobs/{job.id}")).json() == answer.json()
            assert (await client.delete(f"/jobs/{job.id}")).json() == answer.json()

    asyncio.run(test())


def test_what_changes_the_model_or_its_files_is_not_cancelled():
    async def test() -> None:
        service = Service()
        async with client_of(service) as client:
            job = service.jobs.scrub()
            answer = await client.delete(f"/jobs/{job.id}")
            assert (answer.status_code, answer.json()["type"]) == (409, "urn:oubli:problem:job-uncancellable")
            service.go_on.set()
            await settle()
            assert (await client.delete(f"/jobs/{job.id}")).json()["status"] == "succeeded"
            assert (await client.delete("/jobs/x")).status_code == 404

    asyncio.run(test())


def events(text: str) -> list[dict[str, Any]]:
    """The data of the events of a stream; comments left out."""
    found = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        assert all(line.startswith(("data: ", ":")) for line in lines)
        found += [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    return found


def test_events_tell_the_whole_course_of_a_job(monkeypatch):
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.01)

    async def test() -> None:
        service = Service()
        async with client_of(service) as client:
            job = (await client.post("/model/verify")).json()

            async def move() -> None:
                await service.begun.wait()
                assert service.report is not None
                service.report(0.5)
                await asyncio.sleep(0.1)
                service.go_on.set()

            moving = asyncio.create_task(move())
            response = await client.get(f"/jobs/{job['id']}/events")
            await moving
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            assert "no-" in response.headers["cache-control"]
            assert ": ping" in response.text
            told = events(response.text)
            for one in told:
                require_conforms(JobAnswer, one)
                assert one["id"] == job["id"]
            assert [one["progress"] for one in told if one["status"] == "running"][-1] == 0.5
            assert told[-1]["status"] == "succeeded"
            assert told[-1] == (await client.get(f"/jobs/{job['id']}")).json()

    asyncio.run(test())


def test_events_end_when_the_server_stops():
    async def test() -> None:
        service = Service()
        async with client_of(service) as client:
            job = (await client.post("/model/scrub")).json()
            asked = asyncio.create_task(client.get(f"/jobs/{job['id']}/events"))
            await service.begun.wait()
            await settle()
            assert not asked.done()
            service.jobs.board.drain()
            assert events((await asked).text)[-1]["status"] == "running"
            await service.jobs.board.close()

    asyncio.run(test())


# --- what a fit may be asked for


def asked(content: Any, service: Service | None = None) -> tuple[int, dict[str, Any], list[Any]]:
    service = service or Service()
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    with TestClient(application(service), base_url=BASE) as client:
        response = client.post("/model/fit", content=body)
        client.portal.call(service.jobs.board.close)  # type: ignore[union-attr]
    return response.status_code, response.json(), service.fitted


@pytest.mark.parametrize(
    ("content", "fitted"),
    [
        (b"", ("forest", {})),
        ({}, ("forest", {})),
        ({"kind": "forest"}, ("forest", {})),
        ({"kind": None, "parameters": None}, ("forest", {})),
        ({"parameters": {"n_estimators": 7}}, ("forest", {"n_estimators": 7})),
        (
            {"kind": "forest", "parameters": {"max_depth": None, "max_features": 0.5, "criterion": "entropy"}},
            ("forest", {"max_depth": None, "max_features": 0.5, "criterion": "entropy"}),
        ),
    ],
)
def test_a_fit_takes_kind_and_parameters(content, fitted):
    status, _, seen = asked(content)
    assert status == 202
    assert seen == [fitted]


@pytest.mark.parametrize(
    ("content", "pointer", "rule"),
    [
        ([], "", "must be a JSON object"),
        ("SECRET", "", "must be a JSON object"),
        ({"SECRET": 1}, "", "known are 'kind', 'parameters'"),
        ({"kind": "SECRET"}, "/kind", "must be one of 'forest'"),
        ({"kind": ["SECRET"]}, "/kind", "must be one of"),
        ({"parameters": []}, "/parameters", "must be an object"),
        ({"parameters": {"SECRET": 1}}, "/parameters", "known are criterion"),
        ({"parameters": {"n_jobs": 2}}, "/parameters/n_jobs", "start the server with --threads"),
        ({"parameters": {"n_jobs": None, "n_estimators": 7}}, "/parameters/n_jobs", "is no parameter of a model"),
        ({"kind": "tree", "parameters": {"n_jobs": 2}}, "/parameters/n_jobs", "start the server with --threads"),
        ({"parameters": {"n_estimators": 0}}, "/parameters/n_estimators", "must be an integer in [1, 32768]"),
        ({"parameters": {"n_estimators": "SECRET must be SECRET"}}, "/parameters/n_estimators", "must be an integer"),
        ({"parameters": {"n_estimators": 1.5}}, "/parameters/n_estimators", "must be an integer"),
        ({"parameters": {"n_estimators": True}}, "/parameters/n_estimators", "must be an integer"),
        ({"parameters": {"n_estimators": {"SECRET": []}}}, "/parameters/n_estimators", "must be an integer"),
        ({"parameters": {"occurrence": 0}}, "/parameters/occurrence", "must be a number in (0, 1]"),
        ({"parameters": {"max_depth": -1}}, "/parameters/max_depth", "must be an integer"),
        ({"parameters": {"max_features": "SECRET"}}, "/parameters/max_features", "must be 'sqrt', 'log2'"),
        ({"parameters": {"criterion": "SECRET"}}, "/parameters/criterion", "must be one of 'gini'"),
        ({"parameters": {"criterion": "squared_error"}}, "/parameters/criterion", "must be one of 'gini'"),
        ({"parameters": {"random_state": -1}}, "/parameters/random_state", "must be in [0, 2**63)"),
        ({"parameters": {"random_state": "SECRET"}}, "/parameters/random_state", "must be None, an integer"),
    ],
)
def test_what_a_fit_does_not_take_is_refused_before_it_begins(content, pointer, rule):
    status, problem, seen = asked(content)
    assert (status, seen) == (422, [])
    [error] = problem["errors"]
    assert error["pointer"] == pointer
    assert rule in error["detail"]
    assert "SECRET" not in json.dumps(problem)


def test_all_wrong_parameters_are_named():
    status, problem, _ = asked({"parameters": {"n_estimators": 0, "max_depth": 3, "occurrence": 2}})
    assert status == 422
    assert [error["pointer"] for error in problem["errors"]] == ["/parameters/n_estimators", "/parameters/occurrence"]


def test_the_task_decides_what_fits():
    assert asked({"parameters": {"criterion": "squared_error"}}, Service(NUMBERS))[0] == 202
    assert asked({"parameters": {"criterion": "gini"}}, Service(NUMBERS))[0] == 422


@pytest.mark.parametrize("content", [b"{", b"NaN", b"\xff", b'{"parameters": {"occurrence": NaN}}'])
def test_what_is_no_json_is_refused(content):
    status, problem, seen = asked(content)
    assert (status, seen) == (400, [])
    assert problem["type"].endswith("broken-json")


def test_a_kind_that_is_not_for_the_task_is_refused():
    status, problem, seen = asked({"kind": "tree"}, Service(NUMBERS))
    assert (status, seen) == (422, [])
    assert problem["errors"][0]["pointer"] == "/kind"
    assert "is for classification, and this is regression" in problem["errors"][0]["detail"]


def test_parameters_that_need_each_other_are_checked_together():
    derived = {"epsilon": None, "alpha": 0.1, "beta": 0.1}
    assert asked({"kind": "tree", "parameters": derived})[0] == 202
    status, problem, _ = asked({"kind": "tree", "parameters": {"epsilon": None}})
    assert status == 422
    assert "make both greater than 0" in problem["errors"][0]["detail"]


def test_every_kind_of_model_can_be_asked_for():
    for kind, task in KINDS:
        schema = CLASSES if task is Task.CLASSIFICATION else NUMBERS
        assert asked({"kind": kind}, Service(schema))[0] == 202
