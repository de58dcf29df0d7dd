import asyncio
import errno
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from oubli.app.errors import StopReason
from oubli.app.service.roles import Role
from tests.unit.app.hosted import wait_until
from tests.unit.app.support import make_service, pick, problem_of, rows, samples, served, served_here

pytestmark = pytest.mark.anyio

PASSING = (StopReason.DISK_FULL, StopReason.NO_DESCRIPTORS)


@pytest.mark.parametrize("reason", StopReason)
def test_ready_for_predictions_and_not_for_changes(reason):
    service = make_service()
    with served(service) as client:
        accepted = {"status": "ready", "model_version": 1, "changes": "accepted"}
        for path in ("/readyz", "/readyz?for=changes", "/readyz?for=predictions", "/readyz?_=1"):
            assert client.get(path).json() == accepted
        setattr(service.model.state, "hindered" if reason in PASSING else "halted", reason)
        assert client.get("/healthz").json() == {"status": "alive"}
        ready = client.get("/readyz")
        assert ready.json() == {"status": "ready", "model_version": 1, "changes": "stopped", "reason": reason}
        assert client.post("/predict", json={"instances": rows(1)}).status_code == 200
        refused = client.get("/readyz?for=changes")
        assert problem_of(refused) == (503, "changes-stopped")
        assert int(refused.headers["retry-after"]) > 0
        assert pick(client.get("/model").json(), "changes changes_stopped") == ("stopped", reason)
        changed = client.post("/samples", json=samples(1))
        assert changed.status_code == (201 if reason in PASSING else 503), "what may pass is tried"
        if reason in PASSING:
            service.model.state.hindered = None
            assert client.get("/readyz?for=changes").status_code == 200
            assert client.get("/model").json()["changes_stopped"] is None


async def test_predictions_are_answered_while_the_kernels_of_changes_compile_and_the_rest_waits():
    going_on = [SimpleNamespace(n_done=12, n_kernels=60)]
    loaded = threading.Event()
    service = make_service(complete=loaded.set, compiling=lambda: going_on[0] if going_on else None)
    async with served_here(service) as client:
        assert (await client.post("/predict", json={"instances": rows(1)})).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        refused = await client.get("/readyz?for=changes")
        assert problem_of(refused) == (503, "not-ready")
        assert refused.json()["detail"] == "Predictions are answered; changes wait: 12 of 60 kernels are compiled."
        assert (await client.get("/model")).json()["n_samples"] == 60
        added, looked_at = client.post("/samples", json=samples(1)), client.get("/model/importances")
        waiting = [asyncio.create_task(request) for request in (client.delete("/samples/c1"), added, looked_at)]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in waiting)
        assert (await client.post("/predict", json={"instances": rows(1)})).status_code == 200
        assert not loaded.is_set()
        going_on.clear()
        assert [(await task).status_code for task in waiting] == [200, 201, 200]
        assert loaded.is_set()
        assert (await client.get("/readyz?for=changes")).status_code == 200


async def test_a_change_that_waits_for_kernels_is_refused_when_the_server_stops():
    service = make_service(compiling=lambda: SimpleNamespace(n_done=0, n_kernels=0))
    async with served_here(service) as client:
        waiting = asyncio.create_task(client.delete("/samples/c1"))
        await asyncio.sleep(0.1)
        assert "are being compiled" in (await client.get("/readyz?for=changes")).json()["detail"]
        service.lifecycle.drain()
        assert (await waiting).status_code == 503


async def test_not_ready_while_it_drains_but_requests_are_answered():
    service = make_service()
    async with served_here(service) as client:
        service.lifecycle.drain()
        response = await client.get("/readyz")
        assert (response.status_code, bool(response.headers["retry-after"])) == (503, True)
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.delete("/samples/c1")).json()["unlearned"] == 1


def test_changes_are_accepted_again_when_there_is_room(tmp_path, monkeypatch):
    """Anyone who sends changes only where they are accepted would otherwise never find out."""
    refused, is_full = [], True
    service = make_service(directory=tmp_path / "d")

    def probe(directory, n_bytes):
        if is_full:
            refused.append(n_bytes)
            raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr("oubli.app.storage.journal.probe_room", probe)
    with served(service) as client:
        service.model.state.hindered = StopReason.DISK_FULL
        wait_until(lambda: len(refused) > 1)
        assert client.get("/readyz?for=changes").status_code == 503
        is_full = False
        wait_until(lambda: client.get("/readyz?for=changes").status_code == 200)
        assert client.get("/readyz").json()["changes"] == "accepted"


async def test_the_service_is_stopped_when_the_server_breaks_off():
    service = make_service()
    with suppress(RuntimeError):
        async with served_here(service):
            assert service.model.state.phase == "ready"
            raise RuntimeError("broken off")
    assert service.model.state.phase == "stopping"


def test_a_server_that_is_alone_cannot_be_removed() -> None:
    service = make_service()
    service.lifecycle.role = Role("me")
    with served(service) as client:
        refused = client.delete("/cluster/nodes/me")
        assert (*problem_of(refused), "leads" in refused.json()["detail"]) == (409, "node-alive", True)
        assert problem_of(client.delete("/cluster/nodes/other")) == (404, "no-node")
        assert "node-removed" not in client.get("/ledger").text
