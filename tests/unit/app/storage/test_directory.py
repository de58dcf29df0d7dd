import errno
import os
from unittest.mock import Mock

import pytest

from oubli.app.errors import StartError, StorageError
from oubli.app.storage.directory import DataDirectory, make_directory, storage_errors
from tests.unit.app.storage.support import names


def test_a_second_server_and_a_path_that_cannot_be_used_are_refused_with_an_explanation(tmp_path):
    first = DataDirectory(tmp_path / "data")
    with pytest.raises(StartError, match=rf"in use by another Oubli server \(process {os.getpid()}\).*--data-dir"):
        DataDirectory(tmp_path / "data")
    first.close()
    first.close()
    DataDirectory(tmp_path / "data").close()
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"file cannot be used \(.*\): give --data-dir"):
        DataDirectory(tmp_path / "file")


@pytest.mark.parametrize("killed_at", range(4))
def test_a_directory_that_was_made_in_part_is_finished(killed_at, tmp_path, monkeypatch):
    """Every name is flushed by one of the two starts, wherever the first one ends."""
    target, flushed = tmp_path / "a" / "b" / "data", set()

    def flush(path):
        if len(flushed) == killed_at:
            raise KeyboardInterrupt
        flushed.add(path)

    monkeypatch.setattr("oubli.app.storage.directory.flush_directory", flush)
    with pytest.raises(KeyboardInterrupt):
        make_directory(target)
    monkeypatch.setattr("oubli.app.storage.directory.flush_directory", flushed.add)
    make_directory(target)
    assert flushed >= {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}


def test_a_parent_that_cannot_be_read_is_passed_over(tmp_path, monkeypatch):
    flush = Mock(side_effect=OSError(errno.EACCES, "Permission denied"))
    monkeypatch.setattr("oubli.app.storage.directory.flush_directory", flush)
    make_directory(tmp_path / "data")
    flush.side_effect = OSError(errno.EIO, "Input/output error")
    with pytest.raises(StartError, match="Input/output"):
        DataDirectory(tmp_path / "other")


def test_publishes_whole_files_and_removes_what_a_killed_server_left(tmp_path):
    (tmp_path / ".abc.tmp").write_text("")
    (tmp_path / ".upload.tmp").mkdir()
    (tmp_path / ".upload.tmp" / "upload").write_text("")
    (tmp_path / "other").write_text("")
    directory = DataDirectory(tmp_path)
    assert names(tmp_path) == {"lock", "other"}
    with directory.temporary() as path:
        path.write_text("new")
        assert directory.publish(path, "file").read_text() == "new"
    with directory.temporary() as path:
        path.write_text("unfinished")
    assert names(tmp_path) == {"file", "lock", "other"}
    directory.remove([tmp_path / "file", tmp_path / "file"])
    assert names(tmp_path) == {"lock", "other"}
    directory.close()


def test_a_failing_disk_is_a_storage_error():
    with pytest.raises(StorageError, match="input/output"), storage_errors():
        raise OSError
