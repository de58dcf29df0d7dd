"""What the service does about a disk that refuses: undone and tried again; and about a flush that failed: no more."""

import errno
import shutil
import sqlite3
from pathlib import Path

import pytest

from oubli.app import errors
from oubli.app.errors import JournalError, JournalFullError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.file import file_errors
from oubli.app.storage import journal
from oubli.app.storage.directory import DataDirectory, FlushError
from oubli.app.storage.journal import SqliteJournal
from oubli.app.storage.snapshots import SnapshotStore
from tests.unit.app.service.support import raising
from tests.unit.app.support import ended, make_service, problem_of, reopened, samples, served


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        *((JournalFullError("no room on the disk"), "storage"), (JournalError("failed"), "changes-stopped")),
        (errors.JournalRefusedError("a file could not be written"), "journal"),
        (errors.NoDescriptorsError("no file could be opened"), "journal"),
    ],
)
def test_journal_errors_outside_of_a_commit_are_problems(tmp_path, monkeypatch, error, slug):
    """A snapshot that cannot begin a new segment, an export that cannot be noted, a restore."""
    with served(make_service(directory=tmp_path / "data")) as client:
        older = client.get("/snapshot/file?fresh=true").content
        assert client.post("/samples", json=samples(1)).status_code == 201
        for name in ("rotate", "append"):
            with monkeypatch.context() as patch:
                patch.setattr(SqliteJournal, name, raising(error))
                asked = [client.put("/snapshot/file", content=older)]
                if slug != "changes-stopped":  # after that one nothing is tried any more
                    asked.append(client.post("/snapshot") if name == "rotate" else client.get("/snapshot/file"))
                for answer in asked:
                    assert (*problem_of(answer), answer.headers["Retry-After"]) == (503, slug, "1")
                    assert client.get("/samples/n0").status_code == 200
            if slug == "changes-stopped":
                return
        assert ended(client, client.post("/model/scrub").json())["status"] == "succeeded"


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (SnapshotStore, "write_again", errors.StorageError("full")),
        *((SqliteJournal, name, JournalFullError("no room on the disk")) for name in ("rotate", "append")),
    ],
)
def test_a_restore_that_is_refused_is_not_found_by_a_restart(tmp_path, monkeypatch, owner, name, error):
    """What it has written before the refusal is taken back: it would hide what is acknowledged afterwards."""
    directory = tmp_path / "data"
    with served(make_service(directory=directory)) as client:
        older = client.get("/snapshot/file?fresh=true").content
        assert client.delete("/samples/c1").status_code == 200
        before = client.get("/snapshot").json()
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, raising(error))
            assert problem_of(client.put("/snapshot/file", content=older)) == (503, "storage")
        assert client.get("/snapshot").json() == before
        assert client.post("/samples", json=samples(1)).status_code == 201
        version = client.get("/model").json()["model_version"]
        shutil.copytree(directory, tmp_path / "copy")  # as a kill would leave it
    live = reopened(tmp_path / "copy").model.state
    assert [*map(live.model.samples_.contains, ("n0", "c1")), live.version] == [True, False, version]


@pytest.mark.parametrize("where", ["rotate", "append"])
def test_a_restore_in_doubt_is_finished_by_a_restart(tmp_path, monkeypatch, where):
    """Its snapshot stands: the journal and the ledger continue from there."""
    with served(make_service(directory=tmp_path / "data")) as client:
        older = client.get("/snapshot/file?fresh=true").content
        assert client.delete("/samples/c1").status_code == 200
        version = client.get("/model").json()["model_version"]
        with monkeypatch.context() as patch:
            patch.setattr(SqliteJournal, where, raising(JournalError("EIO")))
            assert client.put("/snapshot/file", content=older).status_code == 503
    with served(reopened(tmp_path / "data")) as client:
        assert client.get("/model").json()["model_version"] == version + 1
        assert client.get("/samples/c1").status_code == 404
        entries = client.get("/ledger").json()["entries"]
        assert [one["model_version"] for one in entries if one["type"] == "restore"] == [version + 1]
        assert client.post("/samples", json=samples(1)).status_code == 201


FSYNC_FAILED = sqlite3.OperationalError("disk I/O error")
FSYNC_FAILED.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC


@pytest.mark.parametrize(
    ("owner", "name", "fails"),
    [
        (DataDirectory, "remove", raising(FlushError(errno.EIO, ""))),
        (LedgerDatabase, "flush", file_errors()(raising(FSYNC_FAILED))),
        (journal, "remove", raising(FlushError(errno.EIO, ""))),
    ],
)
def test_a_failed_flush_stops_changes(tmp_path, monkeypatch, owner, name, fails):
    with served(make_service(directory=tmp_path / "data")) as client:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fails)
            assert problem_of(client.post("/snapshot")) == (503, "changes-stopped")
        assert client.get("/readyz").json()["reason"] == "disk-failed"
        assert problem_of(client.post("/samples", json=samples(1))) == (503, "changes-stopped")
        assert client.post("/predict", json={"instances": [[1, "a", True]]}).status_code == 200


def test_a_file_that_could_not_be_removed_goes_with_the_next_snapshot(tmp_path, monkeypatch):
    """A half-written snapshot holds what may be erased before the next start."""
    directory = tmp_path / "data"
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith(".tmp") and "journal" not in path.name:
            raise OSError(errno.EIO, "")
        unlink(path, missing_ok)

    with served(make_service(directory=directory)) as client:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", refused)
            patch.setattr(SnapshotStore, "_publish", lambda *arguments: refused(Path("x.tmp")))
            assert problem_of(client.post("/snapshot")) == (503, "storage")
        assert list(directory.glob(".*.tmp"))
        assert client.post("/snapshot").status_code == 201
        assert not list(directory.glob(".*.tmp"))


@pytest.mark.parametrize(("whose", "rule"), [("older", "erasures are missing"), ("another", "of different histories")])
def test_a_ledger_that_does_not_belong_to_the_snapshot_is_refused(tmp_path, whose, rule):
    data = tmp_path / "data"
    with served(make_service(directory=data)) as client:
        assert client.delete("/samples/c1").status_code == 200
    for name in ("older", "another"):
        shutil.copytree(data, tmp_path / name)
    for folder, names in ((data, range(2, 6)), (tmp_path / "another", range(12, 17))):
        with served(reopened(folder)) as client:
            for i in names:
                assert [client.delete(f"/samples/c{i}").status_code, client.post("/snapshot").status_code] == [200, 201]
    for path in data.glob("ledger.sqlite*"):
        path.unlink()
    for path in (tmp_path / whose).glob("ledger.sqlite*"):
        shutil.copy(path, data)
    with pytest.raises(errors.StartError, match=rule):
        reopened(data)
