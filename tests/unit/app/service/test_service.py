"""The one writer: what waits for what, what continues meanwhile, and what a failure leaves behind."""

import asyncio
from contextlib import closing
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
    with closing(open_directory(tmp_path / "data")) as opened:
        assert not opened.holds_model  # the next start trains again
        assert opened.begin(forest()).state.version == 1


def gates_in_copies(service: Service, method: str) -> list[Gate]:
    """Hold a method up in every copy of the live model that is made."""
    model = service.model.state.model
    make_copy, gates = type(model).copy, list[Gate]()

    def copy() -> Any:
        made = make_copy(model)
        gates.append(Gate(made, method))
        return made

    model.copy = copy
    return gates


# --- long work


async def test_predictions_and_health_go_on_during_a_long_mutation(monkeypatch):
    service = make_service()
    make_changes_long(monkeypatch)
    gates = gates_in_copies(service, "apply")
    async with served_here(service) as client:
        adding = asyncio.create_task(client.post("/samples", json=samples(200)))
        (gate,) = await until(lambda: gates)
        await gate.reached()
        for path in ("/healthz", "/readyz", "/samples?limit=50"):
            assert (await client.get(path)).status_code == 200
        for n in (5, 3000):
            answer = (await client.post("/predict", json={"instances": rows(n)})).json()
            expected = (1, forest().predict_proba(rows(n)).tolist())
            assert (answer["model_version"], answer["probabilities"]) == expected
        deleting = asyncio.create_task(client.delete("/samples/c1"))
        await until(lambda: service.changes.writer._waiting)
        assert not deleting.done(), "a mutation has to wait for its turn"
        gate.opened.set()
        added, deleted = (await adding).json(), (await deleting).json()
        assert (added["model_version"], added["n_samples"]) == (2, 260)
        assert (deleted["model_version"], deleted["unlearned"]) == (3, 1)


async def test_everything_goes_on_while_a_snapshot_is_written(service):
    gates = gates_in_copies(service, "save")
    await service.changes.add(new_samples(5))
    writing = asyncio.create_task(service.erasure.checkpointer.snapshot())
    await until(lambda: gates)
    await gates[0].reached()
    assert (await service.questions.predict(rows(3))).model_version == 2
    assert (await service.changes.add(new_samples(5, "m"))).model_version == 3
    assert not writing.done()
    gates[0].opened.set()
    assert (await writing).model_version == 2
    del service.model.state.model.copy


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
    gate, changes = Gate(service.model.state.model, "copy"), service.changes
    async with running(service):
        adding = [asyncio.create_task(changes.add(new_samples(40)))]
        await gate.reached()
        adding += [asyncio.create_task(changes.add(new_samples(1, f"w{i}"))) for i in range(2)]
        await until(lambda: len(changes.writer._waiting) == 2)
        for refused in (changes.add(new_samples(1, "x")), changes.replace(Replacement("c2", [1, "a", True], "yes"))):
            with pytest.raises(BusyError):
                await refused
        erasures = [asyncio.create_task(changes.delete(ids=[f"c{i}"])) for i in range(20)]
        await until(lambda: len(changes.writer._waiting) == 22)
        gate.opened.set()
        assert [(await each).n_new for each in adding] == [40, 1, 1]
        assert [(await each).unlearned for each in erasures] == [1] * 20


@pytest.mark.parametrize("a_slice", [0, 1])
async def test_many_requests_at_once_end_in_the_state_of_their_answers(monkeypatch, a_slice):
    """Additions, deletions and predictions together; afterwards the model is a fresh fit on what is held."""
    async with served_here(service := make_service()) as client:
        make_changes_long(monkeypatch, a_slice=a_slice)
        calls: list[Any] = []
        for i in range(30):
            calls += [client.post("/samples", json=samples(1 + i % 7, f"b{i}-")), client.delete(f"/samples/c{i}")]
            calls.append(client.post("/predict", json={"instances": rows(3)}))
        answers = [answer.json() for answer in await asyncio.gather(*calls)]
        versions = [answer["model_version"] for answer in answers]
        assert max(versions) == 61
        assert sorted(v for v, a in zip(versions, answers, strict=True) if "predictions" not in a) == list(range(2, 62))
    model = service.model.state.model
    assert (model.verify().ok, model.n_samples_) == (True, 60 - 30 + sum(1 + i % 7 for i in range(30)))


# --- failures


async def test_an_error_inside_the_model_stops_changes_but_not_predictions(tmp_path, caplog):
    service = make_service(directory=tmp_path / "data")
    service.model.state.model.apply = raising(RuntimeError("SECRET"))
    async with running(service):
        with pytest.raises(RuntimeError):
            await service.changes.delete(ids=["c1"])
        assert service.model.state.failed
        changes = service.changes.add(new_samples(1)), service.changes.delete(ids=["c2"])
        for refused in (*changes, service.erasure.checkpointer.snapshot()):
            with pytest.raises(UnavailableError, match="until a restart"):
                await refused
        assert (await service.questions.predict(rows(1))).model_version == 1
    assert "SECRET" not in caplog.text
    assert len(list((tmp_path / "data").glob("snapshot-*"))) == 1, "what is in doubt is not written"


async def test_tags_of_a_change_are_resolved_in_the_background_and_counted_once():
    async with running(service := make_service(idle_resolve=True)):
        tagged = service.model.state.tagged
        await until(lambda: not tagged.is_set())
        await service.changes.delete(ids=["c1"])
        await until(lambda: not tagged.is_set() and service.measure().lazy_tags == 0)
        resolved = service.measure().resolved_tags
        assert resolved > 0
        await service.questions.predict(rows(1))
        assert service.measure().resolved_tags == resolved


async def test_nothing_is_answered_before_it_is_ready_and_a_failed_warm_up_only_makes_first_requests_slow(caplog):
    service = make_service()
    snapshot = service.erasure.checkpointer.snapshot()
    for refused in (service.changes.add(new_samples(1)), service.questions.predict(rows(1)), snapshot):
        with pytest.raises(UnavailableError, match="starting"):
            await refused
    service.lifecycle._options.warm_up = lambda: 1 // 0
    async with running(service):
        assert len((await service.questions.predict(rows(1))).result.labels) == 1
    assert "the first requests are slow: an internal error at test_service.py" in caplog.text
