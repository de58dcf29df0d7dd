import errno
import os
from pathlib import Path

import pytest

from oubli.app.storage import reserve as module
from oubli.app.storage.reserve import RESERVE_NAME, Reserve, lacks_room
from tests.unit.app.storage.support import names

SIZE = 200_000


def test_occupies_its_room_until_it_is_given_up(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path, SIZE)
    assert not reserve.give_up()
    assert reserve.ensure()
    assert reserve.ensure()
    status = (tmp_path / RESERVE_NAME).stat()
    assert status.st_size == SIZE
    assert status.st_blocks * 512 >= SIZE
    assert names(tmp_path) == {RESERVE_NAME}
    assert Reserve(tmp_path, SIZE).give_up()
    assert names(tmp_path) == set()


def test_a_file_that_occupies_less_is_made_anew(tmp_path: Path) -> None:
    with (tmp_path / RESERVE_NAME).open("wb") as sparse:
        os.truncate(sparse.fileno(), SIZE)
    reserve = Reserve(tmp_path, SIZE)
    assert not reserve.give_up()
    assert reserve.ensure()
    assert (tmp_path / RESERVE_NAME).stat().st_blocks * 512 >= SIZE


def test_takes_nothing_where_it_does_not_fit(tmp_path: Path) -> None:
    assert not Reserve(tmp_path, 2**60).ensure()
    assert names(tmp_path) == set()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def full(descriptor: int, piece: bytes) -> int:
        raise OSError(code, "")

    monkeypatch.setattr(module.os, "write", full)
    assert not Reserve(tmp_path, SIZE).ensure()
    assert lacks_room(tmp_path, 10)
    assert names(tmp_path) == set()


def test_a_directory_without_room_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, n_bytes: int) -> None:
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(module, "_allocate", refused)
    assert not Reserve(tmp_path, SIZE).ensure()
    assert names(tmp_path) == set()


def test_a_disk_that_answers_and_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "")

    monkeypatch.setattr(Path, "unlink", refused)
    assert not lacks_room(tmp_path, 10)


def test_a_disk_that_fails_is_not_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    assert not lacks_room(tmp_path, 10)
    monkeypatch.setattr(module.os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        Reserve(tmp_path, SIZE).ensure()
    assert not lacks_room(tmp_path, 10)
    assert names(tmp_path) == set()


def test_other_errors_are_passed_on_when_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    reserve = Reserve(tmp_path, SIZE)
    reserve.ensure()
    monkeypatch.setattr(module.os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        reserve.give_up()
