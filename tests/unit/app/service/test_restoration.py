"""A data directory from a backup with the newer ledger: what the ledger says is gone is gone before anything is served.

Starts are killed at each of their steps: the directory is copied as it is at that instant, and started again.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oubli
from oubli.app.errors import StartError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.downloads import check_ledger
from oubli.app.service.build import OpenDirectory, compose, open_directory
from oubli.app.service.changes.deletions import DeleteSamples
from oubli.app.service.recovery import start
from oubli.app.service.recovery.start import LedgerChoice, drop_gone
from oubli.app.service.service import Service
from oubli.app.storage.journal import SqliteJournal
from oubli.app.storage.snapshots import SnapshotStore
from oubli.core import OnlineBoostingClassifier
from tests.reach import array_bytes
from tests.unit.app.support import CLASSES, JSON, forest, rows, samples, served_here

GONE = {"c1", "c6", "c11", "c16", "c21", "c26", "c31", "c36", "c41", "c46", "c51", "c56", "c7", "c8"}
COUNTS = {"dropped_erased": 12, "dropped_rectified": 1, "dropped_expired": 1}
STEPS = (
    (os, "fsync"),
    (os, "replace"),
    (os, "unlink"),
    (SqliteJournal, "append"),
    (SqliteJournal, "rotate"),
    (SqliteJournal, "drop_before"),
    (LedgerDatabase, "adopt"),
    (LedgerDatabase, "fold_many"),
    (LedgerDatabase, "flush"),
    (SnapshotStore, "write"),
    (SnapshotStore, "write_again"),
    (SnapshotStore, "keep_newest"),
)


class KilledError(BaseException):
    """The process ends here."""


@dataclass
class Backup:
    """A directory as it was, and the ledger as it is now."""

    folder: Path
    version: int

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.jsonl"

    def copy(self, target: Path) -> Backup:
        shutil.copytree(self.folder, target)
        return Backup(target, self.version)

    def with_newer_file(self) -> None:
        """Have the newer ledger in the directory itself, as where each file is backed up at another time."""
        for path in self.data.glob("ledger.sqlite*"):
            path.unlink()
        for path in self.folder.glob("ledger.sqlite*"):
            shutil.copy(path, self.data)


def boosting() -> Any:
    model = OnlineBoostingClassifier(n_estimators=3, random_state=0)
    labels = ["yes" if i % 4 else "no" for i in range(60)]
    model.fit(rows(60), labels, ids=[f"c{i}" for i in range(60)], schema=CLASSES)
    for i in range(60):
        model.samples_.set_subject(f"c{i}", f"s{i % 5}")
    return model


def service_of(opened: OpenDirectory, model: Any = None, choice: LedgerChoice | None = None) -> Service:
    if opened.holds_model:
        assert opened.snapshots is not None
        start = opened.recover(opened.snapshots.recover(), choice)
    else:
        start = opened.begin(model)
    return compose(start, idle_resolve=False)


def make_backup(folder: Path, model: Any) -> Backup:
    """Take a backup of a directory, then erase, rectify and let expire, and download the ledger."""

    async def before() -> None:
        async with served_here(service_of(open_directory(folder / "now"), model)) as client:
            assert (await client.delete("/samples/c9")).status_code == 200
            assert (await client.post("/samples", json=samples(1, "kept"), headers=JSON)).status_code == 201

    async def after() -> int:
        service = service_of(open_directory(folder / "now"))
        async with served_here(service) as client:
            assert (await client.get("/snapshot/file")).status_code == 200
            assert (await client.delete("/samples?subject=s1")).json()["unlearned"] == 12
            content = {"features": rows(9)[3], "label": "yes"}
            assert (await client.put("/samples/c7", json=content, headers=JSON)).status_code == 200
            await service.changes.writer.execute(DeleteSamples(["c8"], kind="expiry"))
            nameless = {"samples": [{"features": row, "label": "no"} for row in rows(2)]}
            ids = (await client.post("/samples", json=nameless, headers=JSON)).json()["ids"]
            assert (await client.delete(f"/samples/{ids[1]}")).json()["unlearned"] == 1
            await client.post("/samples", json=samples(1, "lost"), headers=JSON)
            job = (await client.post("/model/scrub", json={}, headers=JSON)).json()
            while job["status"] != "succeeded":
                await asyncio.sleep(0.01)
                job = (await client.get(f"/jobs/{job['id']}")).json()
            assert (await client.delete("/samples/lost0")).status_code == 200
            await service.disk.database.flush()
            (folder / "ledger.jsonl").write_bytes((await client.get("/ledger?limit=50")).content + b"\n")
            return service.model.state.version

    asyncio.run(before())
    shutil.copytree(folder / "now", folder / "data")
    version = asyncio.run(after())
    for path in (folder / "now").glob("ledger.sqlite*"):
        shutil.copy(path, folder)
    shutil.rmtree(folder / "now")
    return Backup(folder, version)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(forest, id="forest"),
        pytest.param(boosting, id="online-boosting", marks=pytest.mark.long),
    ],
)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backup:
    return make_backup(tmp_path_factory.mktemp("backup"), request.param())


@pytest.fixture
def backup(made: Backup, tmp_path: Path) -> Backup:
    return made.copy(tmp_path / "backup")


@contextmanager
def started(backup: Backup, ledger: bool) -> Iterator[tuple[OpenDirectory, Service]]:
    opened = open_directory(backup.data)
    try:
        choice = LedgerChoice(backup.ledger if ledger else None)
        yield opened, service_of(opened, choice=choice)
    finally:
        opened.close()


def check(opened: OpenDirectory, service: Service, backup: Backup) -> None:
    """Check that what is gone is gone: from the model, from the files, and from what a restore could bring back."""
    model = service.model.state.model
    expected = {f"c{i}" for i in range(60) if i != 9} - GONE | {"kept0"}
    assert set(model.samples_.ids()) == expected
    assert model.verify().ok
    assert service.model.state.version > backup.version
    entries = opened.database.entries(0, 10**6)
    check_ledger(entries)
    (entry,) = [one for one in entries if one["type"] == "restore"]
    assert {name: entry[name] for name in COUNTS} == COUNTS
    assert (entry["at_start"], entry["model_version"]) == (True, service.model.state.version)
    files = sorted(backup.data.glob("snapshot-*"))
    assert len(files) == 2
    for path in files:
        assert set(oubli.load(path).samples_.ids()) == expected
    for path in backup.data.glob("journal-0*"):
        content = path.read_bytes()
        assert not any(f'"{name}"'.encode() in content for name in GONE)
    assert opened.storage.journal.last_seq == service.model.state.seq >= opened.database.applied_seq()
    assert service.model.state.exports == 1
    assert not list(backup.data.glob(".*.tmp"))


@pytest.mark.parametrize("ledger", [True, False], ids=["--ledger", "in the directory"])
def test_what_the_newer_ledger_says_is_gone_is_dropped(ledger, backup):
    if not ledger:
        backup.with_newer_file()
    with started(backup, ledger) as (opened, service):
        check(opened, service, backup)
        assert any("12 erased, 1 rectified, 1 expired" in note for note in opened.notes)
        version = service.model.state.version
    for again in (ledger, False):
        with started(backup, again) as (opened, service):
            check(opened, service, backup)
            assert service.model.state.version == version, "it was done once"
            assert opened.notes == []


@pytest.mark.parametrize("ledger", [True, False], ids=["--ledger", "in the directory"])
def test_what_comes_after_is_kept_and_nothing_old_comes_back(ledger, backup):
    """Changes, receipts, ids that are generated, and a restore of the file that was handed out before the loss."""
    if not ledger:
        backup.with_newer_file()
    (snapshot, _) = sorted(backup.data.glob("snapshot-*"), reverse=True)
    old = snapshot.read_bytes()

    async def first() -> str:
        opened = open_directory(backup.data)
        service = service_of(opened, choice=LedgerChoice(backup.ledger if ledger else None))
        async with served_here(service) as client:
            assert (await client.post("/samples", json=samples(9, "c"), headers=JSON)).status_code == 409
            nameless = {"samples": [{"features": rows(1)[0], "label": "no"}]}
            given = await client.post("/samples", json=nameless, headers=JSON)
            assert given.status_code == 201
            receipt = (await client.delete("/samples/c0")).json()
            assert receipt["exported_snapshots"] == 1
            return str(receipt["id"])

    async def second(receipt: str) -> None:
        opened = open_directory(backup.data)
        service = service_of(opened)
        async with served_here(service) as client:
            assert (await client.get(f"/erasures/{receipt}")).status_code == 200
            answer = (await client.put("/snapshot/file", content=old)).json()
            held = set(service.model.state.model.samples_.ids())
            assert not held & (GONE | {"c0", "c9"})
            assert answer["dropped"]["erased"] >= 13
            check_ledger(opened.database.entries(0, 10**6))

    asyncio.run(second(asyncio.run(first())))


def steps_of(backup: Backup, ledger: bool, monkeypatch: pytest.MonkeyPatch, kill: int | None = None) -> int:
    """Start, counting steps in the data directory; at one of them copy the directory and end. Return the steps."""
    n_steps = 0

    def counted(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        nonlocal n_steps
        n_steps += 1
        if n_steps == kill:
            shutil.copytree(backup.data, backup.folder / "killed")
            raise KilledError
        return function(*arguments, **options)

    with monkeypatch.context() as patched:
        for owner, name in STEPS:
            function = getattr(owner, name)
            wrapper = functools.wraps(function)(functools.partial(counted, function))
            patched.setattr(owner, name, wrapper if owner is os else _method(wrapper))
        try:
            with started(backup, ledger):
                pass
        except KilledError:
            patched.undo()
            shutil.rmtree(backup.data)
            (backup.folder / "killed").rename(backup.data)
    return n_steps


def _method(function: Callable[..., Any]) -> Any:
    return lambda *arguments, **options: function(*arguments, **options)


def kill_at_each(made: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ledger: bool, every: int) -> None:
    def copy(name: str) -> Backup:
        made_copy = made.copy(tmp_path / name)
        if not ledger:
            made_copy.with_newer_file()
        return made_copy

    n_steps = steps_of(copy("dry"), ledger, monkeypatch)
    assert n_steps > 25
    for kill in range(1 + n_steps % every, n_steps + 1, every):
        backup = copy(f"kill{kill}")
        assert steps_of(backup, ledger, monkeypatch, kill) >= kill
        # Killed once more, a little later, and then not any more.
        steps_of(backup, ledger, monkeypatch, 5 + kill % 7)
        with started(backup, ledger) as (opened, service):
            check(opened, service, backup)
        with started(backup, ledger=False) as (opened, service):
            check(opened, service, backup)
        shutil.rmtree(backup.folder)


@pytest.mark.parametrize("ledger", [True, False], ids=["--ledger", "in the directory"])
def test_killed_at_some_steps_it_ends_the_same(ledger, made, tmp_path, monkeypatch):
    kill_at_each(made, tmp_path, monkeypatch, ledger, every=6)


@pytest.mark.long
@pytest.mark.parametrize("ledger", [True, False], ids=["--ledger", "in the directory"])
def test_killed_at_every_step_it_ends_the_same(ledger, made, tmp_path, monkeypatch):
    kill_at_each(made, tmp_path, monkeypatch, ledger, every=1)


def test_once_the_newer_ledger_is_taken_in_it_is_not_needed_again(made, tmp_path, monkeypatch):
    for kill in range(1, 60, 4):
        backup = made.copy(tmp_path / f"kill{kill}")
        steps_of(backup, True, monkeypatch, kill)
        with started(backup, ledger=False) as (opened, service):
            if opened.database.last_model_version() >= backup.version:
                check(opened, service, backup)
            else:
                assert service.model.state.model.samples_.contains("c1"), "the ledger is as old as the samples"
        shutil.rmtree(backup.folder)


def test_the_newer_ledger_is_on_the_disk_before_anything_else_changes(backup, monkeypatch):
    """Else a loss of power could leave files without the erased samples and a ledger that does not tell of them."""
    finish, waiting = start._finish_restore, []

    def finish_and_look(*args: Any) -> None:
        waiting.append((backup.data / "ledger.sqlite-wal").stat().st_size)
        finish(*args)

    monkeypatch.setattr(start, "_finish_restore", finish_and_look)
    with started(backup, ledger=True) as (opened, service):
        check(opened, service, backup)
    assert waiting == [0]


def test_the_same_ledger_changes_nothing(backup):
    with started(backup, ledger=True) as (_, service):
        version = service.model.state.version
    with started(backup, ledger=True) as (opened, service):
        assert (service.model.state.version, opened.notes) == (version, [])


@pytest.mark.parametrize("accept", [False, True])
def test_without_the_key_of_the_newer_erasures_nothing_is_served(accept, tmp_path):
    """The key was rotated after the backup: no one can tell whom the newer erasures are about."""
    folder = tmp_path / "rotated"
    folder.mkdir()

    async def life(times: int) -> None:
        opened = open_directory(folder / "now")
        async with served_here(service_of(opened, forest())) as client:
            for i in range(times):
                assert (await client.delete(f"/samples/c{i}")).status_code == 200
            (folder / "ledger.jsonl").write_bytes((await client.get("/ledger?limit=50")).content + b"\n")

    asyncio.run(life(0))
    shutil.copytree(folder / "now", folder / "data")
    opened = open_directory(folder / "now")
    opened.keys.complete()
    new = opened.keys.rotate("hashing")
    opened.close()
    asyncio.run(life(3))
    opened = open_directory(folder / "data")
    with pytest.raises(StartError) as caught:
        service_of(opened, choice=LedgerChoice(folder / "ledger.jsonl", accept_missing_keys=accept))
    opened.close()
    assert (f"hashing-{new}.key" in str(caught.value)) != accept
    assert "key" in str(caught.value)
    shutil.copy(folder / "now" / "keys" / f"hashing-{new}.key", folder / "data" / "keys")
    opened = open_directory(folder / "data")
    service = service_of(opened, choice=LedgerChoice(folder / "ledger.jsonl"))
    assert not {"c0", "c1", "c2"} & set(service.model.state.model.samples_.ids())
    opened.close()


def test_nothing_of_what_is_dropped_stays_in_working_space() -> None:
    model, own = forest(), np.float32(7654.321) * np.arange(1, 41, dtype=np.float32)
    names = [f"gone{i}" for i in range(40)]
    model.add([[float(one), "a", True] for one in own], ["yes", "no"] * 20, ids=names)
    model.resolve()
    assert drop_gone(model, dict.fromkeys(names, "deletion"), 0)["deletion"] == 40
    held = array_bytes(model)
    assert not [one for one in own if one.tobytes() in held]
