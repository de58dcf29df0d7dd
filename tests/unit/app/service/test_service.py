"""The one writer: what waits for what, what continues meanwhile, and what a failure leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from oubli.app.errors import BusyError, JournalFullError, UnavailableError
from oubli.app.service.build import open_directory
from oubli.app.service.changes.deletions import Replacement
from oubli.app.service.service import Service
from tests.unit.app.service.slow_journal import SlowJournal
from tests.unit.app.service.support import Gate, new_samples, raising, running, until
from tests.unit.app.support import forest, make_changes_long, make_service, rows, samples, served_here

pytestmark = pytest.mark.anyio


async def test_changes_wait_until_the_first_snapshot_is_read_back(tmp_path):
    service = make_service(directory=tmp_path / "data")
    gate = Gate(service.disk.storage.snapshots, "check")
    async with served_here(service) as client:
        assert gate.entered.wait(30)
        adding = asyncio.ensure_future(client.post("/samples", json=samples(1)))
        assert (await client.post("/predict", json={"instances": rows(1)})).status_code == 200
        await until(lambda: service.changes.writer._waiting)
        assert not adding.done()
        gate.opened.set()
        assert (await adding).status_code == 201


async def test_a_first_snapshot_that_is_damaged_is_removed_and_nothing_is_changed(tmp_path):
    broken = forest()
    broken.resolve()
    broken.engine_.trees.statistics[0, 0] += 7  # a fault of this program that no checksum shows
    service = make_service(broken, tmp_path / "data")
    assert list((tmp_path / "data").glob("snapshot-*"))
    async with served_here(service) as client:
        assert (await client.post("/samples", json=samples(1))).status_code == 503
    assert not list((tmp_path / "data").glob("snapshot-*"))
    opened = open_directory(tmp_path / "data")
    assert not opened.holds_model  # the next start trains again
    assert opened.begin(forest()).state.version == 1
    opened.close()


def on_copies(service: Service, see: Callable[[Any], object]) -> None:
    """Have something done to every copy of the live model as soon as it is made."""
    model = service.model.state.model
    make_copy = type(model).copy

    def copy() -> Any:
        made = make_copy(model)
        see(made)
        return made

    model.copy = copy


# --- long work


async def test_predictions_and_health_go_on_during_a_long_mutation(monkeypatch):
    service = make_service()
    make_changes_long(monkeypatch)
    gates: list[Gate] = []
    on_copies(service, lambda copy: gates.append(Gate(copy, "apply")))
    async with served_here(service) as client:
        adding = asyncio.create_task(client.post("/samples", json=samples(200)))
        (gate,) = await until(lambda: gates)
        await gate.reached()
        for path in ("/healthz", "/readyz", "/samples?limit=50"):
            assert (await client.get(path)).status_code == 200
        for n in (5, 3000):
            answer = (await client.post("/predict", json={"instances": rows(n)})).json()
            assert answer["model_version"] == 1
            assert answer["probabilities"] == forest().predict_proba(rows(n)).tolist()
        deleting = asyncio.create_task(client.delete("/samples/c1"))
        await until(lambda: service.changes.writer._waiting)
        assert not deleting.done(), "a mutation has to wait for its turn"
        gate.opened.set()
        added, deleted = (await adding).json(), (await deleting).json()
        assert (added["model_version"], added["n_samples"]) == (2, 260)
        assert (deleted["model_version"], deleted["unlearned"]) == (3, 1)


async def test_everything_goes_on_while_a_snapshot_is_written(service):
    gates: list[Gate] = []
    on_copies(service, lambda copy: gates.append(Gate(copy, "save")))
    await service.changes.add(new_samples(5))
    writing = asyncio.create_task(service.erasure.checkpointer.snapshot())
    await until(lambda: gates)
    await gates[0].reached()
    assert (await service.questions.predict(rows(3))).model_version == 2
    assert (await service.changes.add(new_samples(5, "m"))).model_version == 3
    assert not writing.done()
    gates[0].opened.set()
    assert (await writing).model_version == 2
    for gate in gates:
        gate.opened.set()
    on_copies(service, lambda copy: None)


def leaping(service: Service) -> None:
    """Set the clock forward by three days, so that expiry pauses."""
    clock, now_ms = service.model.clock, service.model.clock._wall_ms
    clock._wall_ms = lambda: now_ms() + 3 * 86_400_000
    assert service.erasure.retention.paused is not None


async def events(service: Service) -> list[str]:
    """The types of the ledger's entries."""
    return [entry["type"] for entry in await service.evidence.receipts.page(-1, 100)]


