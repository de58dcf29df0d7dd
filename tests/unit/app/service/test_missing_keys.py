"""A ledger that names keys which are not there: refused, or gone on without when somebody says so."""

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from oubli.app.cli.main import cli
from oubli.app.errors import JournalFullError, StartError, StopReason
from oubli.app.ledger.downloads import check_ledger
from oubli.app.service.build import OpenDirectory, compose, open_directory
from oubli.app.service.recovery.start import LedgerChoice
from oubli.app.service.service import Service
from oubli.app.storage.journal import SqliteJournal
from tests.tiers import ordinary
from tests.unit.app.service.support import raising
from tests.unit.app.support import forest, reopened, samples, served, served_here

# Two keys of each sort: the ones in use, and those that were rotated away.
NAMES = ("signing new", "signing old", "hashing new", "hashing old")


@contextmanager
def started(
    folder: Path, key_dir: Path | None = None, *, accept: bool = False
) -> Iterator[tuple[OpenDirectory, Service]]:
    with closing(open_directory(folder, key_dir)) as opened:
        start = opened.recover(opened.snapshots.recover(), LedgerChoice(accept_missing_keys=accept))
        yield opened, compose(start, idle_resolve=False)


def refused(folder: Path, rule: str, key_dir: Path | None = None) -> str:
    """Why a start is refused."""
    with pytest.raises(StartError, match=rule) as caught, started(folder, key_dir):
        pass
    return str(caught.value)


async def erase(service: Service, *names: str, killed: bool) -> None:
    async with served_here(service) as client:
        for name in names:
            assert (await client.delete(f"/samples/{name}")).status_code == 200
        if killed:  # what is in the journal is not in the ledger's file, and nothing is written at the end
            service.model.state.halt(StopReason.DISK_FAILED)


def make(folder: Path, *, killed: bool) -> dict[str, Path]:
    """Make a directory whose ledger names four keys; return their files."""
    opened = open_directory(folder)
    asyncio.run(erase(compose(opened.begin(forest()), idle_resolve=False), "c0", "c1", killed=False))
    old = {path.name[:7]: path for path in (folder / "keys").iterdir()}
    with closing(open_directory(folder)) as opened:
        opened.keys.complete()
        for kind in ("signing", "hashing"):
            opened.keys.rotate(kind)
    asyncio.run(erase(reopened(folder), "c2", "c3", killed=killed))
    new = {path.name[:7]: path for path in (folder / "keys").iterdir() if path not in old.values()}
    return {name: (old if name.endswith("old") else new)[name[:7]] for name in NAMES}


Made = tuple[Path, dict[str, Path]]


@pytest.fixture(scope="module", params=[False, True], ids=["stopped", "killed"])
def _made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("made") / "data"
    return folder, make(folder, killed=request.param)


@pytest.fixture
def made(_made: Made, tmp_path: Path) -> Made:
    folder = tmp_path / "data"
    shutil.copytree(_made[0], folder)
    return folder, {name: folder / path.relative_to(_made[0]) for name, path in _made[1].items()}


def n_accepted(opened: OpenDirectory) -> int:
    """How many keys were gone on without."""
    return [entry["type"] for entry in opened.database.entries(0, 99)].count("accepted-missing-key")


def test_going_on_needs_no_more_room_than_the_reserve(made, monkeypatch):
    folder, files = made
    files["hashing old"].unlink()
    append = SqliteJournal.append

    def append_to_full(journal: SqliteJournal, records: Any, *, reserve: bool = False) -> None:
        if not reserve:
            raise JournalFullError("the disk is full but for the reserve")
        append(journal, records, reserve=True)

    monkeypatch.setattr(SqliteJournal, "append", append_to_full)
    with started(folder, accept=True) as (_, service):
        assert service.model.state.model.samples_.contains("c5")


@pytest.mark.parametrize("where", ["gone", "elsewhere"])
def test_a_directory_without_any_key_is_refused_and_left_alone(where, made, tmp_path):
    folder, files = made
    if where == "gone":
        shutil.rmtree(folder / "keys")
    key_dir = tmp_path / "other" if where == "elsewhere" else None
    told = refused(folder, "ledger names keys", key_dir)
    assert all(path.name in told for path in files.values())
    assert ((tmp_path / "other").exists(), (folder / "keys").exists()) == (False, where == "elsewhere")


