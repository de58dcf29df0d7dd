"""A data directory from a backup with the newer ledger: what that says is gone is gone before anything is served."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oubli
from oubli.app.ledger.downloads import check_ledger
from oubli.app.service.build import OpenDirectory, compose, open_directory
from oubli.app.service.changes.deletions import DeleteSamples
from oubli.app.service.recovery import start
from oubli.app.service.recovery.start import LedgerChoice, drop_gone
from oubli.app.service.service import Service
from tests.reach import array_bytes
from tests.unit.app.service.killed import Kept, kills, steps_of
from tests.unit.app.service.support import begun, ended_here
from tests.unit.app.support import JSON, fitted, forest, rows, samples, served_here, with_subjects

pytestmark = pytest.mark.anyio
GONE = {"c1", "c6", "c11", "c16", "c21", "c26", "c31", "c36", "c41", "c46", "c51", "c56", "c7", "c8"}
COUNTS = {"dropped_erased": 12, "dropped_rectified": 1, "dropped_expired": 1}
KILLED_AT = [15, pytest.param(1, marks=pytest.mark.long)]


def boosting() -> Any:
    return with_subjects(fitted("online-boosting", n_estimators=3, random_state=0), 60)


def service_of(opened: OpenDirectory, model: Any = None, choice: LedgerChoice | None = None) -> Service:
    return compose(begun(opened, model, choice), idle_resolve=False)


async def make_backup(folder: Path, model: Any) -> Kept:
    """Take a backup of a directory, then erase, rectify and let expire, and download the ledger."""
    async with served_here(service_of(open_directory(folder / "now"), model)) as client:
        assert (await client.delete("/samples/c9")).status_code == 200
        assert (await client.post("/samples", json=samples(1, "kept"), headers=JSON)).status_code == 201
    shutil.copytree(folder / "now", folder / "data")
    async with served_here(service := service_of(open_directory(folder / "now"))) as client:
        assert (await client.get("/snapshot/file")).status_code == 200
        assert (await client.delete("/samples?subject=s1")).json()["unlearned"] == 12
        content = {"features": rows(9)[3], "label": "yes"}
        assert (await client.put("/samples/c7", json=content, headers=JSON)).status_code == 200
        await service.changes.writer.execute(DeleteSamples(["c8"], kind="expiry"))
        nameless = {"samples": [{"features": row, "label": "no"} for row in rows(2)]}
        ids = (await client.post("/samples", json=nameless, headers=JSON)).json()["ids"]
        assert (await client.delete(f"/samples/{ids[1]}")).json()["unlearned"] == 1
        await client.post("/samples", json=samples(1, "lost"), headers=JSON)
        scrub = (await client.post("/model/scrub", json={}, headers=JSON)).json()
        assert (await ended_here(client, scrub))["status"] == "succeeded"
        assert (await client.delete("/samples/lost0")).status_code == 200
        await service.disk.database.flush()
        (folder / "ledger.jsonl").write_bytes((await client.get("/ledger?limit=50")).content + b"\n")
    for path in (folder / "now").glob("ledger.sqlite*"):
        shutil.copy(path, folder)
    shutil.rmtree(folder / "now")
    return Kept(folder, service.model.state.version)


@pytest.fixture(
    scope="module",
    params=[pytest.param(forest, id="forest"), pytest.param(boosting, id="online-boosting", marks=pytest.mark.long)],
)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    return asyncio.run(make_backup(tmp_path_factory.mktemp("backup"), request.param()))


@pytest.fixture(params=[True, False], ids=["--ledger", "in the directory"])
def ledger(request: pytest.FixtureRequest) -> bool:
    """Whether the newer ledger is given as a file, or in the directory, as where files are backed up one by one."""
    return bool(request.param)


@pytest.fixture
def backup(made: Kept, ledger: bool, tmp_path: Path) -> Kept:
    backup = made.copy(tmp_path / "backup")
    if not ledger:
        backup.lose("ledger.sqlite*")
        for path in backup.folder.glob("ledger.sqlite*"):
            shutil.copy(path, backup.data)
    return backup


@contextmanager
def started(backup: Kept, ledger: bool) -> Iterator[tuple[OpenDirectory, Service]]:
    with closing(open_directory(backup.data)) as opened:
        yield opened, service_of(opened, choice=LedgerChoice(backup.ledger if ledger else None))


def check(opened: OpenDirectory, service: Service, backup: Kept) -> None:
    """Check that what is gone is gone: from the model, from the files, and from what a restore could bring back."""
    state, entries = service.model.state, opened.database.entries(0, 10**6)
    models = [state.model, *map(oubli.load, backup.data.glob("snapshot-*"))]
    expected = {f"c{i}" for i in range(60) if i != 9} - GONE | {"kept0"}
    assert [set(model.samples_.ids()) for model in models] == [expected] * 3
    assert (state.model.verify().ok, state.version > backup.version) == (True, True)
    check_ledger(entries)
    (entry,) = [one for one in entries if one["type"] == "restore"]
    restored = {**COUNTS, "at_start": True, "model_version": state.version}
    assert {name: entry[name] for name in restored} == restored
    for path in backup.data.glob("journal-0*"):
        content = path.read_bytes()
        assert not any(f'"{name}"'.encode() in content for name in GONE)
    assert opened.storage.journal.last_seq == state.seq >= opened.database.applied_seq()
    assert (state.exports, list(backup.data.glob(".*.tmp"))) == (1, [])


@pytest.mark.parametrize("every", KILLED_AT)
def test_killed_at_some_steps_it_ends_the_same(every, ledger, backup, tmp_path, monkeypatch):
    def start(kept: Kept, ledger: bool = ledger) -> None:
        with started(kept, ledger) as (opened, service):
            check(opened, service, kept)

    n_taken_in = 0
    for kill, killed in kills(backup, start, monkeypatch, tmp_path, every):
        if ledger:  # once the newer ledger is taken in it is not needed again
            once = killed.copy(tmp_path / "once")
            with started(once, ledger=False) as (opened, service):
                if opened.database.last_model_version() >= once.version:
                    n_taken_in += 1
                    check(opened, service, once)
                else:
                    assert service.model.state.model.samples_.contains("c1"), "the ledger is as old as the samples"
            shutil.rmtree(once.folder)
        steps_of(killed, start, monkeypatch, 5 + kill % 7)  # once more, a little later, and then not any more
        start(killed)
        start(killed, ledger=False)
    assert n_taken_in > 1 or not ledger


def test_what_the_newer_ledger_says_is_gone_is_dropped_once_it_is_on_the_disk(ledger, backup, monkeypatch):
    """Else a loss of power could leave files without the erased samples and a ledger that does not tell of them."""
    finish, waiting = start._finish_restore, []

    def finish_and_look(*args: Any) -> None:
        waiting.append((backup.data / "ledger.sqlite-wal").stat().st_size)
        finish(*args)

    monkeypatch.setattr(start, "_finish_restore", finish_and_look)
    with started(backup, ledger) as (opened, service):
        check(opened, service, backup)
        assert any("12 erased, 1 rectified, 1 expired" in note for note in opened.notes)
        version = service.model.state.version
    for again in (ledger, False):
        with started(backup, again) as (opened, service):
            check(opened, service, backup)
            assert (service.model.state.version, opened.notes) == (version, []), "it was done once"
    assert waiting[0] == 0


def test_nothing_of_what_is_dropped_stays_in_working_space() -> None:
    model, own = forest(), np.float32(7654.321) * np.arange(1, 41, dtype=np.float32)
    names = [f"gone{i}" for i in range(40)]
    model.add([[float(one), "a", True] for one in own], ["yes", "no"] * 20, ids=names)
    model.resolve()
    assert drop_gone(model, dict.fromkeys(names, "deletion"), 0)["deletion"] == 40
    held = array_bytes(model)
    assert not [one for one in own if one.tobytes() in held]
