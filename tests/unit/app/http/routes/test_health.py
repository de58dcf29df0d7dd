from __future__ import annotations

import asyncio
import errno
import threading
import time
from types import SimpleNamespace

import httpx2
import pytest

from oubli.app.errors import StopReason
from oubli.app.http.app import create_app
from tests.unit.app.support import BASE, make_service, make_settings, rows, samples, served, served_here

PASSING = (StopReason.DISK_FULL, StopReason.NO_DESCRIPTORS)


def test_alive_and_ready():
    with served() as client:
        assert client.get("/healthz").json() == {"status": "alive"}
        ready = {"status": "ready", "model_version": 1, "changes": "accepted"}
        for path in ("/readyz", "/readyz?for=changes", "/readyz?for=predictions", "/readyz?_=1"):
            assert client.get(path).json() == ready
        response = client.get("/readyz?for=SECRET")
        assert response.status_code == 422
        assert "SECRET" not in response.text


@pytest.mark.parametrize("reason", StopReason)
def test_ready_for_predictions_and_not_for_changes(reason):
    service = make_service()
    with served(service) as client:
        setattr(service.model.state, "hindered" if reason in PASSING else "halted", reason)
        assert client.get("/healthz").status_code == 200
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json() == {"status": "ready", "model_version": 1, "changes": "stopped", "reason": reason}
        assert client.post("/predict", json={"instances": rows(1)}).status_code == 200
        refused = client.get("/readyz?for=changes")
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["type"] == "urn:oubli:problem:changes-stopped"
        model = client.get("/model").json()
        assert (model["changes"], model["changes_stopped"]) == ("stopped", reason)
        changed = client.post("/samples", json=samples(1))
        assert changed.status_code == (201 if reason in PASSING else 503), "what may pass is tried"
        if reason in PASSING:
            service.model.state.hindered = None
            assert client.get("/readyz?for=changes").status_code == 200
            assert client.get("/model").json()["changes_stopped"] is None


def test_not_ready_before_the_kernels_are_compiled():
    compiled = threading.Event()
    service = make_service(warm_up=lambda: compiled.wait(10))

    async def run() -> None:
        app = create_app(make_settings(), service)
        transport = httpx2.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            assert (await client.get("/healthz")).status_code == 200
            for response in (
                await client.get("/readyz"),
                await client.post("/predict", json={"instances": rows(1)}),
                await client.delete("/samples/c1"),
                await client.get("/model"),
            ):
                assert response.status_code == 503
                assert int(response.headers["retry-after"]) > 0
            compiled.set()
            while (await client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - asked as anyone would
                await asyncio.sleep(0.001)
            assert (await client.get("/model")).json()["n_samples"] == 60

    asyncio.run(run())


def test_predictions_are_answered_while_the_kernels_of_changes_compile_and_the_rest_waits():
    going_on = [SimpleNamespace(n_done=12, n_kernels=60)]
    loaded = threading.Event()
    service = make_service(complete=loaded.set, compiling=lambda: going_on[0] if going_on else None)

    async def run() -> None:
        async with served_here(service) as client:
            assert (await client.post("/predict", json={"instances": rows(1)})).status_code == 200
            ready, refused = await client.get("/readyz"), await client.get("/readyz?for=changes")
            assert (ready.status_code, refused.status_code) == (200, 503)
            assert refused.json()["type"] == "urn:oubli:problem:not-ready"
            assert refused.json()["detail"] == "Predictions are answered; changes wait: 12 of 60 kernels are compiled."
            assert (await client.get("/model")).json()["n_samples"] == 60
            waiting = [
                asyncio.create_task(request)
                for request in (
                    client.delete("/samples/c1"),
                    client.post("/samples", json=samples(1)),
                    client.get("/model/importances"),
                )
            ]
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in waiting)
            assert (await client.post("/predict", json={"instances": rows(1)})).status_code == 200
            assert not loaded.is_set()
            going_on.clear()
            assert [(await task).status_code for task in waiting] == [200, 201, 200]
            assert loaded.is_set()
            assert (await client.get("/readyz?for=changes")).status_code == 200

    asyncio.run(run())


def test_a_change_that_waits_for_kernels_is_refused_when_the_server_stops():
    service = make_service(compiling=lambda: SimpleNamespace(n_done=0, n_kernels=0))

    async def run() -> None:
        async with served_here(service) as client:
            waiting = asyncio.create_task(client.delete("/samples/c1"))
            await asyncio.sleep(0.1)
            assert "are being compiled" in (await client.get("/readyz?for=changes")).json()["detail"]
            service.lifecycle.drain()
            assert (await waiting).status_code == 503

    asyncio.run(run())


def test_not_ready_while_it_drains_but_requests_are_answered():
    async def run() -> None:
        service = make_service()
        async with served_here(service) as client:
            service.lifecycle.drain()
            response = await client.get("/readyz")
            assert response.status_code == 503
            assert response.headers["retry-after"]
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.delete("/samples/c1")).json()["unlearned"] == 1

    asyncio.run(run())


def test_changes_are_accepted_again_when_there_is_room(tmp_path, monkeypatch):
    """Anyone who sends changes only where they are accepted would otherwise never find out."""
    full = threading.Event()
    full.set()
    service = make_service(directory=tmp_path / "d")

    def probe(directory, n_bytes):
        if full.is_set():
            raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr("oubli.app.storage.journal.probe_room", probe)
    with served(service) as client:
        service.model.state.hindered = StopReason.DISK_FULL
        time.sleep(0.6)
        assert client.get("/readyz?for=changes").status_code == 503
        full.clear()
        deadline = time.monotonic() + 30
        while client.get("/readyz?for=changes").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.get("/readyz").json()["changes"] == "accepted"