@pytest.mark.parametrize("name", ordinary([*NAMES, "all"], NAMES[0], "all"))
def test_going_on_without_is_written_down_and_asked_for_once(name, made):
    folder, files = made
    lost = list(files) if name == "all" else [name]
    for one in lost:
        files[one].unlink()

    with started(folder, accept=True) as (opened, service):
        told = opened.database.entries(0, 10**6)
        entries = [entry for entry in told if entry["type"] == "accepted-missing-key"]
        assert {f"{entry['key']}-{entry['lost_key_id']}" for entry in entries} == {files[one].stem for one in lost}
        assert len(opened.notes) == 1
        with served(service) as client:
            assert client.post("/samples", json=samples(1, "new")).status_code == 201
            assert client.delete("/samples/c5").status_code == 200
    for accept in (False, True):
        with started(folder, accept=accept) as (opened, service):
            assert opened.notes == []
            assert service.model.state.model.samples_.contains("new0")
            check_ledger(opened.database.entries(0, 10**6))
            # Keys that were made in their place are missed like others.
            current = folder / "keys" / f"signing-{opened.keys.signing.id}.pem"
    current.unlink()
    refused(folder, current.name)


def test_killed_before_it_was_written_down_it_is_asked_for_again(made, monkeypatch):
    folder, files = made
    files["hashing new"].unlink()
    with monkeypatch.context() as patched:
        patched.setattr(SqliteJournal, "append", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt), started(folder, accept=True):
            pass
    refused(folder, files["hashing new"].name)
    with started(folder, accept=True):
        pass
    with started(folder) as (opened, _):
        assert n_accepted(opened) == 1


def test_a_ledger_that_lags_behind_the_journal_does_not_ask_for_it_again(made):
    """After a loss of power the ledger's file may be as it was before the start that went on without."""
    folder, files = made
    files["hashing new"].unlink()
    before = {path: path.read_bytes() for path in folder.glob("ledger.sqlite*")}
    with started(folder, accept=True):
        pass
    for path in folder.glob("ledger.sqlite*"):
        path.unlink()
    for path, content in before.items():
        path.write_bytes(content)
    with started(folder) as (opened, _):
        assert n_accepted(opened) == 1


@pytest.mark.parametrize("command", [["rotate-keys", "signing"], ["rotate-keys", "hashing"], ["destroy-key", "0" * 16]])
def test_commands_on_keys_make_none_in_their_place(command, made):
    folder, _ = made
    shutil.rmtree(folder / "keys")
    error = CliRunner().invoke(cli, ["ledger", *command, "--data-dir", str(folder)]).exception
    assert (type(error), "--accept-missing keys" in str(error)) == (StartError, True)
    assert not (folder / "keys").exists()


def test_a_first_start_that_was_cut_short_has_named_its_keys(tmp_path, monkeypatch):
    with closing(open_directory(tmp_path / "data")) as opened, monkeypatch.context() as patched:
        patched.setattr(opened.storage, "write", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            opened.begin(forest())
    # Of the key of positions nothing depends that is kept.
    keys = sorted(path for path in (tmp_path / "data" / "keys").iterdir() if "positions-" not in path.name)
    for path in keys:
        content = path.read_bytes()
        path.unlink()
        with closing(open_directory(tmp_path / "data")) as opened, pytest.raises(StartError, match=path.name):
            opened.begin(forest())
        path.write_bytes(content)
        path.chmod(0o600)
    shutil.rmtree(tmp_path / "data" / "keys")
    with closing(open_directory(tmp_path / "data")) as opened:
        start = opened.begin(forest(), opened.prepare(LedgerChoice(accept_missing_keys=True)))
        assert start.state.seq == opened.storage.journal.last_seq
    with started(tmp_path / "data") as (opened, _):
        assert n_accepted(opened) == 2
