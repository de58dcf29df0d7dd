"""A directory from a backup, started with today's ledger: nothing that is gone is served, wherever it is killed.

The same of an empty directory, where all but the keys, the data file and the ledger is lost.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.process.durability.asking import send
from tests.process.durability.clients import as_json
from tests.process.durability.clocks import Clock, add_expiring
from tests.process.durability.evidence import check_evidence, read_ledger, read_pages
from tests.process.durability.model_of_truth import Sent
from tests.process.durability.people import Content, flags, people
from tests.process.durability.reading import finish, fresh_digest, live_digest, read_held, read_schema
from tests.process.durability.steps import Kill, Plan, kills_for, thinned
from tests.serving import Running, serving

FLAGS = flags("--erasure-deadline", "600")
WITH_LEDGER = (*FLAGS, "--ledger", "newer.jsonl")
PEOPLE = people()


@dataclass
class Backup:
    """A folder with the data directory of yesterday and the ledger of today."""

    folder: Path
    held: dict[str, Content]
    receipts: list[dict[str, object]]
    version: int


@pytest.fixture(scope="module")
def backup(_begun: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory) -> Backup:
    folder = tmp_path_factory.mktemp("backup") / "backup"
    shutil.copytree(_begun[0], folder)
    clock = Clock(folder)
    command = Plan(folder, clock=clock.path).command
    with serving(*FLAGS, cwd=folder, command=command) as server:
        add_expiring(server, "short", clock.after(1800), 5)
        assert server.stop() == 0
    shutil.copytree(folder / "oubli-data", folder / "yesterday")
    with serving(*FLAGS, cwd=folder, command=command) as server:
        receipts = [send(server, "DELETE", f"/samples{what}")[1] for what in ("?subject=h0", "/p9", "?id=p20&id=p21")]
        content = {"features": list(PEOPLE["p11"].features), "label": "<=50K"}
        receipts.append(send(server, "PUT", "/samples/p10", content)[1])
        clock.set(3600)
        while server.get("/samples/short")[0] == 200:
            pass
        assert send(server, "POST", "/samples", {"samples": [as_json(Sent("late", PEOPLE["p12"]))]})[0] == 201
        receipts.append(send(server, "DELETE", "/samples/late")[1])
        finish(server, "/model/scrub")
        pages = read_pages(server)
        version = server.get("/model")[1]["model_version"]
        assert server.stop() == 0
    (folder / "newer.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    shutil.rmtree(folder / "oubli-data")
    (folder / "yesterday").rename(folder / "oubli-data")
    gone = {"p0", "p1", "p2", "p3", "p9", "p10", "p20", "p21"}
    return Backup(folder, {name: one for name, one in PEOPLE.items() if name not in gone}, receipts, version)


def check(server: Running, backup: Backup) -> None:
    held, version = read_held(server)
    assert held == backup.held
    assert version > backup.version
    check_evidence(server, backup.receipts)
    (entry,) = [one for one in read_ledger(server) if one["type"] == "restore"]
    counts = [entry[f"dropped_{how}"] for how in ("erased", "rectified", "expired")]
    assert counts == [7, 1, 1]
    assert live_digest(server, by_snapshot=True) == fresh_digest(read_schema(server), held)


def test_a_backup_with_the_newer_ledger_serves_nothing_that_is_gone(backup, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(backup.folder, folder)
    for more in (WITH_LEDGER, WITH_LEDGER, FLAGS):
        with serving(*more, cwd=folder) as server:
            check(server, backup)
            server.process.kill()
    assert "7 erased, 1 rectified, 1 expired" not in server.output, "it was done by the first start"


@contextmanager
def killed_at(folder: Path, kill: Kill | None) -> Iterator[Plan]:
    """Run a start that is killed at a step; the next step of the test finds what is left."""
    plan = Plan(folder, kill)
    with ExitStack() as stack:
        try:
            server = stack.enter_context(serving(*WITH_LEDGER, cwd=folder, command=plan.command))
        except AssertionError as ended:
            if kill is None or "the server ended with -9" not in str(ended):
                raise
        else:
            server.process.kill()
        yield plan


def steps_of_a_start(backup: Backup, folder: Path) -> Counter[str]:
    shutil.copytree(backup.folder, folder)
    with killed_at(folder, None) as plan:
        return plan.steps_taken()


def survive(
    backup: Backup, kills: Sequence[Kill], tmp_path: Path, check: Callable[[Running, Backup], None] = check
) -> None:
    for number, kill in enumerate(kills):
        folder = tmp_path / f"kill{number}"
        shutil.copytree(backup.folder, folder)
        with killed_at(folder, kill):
            pass
        with serving(*WITH_LEDGER, cwd=folder) as server:
            check(server, backup)
        shutil.rmtree(folder)


def test_killed_at_some_steps_of_that_start(backup, tmp_path, tell):
    taken = steps_of_a_start(backup, tmp_path / "dry")
    methods = {"LedgerDatabase.adopt", "SnapshotStore.write", "SqliteJournal.rotate"}
    assert taken.keys() >= {*methods, "os.unlink", "os.fsync"}
    survive(backup, thinned(kills_for(taken), 2), tmp_path)


@pytest.mark.long
def test_killed_at_every_step_of_that_start(backup, tmp_path, tell):
    kills = kills_for(steps_of_a_start(backup, tmp_path / "dry"))
    survive(backup, kills, tmp_path)
    tell(f"killed at a start with the newer ledger: {len(kills)} kills survived, nothing that was gone came back")
    assert len(kills) > 40


@pytest.fixture
def lost(backup: Backup, tmp_path: Path) -> Backup:
    folder = tmp_path / "lost"
    shutil.copytree(backup.folder, folder)
    (folder / "oubli-data").rename(folder / "yesterday")
    shutil.copytree(folder / "yesterday" / "keys", folder / "oubli-data" / "keys")
    return replace(backup, folder=folder)


def check_begun(server: Running, lost: Backup) -> None:
    held, version = read_held(server)
    assert held == lost.held
    assert version > lost.version
    check_evidence(server, lost.receipts)
    entry = [one for one in read_ledger(server) if one["type"] == "begin"][-1]
    assert [entry[f"dropped_{how}"] for how in ("erased", "rectified", "expired")] == [7, 1, 0]
    assert live_digest(server, by_snapshot=True) == fresh_digest(read_schema(server), held)


def test_an_empty_directory_with_the_newer_ledger_serves_nothing_that_is_gone(lost):
    for more in (WITH_LEDGER, WITH_LEDGER, FLAGS):
        with serving(*more, cwd=lost.folder) as server:
            check_begun(server, lost)
            server.process.kill()


def test_killed_at_some_steps_of_a_start_with_an_empty_directory(lost, tmp_path):
    taken = steps_of_a_start(lost, tmp_path / "dry")
    assert taken.keys() >= {"LedgerDatabase.adopt", "SnapshotStore.write", "SqliteJournal.append", "os.fsync"}
    survive(lost, thinned(kills_for(taken), 2), tmp_path, check_begun)


@pytest.mark.long
def test_killed_at_every_step_of_a_start_with_an_empty_directory(lost, tmp_path, tell):
    kills = kills_for(steps_of_a_start(lost, tmp_path / "dry"))
    survive(lost, kills, tmp_path, check_begun)
    tell(f"killed at a start with an empty directory and the ledger: {len(kills)} kills survived")
    assert len(kills) > 20
