import asyncio
import math
import threading
from typing import Any

import pytest

import oubli.app.service.recovery.rebuild as rebuild
from oubli.app.errors import JournalFullError, StorageError
from oubli.app.service.service import Service
from oubli.core.model import Model
from tests.unit.app.service.support import copies_of, ended_here, raising, until
from tests.unit.app.support import JSON, forest, make_service, reopened, samples, served_here

pytestmark = pytest.mark.anyio


async def begin_fit(client: Any, **parameters: Any) -> dict[str, Any]:
    response = await client.post("/model/fit", json={"parameters": parameters})
    assert response.status_code == 202
    return dict(response.json())


async def test_changes_during_a_fit_are_in_the_fitted_model(tmp_path, held_up):
    async with served_here(service := make_service(directory=tmp_path / "data")) as client:
        job, finishable = await begin_fit(client, n_estimators=3), service.erasure.erasures.finishable
        await until(lambda: service.model.holders.delayed_from < math.inf)
        for i in range(40):
            assert (await client.delete(f"/samples/c{i}")).status_code == 200
        assert (await client.post("/samples", json=samples(2), headers=JSON)).status_code == 201
        assert finishable() == [], "the fit has begun with what was erased"
        held_up.set()
        result, state = (await ended_here(client, job))["result"], service.model.state
        assert len(finishable()) == 40
        assert (result["n_samples"], result["parameters"]["n_estimators"]) == (22, 3)
        assert (state.version, result["model_version"], state.model.verify().ok) == (43, 43, True)


async def test_a_fit_that_is_asked_for_again_is_the_first(tmp_path, held_up):
    """While it waits or runs, after it has ended, and after a restart."""
    asked = {"json": {"parameters": {"n_estimators": 3}}, "headers": {"Idempotency-Key": "again"}}

    async def work(service: Service) -> dict[str, Any]:
        async with served_here(service) as client:
            first = (await client.post("/model/fit", **asked)).json()
            assert (await client.post("/model/fit", **asked)).json()["id"] == first["id"]
            other = await client.post("/model/fit", json={}, headers=asked["headers"])
            assert (other.status_code, other.json()["errors"][0]["pointer"]) == (422, "/Idempotency-Key")
            held_up.set()
            job = await ended_here(client, first)
            assert (await client.post("/model/fit", **asked)).json() == job
            assert service.model.state.version == job["result"]["model_version"] == 2
            return job

    before = await work(make_service(directory=tmp_path / "data"))
    after = await work(reopened(tmp_path / "data"))
    assert (after["id"], after["result"]) == (before["id"], {"model_version": 2, "n_samples": 60})


@pytest.mark.parametrize("how", ["superseded", "half way", "not begun", "not written"])
async def test_a_fit_that_comes_to_nothing_is_overwritten(tmp_path, monkeypatch, how):
    """Its samples and its trees are in nobody's memory any more when it is no holder any more."""
    refit, gate, fits, engines = rebuild.refit, threading.Event(), list[tuple[Any, Any]](), list[Any]()

    def watched(estimator: Any, store: Any, progress: Any) -> Any:
        fits.append((estimator, store))
        assert (store.cells.any(), store.nonces.values.any()) == (True, True)
        if how == "half way":
            return refit(estimator, store, lambda done, total: 1 // 0)
        if how == "not begun":
            raise MemoryError
        model = refit(estimator, store, progress)
        engines.append(model.engine_)
        assert gate.wait(30)
        return model

    monkeypatch.setattr(rebuild, "refit", watched)
    async with served_here(service := make_service(directory=tmp_path / "data")) as client:
        snapshot = (await client.get("/snapshot/file")).content
        job = await begin_fit(client, n_estimators=3)
        await until(lambda: fits)
        if how == "superseded":
            assert (await client.put("/snapshot/file", content=snapshot)).status_code == 200
        elif how == "not written":
            monkeypatch.setattr(service.disk.storage.journal, "append", raising(JournalFullError("no room")))
        gate.set()
        ended = await ended_here(client, job)
        assert ended["status"] == "failed"
        assert how != "superseded" or ended["error"] == "a restore has replaced the samples: begin again"
        ((estimator, store),) = fits
        assert not any(array.any() for array in (store.cells, store.id_hashes, store.nonces.values, store.held))
        assert not hasattr(estimator, "samples_")
        assert not any(any(array.tobytes()) for engine in engines for array in engine.trees)
        assert service.model.state.model.samples_.cells.any()
        assert service.model.holders.delayed_from == math.inf


@pytest.mark.parametrize("work", ["fit", "verify"])
async def test_the_model_counts_as_read_until_the_thread_of_a_cancelled_job_has_ended(work, monkeypatch):
    entered, may_end, wipe = threading.Event(), threading.Event(), Model.wipe

    def slow(model: Model) -> None:
        entered.set()
        may_end.wait(20)
        wipe(model)

    async with served_here(service := make_service(forest(20))):
        monkeypatch.setattr(Model, "wipe", slow)
        rebuilder, lock = service.recovery, service.model.lock
        asked = {"fit": lambda: rebuilder.rebuild(lambda share: None), "verify": lambda: rebuilder.verify(print)}
        job = asyncio.create_task(asked[work]())
        await asyncio.to_thread(entered.wait, 20)
        for _ in range(3):
            job.cancel()
            await asyncio.sleep(0.01)
        assert (job.done(), lock.n_readers) == (False, 1)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await job
        assert lock.n_readers == 0
        monkeypatch.setattr(Model, "wipe", wipe)


async def test_the_copy_of_a_snapshot_that_cannot_be_written_is_overwritten(monkeypatch, tmp_path):
    async with served_here(service := make_service(forest(20), tmp_path / "data")):
        with monkeypatch.context() as failing:
            copies = copies_of(failing, Model)
            failing.setattr(type(service.disk.storage), "write", raising(StorageError("no")))
            with pytest.raises(StorageError):
                await service.erasure.checkpointer.write_snapshot()
        assert [hasattr(copy, "samples_") for copy in copies] == [False]
