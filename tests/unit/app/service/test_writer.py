"""Mutations on their way to the disk and into the model: together, in order, or not at all."""

import asyncio
from collections.abc import Sequence

import pytest

from oubli.app import errors
from oubli.app.errors import JournalError, JournalFullError, StorageError, UnavailableError
from oubli.app.service.changes.additions import AddSamples
from oubli.app.service.changes.deletions import Replacement
from oubli.app.service.service import Service
from oubli.app.storage.journal import Record
from tests.unit.app.service.support import new_samples, raising
from tests.unit.app.support import forest, make_changes_long, rows

pytestmark = pytest.mark.anyio


class Appends:
    """Sees what a service's journal is given, and can refuse it."""

    def __init__(self, service: Service) -> None:
        self.batches, self.reserved, self.refusals = list[list[Record]](), list[bool](), list[Exception]()
        self.models: list[tuple[int, int]] = []  # version and number of samples meanwhile
        self._state, journal = service.model.state, service.disk.storage.journal
        self._append = journal.append
        journal.append = self  # type: ignore[method-assign, assignment]

    def __call__(self, records: Sequence[Record], *, reserve: bool = False) -> None:
        self.batches.append(list(records))
        self.reserved.append(reserve)
        self.models.append((self._state.version, self._state.model.n_samples_))
        if self.refusals:
            raise self.refusals.pop(0)
        self._append(records, reserve=reserve)


@pytest.fixture
def appends(service: Service) -> Appends:
    return Appends(service)


def fresh(add: list[str], delete: list[str]) -> str:
    """The digest of a model that was changed without a service."""
    model = forest()
    for name in add:
        batch = new_samples(1, name)
        model.add(batch.rows, batch.labels, ids=batch.ids)
    if delete:
        model.delete(delete)
    return str(model.digest())


async def refuses_both(service: Service, error: type[Exception], match: str | None = None) -> None:
    """An addition and a deletion that wait together are refused."""
    waiting = (service.changes.add(new_samples(1)), service.changes.delete(ids=["c1"]))
    for each in [asyncio.ensure_future(one) for one in waiting]:
        with pytest.raises(error, match=match):
            await each


async def test_what_waits_shares_a_flush_and_each_keeps_its_version(service, appends):
    adding = [asyncio.create_task(service.changes.add(new_samples(1, f"n{i}-"))) for i in range(10)]
    deleting = [asyncio.create_task(service.changes.delete(ids=[f"c{i}"])) for i in range(10)]
    versions = [(await each).model_version for each in (*adding, *deleting)]
    assert versions == list(range(2, 22))
    numbers = [record.seq for batch in appends.batches for record in batch]
    assert numbers == list(range(numbers[0], numbers[0] + 20))
    assert len(appends.batches) <= 3
    assert service.model.state.model.digest() == fresh([f"n{i}-" for i in range(10)], [f"c{i}" for i in range(10)])


async def test_requests_for_one_sample_are_made_one_after_the_other_and_written_if_they_change_it(service, appends):
    first = asyncio.create_task(service.changes.add(new_samples(1, "x")))
    again = asyncio.create_task(service.changes.add(new_samples(1, "x")))
    other = new_samples(1, "x")
    other.labels = ["another"]
    conflict = asyncio.create_task(service.changes.add(other))
    assert ((await first).n_new, (await again).n_new) == (1, 0)
    with pytest.raises(errors.ConflictError):
        await conflict
    replacement = Replacement("x0", [9, "z", True], "yes")
    rectify = asyncio.create_task(service.changes.replace(replacement))
    delete = asyncio.create_task(service.changes.delete(ids=["x0"]))
    late = asyncio.create_task(service.changes.replace(replacement))
    assert ((await rectify).model_version, (await delete).model_version) == (3, 4)
    with pytest.raises(errors.NotHeldError):
        await late
    assert sum(map(len, appends.batches)) == 3
    assert appends.models[0] == (1, 60), "nothing is in the model before it is on the disk"


async def test_a_subject_and_its_new_sample_do_not_pass_each_other(service):
    sample = new_samples(1, "x")
    sample.subjects = ["s1"]
    deleting = asyncio.create_task(service.changes.delete(subjects=["s1"]))
    adding = asyncio.create_task(service.changes.add(sample))
    again = asyncio.create_task(service.changes.delete(subjects=["s1"]))
    assert ((await deleting).unlearned, (await adding).n_new, (await again).unlearned) == (12, 1, 1)


