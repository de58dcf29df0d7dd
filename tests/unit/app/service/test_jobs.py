import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from oubli.app.errors import BusyError, StorageError
from oubli.app.service.jobs.jobs import STOPPED, Job, JobBoard, Report
from oubli.app.service.model.influence import seconds_for
from oubli.core.errors import InputError

pytestmark = pytest.mark.anyio


class Gate:
    """Work that waits until it is let go."""

    report: Report | None = None

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def work(self, report: Report) -> dict[str, Any]:
        self.report = report
        await self.open.wait()
        return {"n": 7}


async def done(report: Report) -> dict[str, Any]:
    return {"ok": True}


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def begun(board: JobBoard, work: Any) -> Job:
    """A job after everything that can go on has gone on."""
    job = board.start("verify", work)
    await settle()
    return job


def state(board: JobBoard, job: Job) -> tuple[str, float, Any, Any]:
    now: Any = board.get(job.id)
    assert (now.id, now.kind) == (job.id, job.kind)
    return now.status, now.progress, now.result, now.error


async def test_jobs_run_one_at_a_time_in_their_order_and_have_results():
    board, gates = JobBoard(), [Gate(), Gate(), Gate()]
    jobs = [board.start("verify", gate.work) for gate in gates]
    for i, gate in enumerate(gates):
        await settle()
        statuses = [state(board, job)[0] for job in jobs]
        assert statuses == ["succeeded"] * i + ["running"] + ["queued"] * (2 - i)
        gate.report(0.25)
        await settle()
        assert state(board, jobs[i]) == ("running", 0.25, None, None)
        gate.open.set()
    await settle()
    gates[0].report(0.5)  # after the end it changes nothing
    await settle()
    for job in jobs:
        assert state(board, job) == ("succeeded", 1.0, {"n": 7}, None)
        assert (job.status, job.progress) == ("queued", 0.0)  # what was answered does not change under the caller


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_full_queue_refuses(has_begun):
    board, gate = JobBoard(max_queue=2), Gate()
    for _ in range(3):
        board.start("verify", gate.work)
        if has_begun:
            await settle()
    with pytest.raises(BusyError):
        board.start("verify", gate.work)
    gate.open.set()
    await settle()
    board.start("verify", done)


async def test_a_failed_job_says_why_without_values_and_the_next_one_runs(caplog):
    caplog.set_level(logging.INFO)
    board, jobs = JobBoard(), []
    told: list[Exception] = [StorageError("no room on the disk"), BusyError()]
    for error in (ValueError("SECRET"), InputError("SECRET rule", value="SECRET"), *told):

        async def fail(report: Report, error: Exception = error) -> dict[str, Any]:
            raise error

        jobs.append(board.start("fit", fail))
    jobs.append(board.start("fit", done))
    await settle()
    errors = [state(board, job)[3] for job in jobs]
    assert all(error.startswith("an internal error at test_jobs.py:") for error in errors[:2])
    assert errors[2:] == ["no room on the disk", "as many requests wait for the model as may wait", None]
    assert [state(board, job)[0] for job in jobs] == ["failed"] * 4 + ["succeeded"]
    assert "SECRET" not in caplog.text
    assert "a job of kind fit failed: an internal error at test_jobs.py" in caplog.text


async def test_progress_comes_from_any_thread_and_never_goes_back():
    def count(report: Report) -> dict[str, Any]:
        for share in (*(i / 10_000 for i in range(10_001)), 0.5, 7.0):
            report(share)
        return {"thread": threading.current_thread() is threading.main_thread()}

    async def work(report: Report) -> dict[str, Any]:
        return await asyncio.to_thread(count, report)

    board = JobBoard()
    seen = [state async for state in board.watch(board.start("fit", work).id)]
    progress = [state.progress for state in seen]
    assert progress == sorted(progress)
    assert 1 < len(seen) <= 210  # small steps are not told
    assert all(0 <= share <= 1 for share in progress)
    assert seen[-1].result == {"thread": False}


async def test_watching_ends_when_the_server_stops():
    board, gate = JobBoard(), Gate()
    job = await begun(board, gate.work)

    async def watch() -> list[Job]:
        return [found async for found in board.watch(job.id)]

    task = asyncio.create_task(watch())
    await settle()
    assert not task.done()
    board.drain()
    for watched in (await task, await watch()):
        assert [found.status for found in watched] == ["running"]
    with pytest.raises(BusyError):
        board.start("verify", done)
    gate.open.set()
    await settle()
    assert state(board, job)[0] == "succeeded"  # it went on all the same


async def test_closing_ends_all_jobs():
    board, gate = JobBoard(), Gate()
    running, queued = await begun(board, gate.work), await begun(board, done)
    new = board.start("verify", done)
    watched = board.watch(queued.id)
    await anext(watched)
    await board.close()
    for job in (running, queued, new):
        assert state(board, job) == ("failed", 0.0, None, STOPPED)
    assert [found.status async for found in watched] == ["failed"]
    with pytest.raises(BusyError):
        board.start("verify", done)
    await board.close()


async def test_finished_jobs_are_forgotten_the_oldest_first():
    board, gate = JobBoard(max_kept=3, max_queue=10), Gate()
    first = [board.start("verify", done) for _ in range(3)]
    await settle()
    running = board.start("verify", gate.work)
    assert [board.get(job.id) is None for job in first] == [True, False, False]
    others = [board.start("verify", done) for _ in range(4)]
    # What has not ended is kept, however many there are.
    assert all(board.get(job.id) is not None for job in (running, *others))
    assert all(board.get(job.id) is None for job in first)
    gate.open.set()
    await settle()
    board.start("verify", done)
    assert [board.get(job.id) is None for job in (running, *others)] == [True, True, True, False, False]


# --- what is long enough for a job

FOREST = SimpleNamespace(kind="forest", n_samples_=1_000, settings_=SimpleNamespace(n_trees=100, occurrences=100))


def boosted(n: int, *, grids: bool = True) -> Any:
    named = {"n_samples_": n, "n_trees_": 100, "settings_": SimpleNamespace(is_quantised=grids)}
    return SimpleNamespace(kind="incremental-boosting", **named)


def test_which_questions_of_influence_take_long():
    adult, without_grids = boosted(32_561), boosted(32_561, grids=False)
    reverse = seconds_for(adult, "leaf-influence", "all", 1)
    assert reverse < 1 < seconds_for(boosted(1_000_000), "leaf-influence", "all", 1)
    assert seconds_for(adult, "leaf-influence", "single", 1) == reverse
    assert seconds_for(adult, "leaf-influence", 8, 1) > 1_000 * reverse
    assert seconds_for(adult, "leaf-refit", "all", 1) > max(100, 1_000 * reverse)
    assert reverse < seconds_for(adult, "leaf-refit", "single", 1) < seconds_for(adult, "leaf-refit", 1, 1) / 100
    assert seconds_for(adult, "leave-one-out", "all", 1) > 100
    # Exact splits are unlearned at the price of training; a forest is only read for few rows.
    assert seconds_for(without_grids, "leave-one-out", "all", 1) > 10 * seconds_for(adult, "leave-one-out", "all", 1)
    assert seconds_for(FOREST, "leave-one-out", "all", 100) > 10 * seconds_for(FOREST, "leave-one-out", "all", 1)
