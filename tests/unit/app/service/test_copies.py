"""Copies of the live model: the thread that makes one is waited for, and what is done with is overwritten."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from oubli.app.errors import StorageError
from oubli.core.model import Model
from tests.unit.app.support import forest, make_service, served_here

pytestmark = pytest.mark.anyio


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[Model]:
    """All copies that are made."""
    made, copy = [], Model.copy

    def noted(model: Model) -> Model:
        made.append(copy(model))
        return made[-1]

    monkeypatch.setattr(Model, "copy", noted)
    return made


@pytest.mark.parametrize("work", ["fit", "verify"])
async def test_the_model_counts_as_read_until_the_thread_of_a_cancelled_job_has_ended(work, monkeypatch):
    entered, may_end, wipe = threading.Event(), threading.Event(), Model.wipe

    def slow(model: Model) -> None:
        entered.set()
        may_end.wait(20)
        wipe(model)

    service = make_service(forest(20))
    async with served_here(service):
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


async def test_the_copy_of_a_snapshot_that_cannot_be_written_is_overwritten(copies, monkeypatch, tmp_path):
    def fails(*_: Any, **__: Any) -> None:
        raise StorageError("no")

    service = make_service(forest(20), tmp_path / "data")
    async with served_here(service):
        copies.clear()
        with monkeypatch.context() as failing:
            failing.setattr(type(service.disk.storage), "write", fails)
            with pytest.raises(StorageError):
                await service.erasure.checkpointer.write_snapshot()
        (copy,) = copies
        assert not hasattr(copy, "samples_")