async def test_on_a_full_disk_additions_are_refused_and_deletions_made(service, appends):
    appends.refusals = [JournalFullError("full"), JournalFullError("full")]
    head, state = service.disk.ledger.head, service.model.state
    await refuses_both(service, StorageError)  # the reserve was used up as well
    assert service.disk.ledger.head == head, "entries that were not written never were"
    assert (state.failed, state.model.digest()) == (False, forest().digest())
    appends.refusals = [JournalFullError("full")]
    receipt = await service.changes.delete(ids=["c1"])
    assert (receipt.unlearned, receipt.model_version) == (1, 2)
    assert (await service.changes.add(new_samples(1))).model_version == 3
    assert appends.reserved == [False, True, False, True, False]


async def test_after_a_failed_flush_nothing_changes_and_predictions_go_on(service, appends):
    before = (await service.questions.predict(rows(3))).result.labels.tolist()
    appends.refusals = [JournalError("failed")]
    for _ in range(2):
        await refuses_both(service, UnavailableError, "until a restart")
    assert len(appends.batches) == 1, "a flush that failed is not tried again"
    assert (service.model.state.failed, service.model.state.model.samples_.contains("c1")) == (True, True)
    assert (await service.questions.predict(rows(3))).result.labels.tolist() == before


@pytest.mark.parametrize("error", [JournalFullError("full"), JournalError("failed")])
async def test_a_long_change_that_is_refused_leaves_the_model_as_it_was(monkeypatch, service, error, appends):
    make_changes_long(monkeypatch)
    appends.refusals = [error]
    with pytest.raises((StorageError, UnavailableError)):
        await service.changes.add(new_samples(40))
    assert (service.model.state.model.digest(), service.model.state.version) == (forest().digest(), 1)


async def test_while_the_journal_is_away_everything_is_refused_and_nothing_stops(monkeypatch, service, appends):
    state, changes = service.model.state, service.changes
    appends.refusals = [errors.JournalUnreachableError("away") for _ in range(3)]
    await refuses_both(service, errors.JournalUnreachableError)
    assert appends.reserved == [False], "there is no reserve to try again with"
    assert state.stopped is errors.StopReason.JOURNAL_UNREACHABLE
    make_changes_long(monkeypatch)
    for work in (changes.add(new_samples(40)), changes.writer.note(lambda: service.disk.ledger.event("export", {}))):
        with pytest.raises(errors.JournalUnreachableError):
            await work
    assert state.model.digest() == forest().digest()
    await changes.delete(ids=["c1"])
    assert (state.model.samples_.contains("c1"), state.stopped) == (False, None)
    assert (await service.changes.add(new_samples(40))).n_new == 40


async def test_a_change_that_another_node_takes_is_refused_and_nothing_stops(service, appends):
    deposed, before = [], service.disk.ledger.head
    service.model.state.deposed = lambda: deposed.append(1)
    appends.refusals = [errors.DeposedError("another node leads")]
    for _ in range(2):
        await refuses_both(service, errors.NotLeaderError)
    assert (deposed, len(appends.batches), service.model.state.failed) == ([1], 1, False)
    assert (service.model.state.model.digest(), service.disk.ledger.head) == (forest().digest(), before)
    assert (await service.questions.predict(rows(3))).result.labels is not None


async def test_a_mistake_in_one_answer_keeps_no_other_from_its_own(service):
    assert service.changes.writer.submit(AddSamples(new_samples(1, "a")), raising(RuntimeError("SECRET")))
    assert (await asyncio.wait_for(service.changes.add(new_samples(1, "b")), 10)).n_new == 1
    assert service.model.state.model.samples_.contains("a0")


async def test_a_mistake_in_the_journal_is_told_and_stops_changes(service, appends):
    appends.refusals = [ValueError("SECRET")]
    with pytest.raises(ValueError, match="SECRET"):
        await asyncio.wait_for(service.changes.delete(ids=["c1"]), 10)
    assert (service.model.state.failed, service.model.state.model.samples_.contains("c1")) == (True, True)


async def test_the_set_tree_follows_after_the_answer(service):
    touched, answered = service.model.state.touched, asyncio.Event()
    n_before, found = touched.n, []

    def done(error: BaseException | None) -> None:
        found.append((error, touched.n))
        answered.set()

    assert service.changes.writer.submit(AddSamples(new_samples(1, "a")), done)
    await asyncio.wait_for(answered.wait(), 10)
    assert (found, touched.n) == ([(None, n_before)], n_before + 1)
    await service.changes.add(new_samples(1, "a"))  # is held: nothing changes
    assert touched.n == n_before + 1


async def test_whoever_waits_for_the_ledger_has_a_bell_of_its_own(service):
    bells = [service.disk.database.bell(), service.disk.database.bell()]
    await service.changes.add(new_samples(1, "a"))
    assert not any(bell.is_set() for bell in bells)  # the ledger tells nothing of additions
    await service.changes.delete(ids=["a0"])
    assert all(bell.is_set() for bell in bells)
    bells[0].clear()
    assert bells[1].is_set()
