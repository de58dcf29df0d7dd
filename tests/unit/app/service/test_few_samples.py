"""A change of some samples costs what as many single ones cost: no copy, nothing resolved, and nobody waits for it."""

import asyncio
from typing import Any

import pytest

from oubli.app.errors import UnavailableError
from oubli.app.service.changes.deletions import DeleteSamples
from oubli.app.service.model.state import ModelLock
from oubli.app.service.service import Service
from oubli.core.errors import UnusableModelError
from oubli.core.forest.engine import ForestEngine
from tests.unit.app.service.support import copies_of, fail_at, new_samples, running
from tests.unit.app.support import forest, make_answers_long, make_changes_long, make_service, reopened, rows

pytestmark = pytest.mark.anyio
N = 1500
A_SLICE = 8
MANY = [f"c{i}" for i in range(100)]


def without(names: list[str]) -> Any:
    """A model that has unlearned samples, and resolved nothing."""
    model = forest(N)
    model.resolve()
    model.delete(names)
    return model


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("k", [2, 100])
async def test_no_copy_is_made_and_nothing_is_resolved(monkeypatch, tmp_path, k, durable):
    model = forest(N)
    model.resolve()
    service, copies = make_service(model, tmp_path / "data" if durable else None), copies_of(monkeypatch, type(model))
    async with running(service):
        before, state = len(copies), service.model.state
        assert (await service.changes.delete(ids=MANY[:k])).unlearned == k
        assert model.n_lazy_tags_ == without(MANY[:k]).n_lazy_tags_
        assert (await service.changes.add(new_samples(k))).n_new == k
        assert (await service.changes.delete(ids=[f"n{i}" for i in range(k)])).unlearned == k
        assert (state.model is model, len(copies), state.n_resolved) == (True, before, 0)


def asked(service: Service) -> list[Any]:
    """What a reader on the loop gets, with the version that it is told."""
    questions, state = service.questions, service.model.state
    one, some = questions.predict_now(rows(1)), questions.predict_now(rows(7))
    assert one.model_version == some.model_version == state.version
    numbers = [one.result.probabilities.tolist(), some.result.probabilities.tolist()]
    page = questions.page(subject=None, after=None, limit=3)
    return [state.version, numbers, state.model.n_samples_, [sample.id for sample in page.samples]]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("deleted", [{}, {"ids": MANY}, {"subjects": ["ada"]}])
async def test_readers_between_slices_have_the_model_before_or_after(monkeypatch, tmp_path, deleted, durable):
    service = make_service(forest(N), tmp_path / "data" if durable else None)
    make_changes_long(monkeypatch, a_slice=A_SLICE)
    async with running(service):
        state = service.model.state
        state.model.resolve()
        before, seen = asked(service), []
        for i in range(5, 105):
            state.model.samples_.set_subject(f"c{i}", "ada")
        changes = service.changes
        making = asyncio.create_task(changes.delete(**deleted) if deleted else changes.add(new_samples(100)))
        n_slices, model = 0, state.model
        while not making.done():
            n_slices += state.model is not model
            seen.append(asked(service))
            await asyncio.sleep(0)
        after = asked(service)
        assert (await making).model_version == after[0] == 2
        assert all(one in (before, after) for one in seen)
        assert n_slices >= 100 // A_SLICE
        assert (state.model is model, model.verify().ok) == (True, True)


async def test_long_predictions_are_made_between_slices_and_all_else_in_threads_and_changes_wait(monkeypatch):
    service = make_service(forest(N))
    make_changes_long(monkeypatch, a_slice=A_SLICE)
    make_answers_long(monkeypatch)
    async with running(service):
        model, order = service.model.state.model, []
        model.resolve()
        expected = model.query(rows(30), frozen=True).probabilities.tolist()
        deleting = asyncio.create_task(service.changes.delete(ids=MANY))
        while service.model.state.model is model:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)

        async def note(what: str, answer: Any) -> Any:
            found = await answer
            order.append(what)
            return found

        others = [
            note("predict", service.questions.predict(rows(30))),
            note("look", service.questions.inspector.importances()),
            note("add", service.changes.add(new_samples(1))),
        ]
        tasks = [asyncio.create_task(note("delete", deleting)), *map(asyncio.create_task, others)]
        predicted, added = (await asyncio.gather(*tasks))[1::2]
        assert order[:2] == ["predict", "delete"]
        assert (predicted.model_version, added.model_version) == (1, 3)
        assert predicted.result.probabilities.tolist() == expected


# What makes room is made before the first slice, so that the pause after it is the first one.
@pytest.mark.parametrize(
    ("owner", "name", "number"),
    [(ForestEngine, "update", 1), (ForestEngine, "update", 4), (ModelLock, "pause", 2), (ModelLock, "pause", 4)],
)
async def test_an_error_in_a_slice_or_after_it_stops_changes_and_is_made_good_by_a_restart(
    monkeypatch, tmp_path, owner, name, number
):
    async with running(service := make_service(forest(N), tmp_path / "data")):
        service.model.state.model.resolve()
        make_changes_long(monkeypatch, a_slice=A_SLICE)
        fail_at(monkeypatch, owner, name, number, MemoryError())
        with pytest.raises(UnavailableError):
            await service.changes.delete(ids=MANY)
        assert service.model.state.failed
        with pytest.raises(UnusableModelError):
            service.questions.predict_now(rows(1))
        with pytest.raises(UnavailableError):
            await service.changes.add(new_samples(1))

    monkeypatch.undo()
    recovered = reopened(tmp_path / "data").model.state
    assert (recovered.version, recovered.model.digest()) == (2, without(MANY).digest())


async def test_a_caller_that_is_gone_leaves_the_change_whole(monkeypatch):
    service = make_service(forest(N))
    make_changes_long(monkeypatch, a_slice=A_SLICE)
    async with running(service):
        model = service.model.state.model
        deleting = asyncio.create_task(service.changes.delete(ids=MANY))
        while service.model.state.model is model:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
        assert (await service.changes.delete(ids=["c200"])).model_version == 3
        assert model.digest() == without([*MANY, "c200"]).digest()


async def test_very_many_names_of_which_few_are_held_are_no_long_change(monkeypatch):
    service = make_service(forest(N))
    copies = copies_of(monkeypatch, type(service.model.state.model))
    async with running(service):
        command = DeleteSamples([*(f"nobody{i}" for i in range(2000)), "c1"])
        receipt = await service.changes.writer.execute(command)
        assert (receipt.unlearned, receipt.absent, copies) == (1, 2000, [])
