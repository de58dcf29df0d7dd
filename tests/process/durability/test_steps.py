"""A kill at every step of a commit, a snapshot, a rename, a compaction, an erasure: before it and after it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.process.durability.model_of_truth import Truth
from tests.process.durability.people import people, write_csv
from tests.process.durability.steps import FLAGS, History, Kill, Plan, kills_for, started, thinned
from tests.serving import serving

# Of everything that a change of state goes through.
NEEDED = {
    "SqliteJournal.append",
    "SqliteJournal.rotate",
    "SqliteJournal.drop_before",
    "SnapshotStore.write",
    "LedgerDatabase.flush",
    "os.fsync",
    "os.replace",
    "os.unlink",
}


def dry_run(folder: Path, truth: Truth) -> Counter[str]:
    """Go through the history without an end, and return the steps it took."""
    plan = Plan(folder)
    history = History(truth)
    with started(plan) as server:
        assert server is not None
        assert history.happen(server)
        assert len(history.check(server)) == 0
        assert server.stop() == 0
    return plan.steps_taken()


def die_at(folder: Path, truth: Truth, kill: Kill) -> tuple[bool, int]:
    """Die at a step, come back, and compare; whether the step was reached, and how many requests were sent."""
    history = History(truth)
    plan = Plan(folder, kill)
    with started(plan) as server:
        if server is not None and history.happen(server):
            server.stop()  # the step may belong to the end
    reached = plan.steps_taken()[kill.step] >= kill.number
    n_requests = len(history.operations)
    with serving(*FLAGS, cwd=folder) as server:
        differences = history.check(server)
        assert not differences, f"{kill}: {differences}"
        assert server.stop() == 0
    return reached, n_requests


def die_at_each(source: Path, truth: Truth, kills: Sequence[Kill], tmp_path: Path) -> tuple[int, int]:
    """Die at several steps, each time from the same beginning; return the kills and the requests."""

    def one(number: int) -> tuple[bool, int]:
        folder = tmp_path / f"kill{number}"
        shutil.copytree(source, folder)
        try:
            return die_at(folder, truth.copy(), kills[number])
        finally:
            shutil.rmtree(folder)

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(one, range(len(kills))))
    return sum(reached for reached, _ in found), sum(n for _, n in found)


def test_killed_at_steps_of_every_sort(begun, truth, tmp_path, tell):
    taken = dry_run(shutil.copytree(begun, tmp_path / "dry"), truth.copy())
    assert taken.keys() >= NEEDED
    kills = thinned(kills_for(taken), 4)
    reached, n_requests = die_at_each(begun, truth, kills, tmp_path)
    tell(f"killed at steps: {reached} kills survived, {n_requests:,} operations checked, lost 0, resurrected 0")
    assert reached >= 2  # what runs beside the requests may take its steps in another order


@pytest.mark.long
def test_killed_at_every_step(begun, truth, tmp_path, tell):
    taken = dry_run(shutil.copytree(begun, tmp_path / "dry"), truth.copy())
    kills = kills_for(taken)
    reached, n_requests = die_at_each(begun, truth, kills, tmp_path)
    tell(f"killed at every step: {reached} kills survived, {n_requests:,} operations checked, lost 0, resurrected 0")
    assert reached > 0.8 * len(kills)  # by the clock, and so not always: the ledger is flushed beside the requests


@pytest.fixture
def beginning(tmp_path: Path) -> Path:
    """A folder with nothing but the data."""
    folder = tmp_path / "beginning"
    folder.mkdir()
    write_csv(folder / "people.csv")
    return folder


def begin_again_after(kill: Kill, beginning: Path, folder: Path) -> bool:
    """Die in the first start, and start a second time; whether the step was reached."""
    shutil.copytree(beginning, folder)
    plan = Plan(folder, kill)
    with started(plan) as server:
        lived = server is not None and server.process.poll() is None
    with serving(*FLAGS, cwd=folder) as server:
        history = History(Truth(people(), server.get("/model")[1]["model_version"]))
        assert len(history.check(server)) == 0, kill
        assert server.stop() == 0
    return not lived


@pytest.mark.parametrize("kill", [Kill("LedgerDatabase.flush", 1, "after"), Kill("SnapshotStore.write", 1, "before")])
def test_a_first_start_that_was_killed_is_repeated(kill, beginning, tmp_path):
    assert begin_again_after(kill, beginning, tmp_path / "killed")


@pytest.mark.long
def test_killed_at_every_step_of_the_first_start(beginning, tmp_path, tell):
    plan = Plan(shutil.copytree(beginning, tmp_path / "dry"))
    with started(plan) as server:
        assert server is not None
        server.process.kill()
    kills = kills_for(plan.steps_taken())
    reached = [begin_again_after(kill, beginning, tmp_path / f"kill{i}") for i, kill in enumerate(kills)]
    tell(f"killed at the first start: {sum(reached)} kills survived")
    assert all(reached)
    assert len(kills) > 20
