"""A kill at every step of a commit, a snapshot, a rename, a compaction, an erasure: before it and after it.

A kill between two slices of a large change: it was on the disk before the first, so that it comes back whole.
"""

import http.client
import shutil
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.clients import as_json
from tests.process.durability.evidence import check_evidence
from tests.process.durability.model_of_truth import Sent, Truth
from tests.process.durability.people import flags, people, write_csv
from tests.process.durability.reading import check_set, live_digest, read_held
from tests.process.durability.steps import FLAGS, History, Kill, Plan, kills_for, started, thinned
from tests.serving import serving

# Of everything that a change of state goes through.
NEEDED = {
    *("SqliteJournal.append", "SqliteJournal.rotate", "SqliteJournal.drop_before"),
    *("SnapshotStore.write", "LedgerDatabase.flush", "os.fsync", "os.replace", "os.unlink"),
}


@pytest.mark.parametrize("n_kills", [2, pytest.param(10_000, marks=pytest.mark.long)])
def test_killed_at_steps_of_every_sort(begun, truth, tmp_path, n_kills):
    dry, history = Plan(shutil.copytree(begun, tmp_path / "dry")), History(deepcopy(truth))
    with started(dry) as server:
        assert server is not None
        assert history.happen(server)
        assert len(history.check(server)) == 0
        assert server.stop() == 0
    taken = dry.steps_taken()
    assert taken.keys() >= NEEDED
    kills = thinned(kills_for(taken), n_kills)

    def die_at(number: int) -> bool:
        """Die at a step, come back, and compare; whether the step was reached."""
        kill, history = kills[number], History(deepcopy(truth))
        plan = Plan(shutil.copytree(begun, tmp_path / f"kill{number}"), kill)
        with started(plan) as server:
            if server is not None and history.happen(server):
                server.stop()  # the step may belong to the end
        reached = plan.steps_taken()[kill.step] >= kill.number
        with serving(*FLAGS, cwd=plan.folder) as server:
            differences = history.check(server)
            assert not differences, f"{kill}: {differences}"
            assert server.stop() == 0
        shutil.rmtree(plan.folder)
        return reached

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(die_at, range(len(kills))))
    # What runs beside the requests goes by the clock, and may take its steps in another order.
    assert sum(found) >= len(kills) * (0.8 if len(kills) > 10 else 0.5)


@pytest.mark.parametrize("n_kills", [1, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_first_start_that_was_killed_is_repeated(folder, tmp_path_factory, n_kills):
    copies = tmp_path_factory.mktemp("copies")
    kills = [Kill("LedgerDatabase.flush", 1, "after")]
    if n_kills > 1:
        dry = Plan(shutil.copytree(folder, copies / "dry"))
        with started(dry) as server:
            assert server is not None
            server.process.kill()
        kills = kills_for(dry.steps_taken())
        assert len(kills) > 20
    for number, kill in enumerate(kills):
        plan = Plan(shutil.copytree(folder, copies / str(number)), kill)
        with started(plan) as server:
            assert server is None or server.process.poll() is not None, f"{kill} was not reached"
        with serving(*FLAGS, cwd=plan.folder) as server:
            history = History(Truth(people(), server.get("/model")[1]["model_version"]))
            assert len(history.check(server)) == 0, kill
            assert server.stop() == 0


# --- a large change

N, N_CHANGED = 9000, 600
# So many occurrences make a change of these samples long enough for some slices, and short of planting all again.
LARGE = flags("--n-estimators", "40", "--occurrence", "1")
PAUSE = "ModelLock.pause"
GONE = [f"p{15 * i}" for i in range(N_CHANGED)]


def change(name: str) -> tuple[str, dict[str, Any]]:
    """Path and body of a change of many samples."""
    if name == "delete":
        return "/samples/batch-delete", {"ids": GONE}
    new = list(people(N + N_CHANGED).values())[N:]
    return "/samples", {"samples": [as_json(Sent(f"new {i}", content)) for i, content in enumerate(new)]}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data directory that holds many people."""
    folder = tmp_path_factory.mktemp("many")
    write_csv(folder / "people.csv", N)
    with serving(*LARGE, cwd=folder) as server:
        assert server.stop() == 0
    return folder


@pytest.mark.long
@pytest.mark.parametrize("name", ["add", "delete"])
@pytest.mark.parametrize("number", [1, 2, 4, 6])
def test_killed_between_slices(many: Path, tmp_path: Path, name: str, number: int) -> None:
    plan, (path, body) = Plan(tmp_path / "copy", Kill(PAUSE, number, "before")), change(name)
    shutil.copytree(many, plan.folder)
    with started(plan, LARGE) as server:
        assert server is not None
        with pytest.raises((OSError, http.client.HTTPException)):
            server.ask("POST", path, body, Idempotency_Key="once")
        assert server.process.wait(timeout=60) == -9
    assert plan.steps_taken()[PAUSE] == number
    with serving(*LARGE, cwd=plan.folder) as server:
        held, version = read_held(server)
        expected = {f"p{i}" for i in range(N)}
        expected = expected - set(GONE) if name == "delete" else expected | {f"new {i}" for i in range(N_CHANGED)}
        assert (held.keys(), version) == (expected, 2)
        # A caller that got no answer sends the request again, and gets the answer to the change that was made.
        status, answer = server.ask("POST", path, body, Idempotency_Key="once")
        assert status in (200, 201), answer
        if name == "delete":
            check_evidence(server, [answer])
        assert read_held(server)[1] == version
        check_set(server)
        assert live_digest(server, by_snapshot=False)
        assert server.stop() == 0
