from __future__ import annotations

import asyncio
from typing import Any

import pytest

import app.replacing
from tests.app.support import JSON, make_service, samples, served_here


async def finished(client: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a job."""
    while job["status"] in ("queued", "running"):
        await asyncio.sleep(0.005)
        job = (await client.get(f"/jobs/{job['id']}")).json()
    return job


async def begin_fit(client: Any, **parameters: Any) -> dict[str, Any]:
    response = await client.post("/model/fit", json={"parameters": parameters})
    assert response.status_code == 202
    return dict(response.json())


@pytest.fixture
def held_up(monkeypatch):
    """Fits that do not begin before they are let go, in their thread."""
    import threading

    gate = threading.Event()
    refit = app.replacing.refit

    def waiting(*arguments: Any) -> Any:
        assert gate.wait(30)
        return refit(*arguments)

    monkeypatch.setattr(app.replacing, "refit", waiting)
    return gate


def test_changes_during_a_fit_are_in_the_fitted_model(tmp_path, held_up):
    async def work() -> None:
        service = make_service(directory=tmp_path / "data")
        async with served_here(service) as client:
            job = await begin_fit(client, n_estimators=3)
            for i in range(40):
                assert (await client.delete(f"/samples/c{i}")).status_code == 200
            assert (await client.post("/samples", json=samples(2), headers=JSON)).status_code == 201
            held_up.set()
            result = (await finished(client, job))["result"]
            assert (result["n_samples"], result["parameters"]["n_estimators"]) == (22, 3)
            model = service._live.model
            assert model.verify().ok
            assert service.model_version == result["model_version"] == 43

    asyncio.run(work())


def test_a_restore_during_a_fit_wins(tmp_path, held_up):
    """The fit began with samples that are not held any more; what it made is dropped, and says so."""

    async def work() -> None:
        service = make_service(directory=tmp_path / "data")
        async with served_here(service) as client:
            snapshot = (await client.get("/snapshot/file")).content
            await client.post("/samples", json=samples(3), headers=JSON)
            job = await begin_fit(client, n_estimators=3)
            restored = await client.put("/snapshot/file", content=snapshot)
            assert restored.status_code == 200
            for i in range(40):
                await client.delete(f"/samples/c{i}")
            version = service.model_version
            held_up.set()
            job = await finished(client, job)
            assert job["status"] == "failed"
            assert job["error"] == "SupersededError: a restore replaced the samples meanwhile: begin again"
            model = service._live.model
            assert (service.model_version, model.n_samples_, model.n_estimators) == (version, 20, 5)
            assert not model.samples_.contains("n0")
            assert model.verify().ok

    asyncio.run(work())