@pytest.mark.parametrize("what", ["expiry-confirmed", "export"])
async def test_what_is_noted_is_heeded_also_when_its_caller_goes(service, what):
    leaping(service)
    ask = service.erasure.retention.confirm if what == "expiry-confirmed" else service.erasure.checkpointer.export
    await SlowJournal(service).leave(ask())
    receipt = await service.changes.delete(ids=["c1"])  # as a rule in the record that follows
    assert receipt.exported_snapshots == (what == "export")
    assert (service.erasure.retention.paused is None) == (what == "expiry-confirmed")
    assert (await events(service)).count(what) == 1


async def test_a_confirmation_that_cannot_be_noted_changes_nothing(service, monkeypatch):
    leaping(service)
    with monkeypatch.context() as patched:
        patched.setattr(service.disk.storage.journal, "append", raising(JournalFullError("no room on the disk")))
        with pytest.raises(JournalFullError):
            await service.erasure.retention.confirm()
    assert service.erasure.retention.paused is not None
    await service.erasure.retention.confirm()
    assert service.erasure.retention.paused is None
    assert (await events(service)).count("expiry-confirmed") == 1


async def test_a_full_queue_refuses_additions_but_never_erasures(monkeypatch):
    service = make_service(max_queue=2)
    make_changes_long(monkeypatch)
    gate = Gate(service.model.state.model, "copy")

    async with running(service):
        long = asyncio.create_task(service.changes.add(new_samples(40)))
        await gate.reached()
        waiting = [asyncio.create_task(service.changes.add(new_samples(1, f"w{i}"))) for i in range(2)]
        await until(lambda: len(service.changes.writer._waiting) == 2)
        with pytest.raises(BusyError):
            await service.changes.add(new_samples(1, "x"))
        with pytest.raises(BusyError):
            await service.changes.replace(Replacement("c2", [1, "a", True], "yes"))
        erasures = [asyncio.create_task(service.changes.delete(ids=[f"c{i}"])) for i in range(20)]
        await until(lambda: len(service.changes.writer._waiting) == 22)
        gate.opened.set()
        assert (await long).n_new == 40
        assert [(await each).n_new for each in waiting] == [1, 1]
        assert [(await each).unlearned for each in erasures] == [1] * 20


@pytest.mark.parametrize("a_slice", [0, 1])
async def test_many_requests_at_once_end_in_the_state_of_their_answers(monkeypatch, a_slice):
    """Additions, deletions and predictions together; afterwards the model is a fresh fit on what is held."""
    service = make_service()
    async with served_here(service) as client:
        make_changes_long(monkeypatch, a_slice=a_slice)
        calls: list[Any] = []
        for i in range(30):
            calls.append(client.post("/samples", json=samples(1 + i % 7, f"b{i}-")))
            calls.append(client.delete(f"/samples/c{i}"))
            calls.append(client.post("/predict", json={"instances": rows(3)}))
        answers = [answer.json() for answer in await asyncio.gather(*calls)]
        versions = [answer["model_version"] for answer in answers]
        assert max(versions) == 61
        assert sorted(v for v, a in zip(versions, answers, strict=True) if "predictions" not in a) == list(range(2, 62))
    assert service.model.state.model.verify().ok
    assert service.model.state.model.n_samples_ == 60 - 30 + sum(1 + i % 7 for i in range(30))


# --- failures


async def test_an_error_inside_the_model_stops_changes_but_not_predictions(tmp_path, caplog):
    service = make_service(directory=tmp_path / "data")
    service.model.state.model.apply = raising(RuntimeError("SECRET"))
    async with running(service):
        with pytest.raises(RuntimeError):
            await service.changes.delete(ids=["c1"])
        assert service.model.state.failed
        for refused in (
            service.changes.add(new_samples(1)),
            service.changes.delete(ids=["c2"]),
            service.erasure.checkpointer.snapshot(),
        ):
            with pytest.raises(UnavailableError, match="until a restart"):
                await refused
        assert (await service.questions.predict(rows(1))).model_version == 1
    assert "SECRET" not in caplog.text
    assert len(list((tmp_path / "data").glob("snapshot-*"))) == 1, "what is in doubt is not written"


async def test_nothing_is_answered_before_it_is_ready():
    service = make_service()
    for refused in (service.changes.add(new_samples(1)), service.questions.predict(rows(1))):
        with pytest.raises(UnavailableError, match="starting"):
            await refused


async def test_a_failed_warm_up_only_makes_the_first_requests_slow(caplog):
    service = make_service()
    service.lifecycle._options.warm_up = lambda: 1 // 0

    async with running(service):
        assert len((await service.questions.predict(rows(1))).result.labels) == 1
    assert "the first requests are slow: an internal error at test_service.py" in caplog.text
