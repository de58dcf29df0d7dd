"""Fits are scored before and after, their progress is told, and what cannot be scored stays a fit."""

import asyncio
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import oubli.app.service.jobs.model_jobs
from oubli.app.service.erasure.holders import Fingerprints
from oubli.app.service.jobs.jobs import Report
from oubli.app.service.jobs.model_jobs import Scorer
from oubli.core.unseen.folds import FOLDS, answer_fold, take_samples
from oubli.core.unseen.scoring import out_of_bag, score_of
from tests.unit.app.service.support import ended_here, raising, running, until
from tests.unit.app.support import CLASSES, NUMBERS, ended, forest, make_service, rows, served, served_here


def fit(client: TestClient, **content: Any) -> dict[str, Any]:
    return ended(client, client.post("/model/fit", json=content).json())


@pytest.mark.parametrize("schema", [CLASSES, NUMBERS])
def test_a_fit_is_scored_out_of_bag_and_in_folds(schema: Any) -> None:
    def new() -> Any:
        model = forest(200, schema, n_estimators=9)
        return type(model)(**{**model.get_params(), "occurrence": 0.5}).fit_held(model.samples_)

    model = new()
    before = out_of_bag(model, 1000)
    with served(make_service(new())) as client:
        job = fit(client, parameters={"occurrence": 1.0, "n_estimators": 4})
        assert job["status"] == "succeeded", job
        score, metric = job["result"]["score"], "accuracy" if schema is CLASSES else "r2"
        assert (score["metric"], score["before"]) == (metric, before._asdict())
        samples = take_samples(model.samples_, 1000)
        parameters = {**model.get_params(), "occurrence": 1.0, "n_estimators": 4, "random_state": model.seed_}
        answers = [answer_fold(lambda: type(model)(**parameters), samples, number) for number in range(FOLDS)]
        assert score["after"] == score_of(model.task, answers, "5-fold")._asdict()
        assert client.get("/model").json()["parameters"]["n_estimators"] == 4
        assert not client.app.state.context.service.model.holders._holds  # type: ignore[attr-defined]


def test_a_score_can_be_left_out() -> None:
    with served(make_service()) as client:
        assert "score" not in fit(client, score=False)["result"]
        refused = client.post("/model/fit", json={"score": "no"})
        assert refused.json()["errors"][0]["pointer"] == "/score"


def test_a_fit_that_cannot_be_scored_has_succeeded_all_the_same(monkeypatch, caplog):
    monkeypatch.setattr(oubli.app.service.jobs.model_jobs, "answer_fold", raising(MemoryError("SEKRET")))
    with served(make_service()) as client:
        job = fit(client, parameters={"occurrence": 1.0})
        result = job["result"]
        assert (job["status"], result["score"]["after"], result["model_version"]) == ("succeeded", None, 2)
        assert client.post("/predict", json={"instances": rows(1)}).json()["model_version"] == 2
        assert not client.app.state.context.service.model.holders._holds  # type: ignore[attr-defined]
    assert "SEKRET" not in caplog.text


@pytest.mark.anyio
async def test_each_fold_moves_the_progress() -> None:
    async def fit(report: Report) -> dict[str, Any]:
        report(1.0)
        return {}

    told: list[float] = []
    async with running(service := make_service(forest(occurrence=1.0))):
        scorer = Scorer(service.model, Fingerprints(service.model.holders))
        assert (await scorer.around(fit, told.append))["score"]["after"] is not None
    assert told[0] == told[1] == pytest.approx(0.8)
    assert told[1:] == pytest.approx(np.linspace(0.8, 1.0, 2 * FOLDS + 1))


@pytest.mark.anyio
async def test_a_fit_waits_for_its_score_where_requests_are_refused() -> None:
    async with served_here(service := make_service(max_queue=0)) as client:
        lock = service.model.lock
        async with lock.long_read():
            job = (await client.post("/model/fit", json={})).json()
            end = asyncio.create_task(ended_here(client, job))
            await until(lambda: lock.waiting or end.done())
        ended = await end
        assert ended["status"] == "succeeded", ended
        assert ended["result"]["score"]["before"] is not None
