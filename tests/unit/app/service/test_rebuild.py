"""A model that is not exact: what it has unlearned leaves traces in its tree, until it is built again."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oubli.app.errors import StopReason
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.core import DynamicTreeClassifier
from tests.unit.app.service.support import Gate, ended_here, until
from tests.unit.app.service.test_fitting import begin_fit
from tests.unit.app.support import JSON, fitted, forest, make_service, reopened, samples, served_here

pytestmark = pytest.mark.anyio
STRANGE = 12345.678  # far from the ages of all others: a threshold beside it is a trace
OTHER = {"features": [33, "c", True], "label": "no"}
LAST = CheckpointPolicy(erasure_deadline=3600.0)


def tree(n: int = 60, **parameters: Any) -> Any:
    return fitted("tree", n, **{"epsilon": 0.5, **parameters})


async def scrub(client: Any) -> None:
    job = await ended_here(client, (await client.post("/model/scrub")).json())
    assert job["status"] == "succeeded", job


def thresholds(model: Any) -> set[float]:
    """All thresholds of a tree, wherever in memory they are."""
    return set(model.engine_.tree.nodes["threshold"].tolist())


def fresh_digest(model: Any) -> str:
    """That of a fit on the samples held."""
    held = [model.samples_.get(name) for name in model.samples_.ids()]
    features, labels = [one.features for one in held], [one.label for one in held]
    return str(DynamicTreeClassifier(**model.get_params()).fit(features, labels, schema=model.schema_).digest())


async def learn_and_unlearn(client: Any) -> dict[str, Any]:
    """Add somebody strange and delete them; return the receipt."""
    strange = {"id": "strange", "features": [STRANGE, "b", False], "label": "no"}
    others = [{"id": f"o{i}", "features": [40 + i, "b", False], "label": "yes"} for i in range(40)]
    content = {"samples": [strange, *others]}
    assert (await client.post("/samples", json=content, headers=JSON)).status_code == 201
    receipt = (await client.delete("/samples/strange")).json()
    assert (receipt["status"], receipt["guarantee"]) == ("unlearned", "approximate")
    return dict(receipt)


async def status_of(client: Any, receipt: dict[str, Any]) -> str:
    return str((await client.get(f"/erasures/{receipt['id']}")).json()["status"])


async def test_an_erasure_is_finished_by_building_the_model_anew(tmp_path):
    directory = tmp_path / "data"
    async with served_here(service := make_service(tree(), directory, policy=LAST)) as client:
        receipt = await learn_and_unlearn(client)
        traces = [one for one in thresholds(service.model.state.model) - thresholds(tree()) if one > 1000]
        assert traces
        assert (await client.get("/model")).json()["mutations_since_scrub"] == 42
        await client.post("/snapshot")
        assert await status_of(client, receipt) == "unlearned"
        await scrub(client)
        assert await status_of(client, receipt) == "erased"
        described, model = (await client.get("/model")).json(), service.model.state.model
        assert (described["mutations_since_scrub"], described["guarantee"]) == (0, "approximate")
        assert max(thresholds(model)) < 1000
        assert (model.digest(), model.verify().ok) == (fresh_digest(model), True)
        for path in filter(Path.is_file, directory.rglob("*")):
            content = path.read_bytes()
            for number in (form(value) for form in (np.float64, np.float32) for value in traces):
                assert number.tobytes() not in content, path.name


async def test_an_erasure_does_not_wait_for_what_begins_after_the_model_is_built_anew(tmp_path):
    async with served_here(service := make_service(tree(), tmp_path / "data", policy=LAST)) as client:
        receipt, gate = await learn_and_unlearn(client), Gate(service.disk.storage, "write")
        written = asyncio.create_task(service.erasure.checkpointer.write_snapshot(erase=True))
        await gate.reached()
        with service.model.holders.hold("verify"):
            gate.opened.set()
            await written
            assert await status_of(client, receipt) == "erased"


@pytest.mark.usefixtures("_soon")
async def test_a_model_is_built_anew_on_schedule(tmp_path, monkeypatch):
    """Without any erasure: it has only learned."""
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("oubli.app.service.erasure.checkpoint.time", clock)
    service = make_service(tree(), tmp_path / "data", policy=CheckpointPolicy(scrub_age=50.0))
    service.erasure.checkpointer._scrubbed_at = 0.0
    async with served_here(service) as client:
        others = [{"features": [40 + i, "b", False], "label": "yes"} for i in range(20)]
        assert (await client.post("/samples", json={"samples": others}, headers=JSON)).status_code == 201
        clock.monotonic = lambda: 50.0
        await until(lambda: service.describe()["mutations_since_scrub"] == 0)
        state, version = service.model.state, service.model.state.version
        assert state.model.digest() == fresh_digest(state.model)
        clock.monotonic = lambda: 99.0
        await asyncio.sleep(0.05)  # some looks more
        assert state.version == version  # once, not again and again


async def test_what_is_unlearned_while_the_model_is_built_anew_waits_for_the_next_time(tmp_path, held_up):
    async with served_here(service := make_service(tree(), tmp_path / "data", policy=LAST)) as client:
        first = await learn_and_unlearn(client)
        job = (await client.post("/model/scrub")).json()
        await until(lambda: service.changes.writer._followers)
        second = (await client.delete("/samples/c5")).json()
        held_up.set()
        await ended_here(client, job)
        assert (await status_of(client, first), await status_of(client, second)) == ("erased", "unlearned")
        await scrub(client)
        assert await status_of(client, second) == "erased"
        assert service.model.state.model.digest() == fresh_digest(service.model.state.model)


async def test_a_restore_leaves_no_trace_of_what_was_erased_since(tmp_path):
    async with served_here(service := make_service(tree(), tmp_path / "data", policy=LAST)) as client:
        strange = [{"id": f"z{i}", "features": [STRANGE, "b", False], "label": "no"} for i in range(30)]
        await client.post("/samples", json={"samples": strange}, headers=JSON)
        taken = (await client.get("/snapshot/file?fresh=true")).content
        await client.post("/samples/batch-delete", json={"ids": [one["id"] for one in strange]}, headers=JSON)
        answer = await client.put("/snapshot/file", content=taken)
        assert answer.json()["dropped"]["erased"] == 30
        model = service.model.state.model
        assert max(thresholds(model)) < 1000
        assert model.digest() == fresh_digest(model)


@pytest.mark.parametrize("durable", [True, False])
async def test_building_that_takes_long_is_done_on_a_copy(tmp_path, monkeypatch, durable):
    """What comes of it is the same as on the loop, also after a restart; what waits behind it is made in its turn."""
    # Every part that is built again is too large.
    monkeypatch.setattr("oubli.app.service.changes.command.LONGEST_PAUSE", 0.0)
    expected = tree(epsilon=0.2)
    service = make_service(tree(epsilon=0.2), tmp_path / "data" if durable else None, policy=LAST)
    first = service.model.state.model
    async with served_here(service) as client:
        answers = await asyncio.gather(*(client.delete(f"/samples/c{i}") for i in range(20)))
        assert [answer.status_code for answer in answers] == [200] * 20
        assert (await client.post("/samples", json=samples(1), headers=JSON)).status_code == 201
        model = service.model.state.model
        assert model is not first
        order = sorted(range(20), key=lambda i: answers[i].json()["model_version"])
        expected.delete([f"c{i}" for i in order])
        (content,) = samples(1)["samples"]
        expected.add([content["features"]], [content["label"]], ids=["n0"])
        assert (model.digest(), model.verify().ok) == (expected.digest(), True)
        service.model.state.halt(StopReason.DISK_FAILED)
    if durable:
        assert reopened(tmp_path / "data", policy=LAST).model.state.model.digest() == expected.digest()


async def test_what_slides_out_of_a_window_and_is_deleted_at_the_same_time(tmp_path):
    """Each sees the other as if it had come alone, in some order; neither fails."""
    async with served_here(service := make_service(tree(30, window=30), tmp_path / "data", policy=LAST)) as client:
        asked = []
        for i in range(15):
            asked.append(client.post("/samples", json=samples(1, f"n{i}-"), headers=JSON))
            asked += [client.delete(f"/samples/c{2 * i}"), client.put(f"/samples/c{2 * i + 1}", json=OTHER)]
        assert {answer.status_code for answer in await asyncio.gather(*asked)} <= {200, 201, 404}
        state = service.model.state
        assert (state.failed, state.model.verify().ok) == (False, True)
        state.halt(StopReason.DISK_FAILED)
    again = reopened(tmp_path / "data", policy=LAST).model.state
    assert again.model.samples_.ids() == state.model.samples_.ids()


async def test_a_smaller_window_is_fitted_while_what_it_leaves_out_is_deleted(tmp_path, held_up):
    async with served_here(service := make_service(tree(60), tmp_path / "data", policy=LAST)) as client:
        job = await begin_fit(client, window=10)
        await until(lambda: service.changes.writer._followers)
        for i in (0, 55, 56):
            assert (await client.delete(f"/samples/c{i}")).json()["unlearned"] == 1
        for name in ("c1", "c57"):
            assert (await client.put(f"/samples/{name}", json=OTHER)).status_code == 200
        held_up.set()
        job, model = await ended_here(client, job), service.model.state.model
        assert (job["status"], model.verify().ok) == ("succeeded", True), job
        assert model.samples_.ids() == ["c50", "c51", "c52", "c53", "c54", "c58", "c59", "c57"]


async def test_what_is_wrong_is_named_until_a_sample_is_erased(tmp_path, caplog):
    """The result of the job names counter, tree and both numbers until an erasure; the log never has numbers."""
    async with served_here(service := make_service(forest(), tmp_path / "data", policy=LAST)) as client:
        sound = (await ended_here(client, (await client.post("/model/verify")).json()))["result"]
        assert (sound["ok"], "wrong" in sound, "not sound" in caplog.text) == (True, False, False)
        counts = service.model.state.model.engine_.trees.nodes["n_samples"]
        kept = int(counts[3])
        counts[3] += 1
        job = await ended_here(client, (await client.post("/model/verify")).json())
        found = job["result"]
        text = f"the number of samples of nodes, tree 3: {kept + 1} kept, {kept} recounted; wrong places: 1"
        assert (found["ok"], found["live_digest"]) == (False, found["fresh_digest"])
        assert text in found["wrong"]
        assert "the model is not sound: the number of samples of nodes, tree 3\n" in caplog.text
        counts[3] -= 1
        assert (await client.delete("/samples/c0")).status_code == 200
        await scrub(client)
        assert (await client.get(f"/jobs/{job['id']}")).json()["result"]["wrong"] is None
