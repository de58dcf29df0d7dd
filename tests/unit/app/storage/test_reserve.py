import errno
import os
from pathlib import Path
from typing import Any

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


def refuse(patch: pytest.MonkeyPatch, owner: Any, name: str, code: int) -> None:
    """Have a call fail."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    patch.setattr(owner, name, refused)


@pytest.mark.parametrize(
    ("owner", "name", "code"),
    [
        (module.os, "write", errno.ENOSPC),
        (module.os, "write", errno.EDQUOT),
        (module, "_allocate", errno.ENOSPC),  # there is no room for a name
    ],
)
def test_a_disk_that_fills_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, code: int
) -> None:
    refuse(monkeypatch, owner, name, code)
    assert not Reserve(tmp_path, SIZE).ensure()
    assert lacks_room(tmp_path, 10)
    assert names(tmp_path) == set()


def test_a_disk_that_fails_is_not_a_full_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        refuse(patch, Path, "unlink", errno.EROFS)
        assert not lacks_room(tmp_path, 10)
    (tmp_path / "own").mkdir()
    reserve = Reserve(tmp_path / "own", SIZE)
    assert reserve.ensure()
    refuse(monkeypatch, module.os, "fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        reserve.give_up()
    (tmp_path / "other").mkdir()
    with pytest.raises(OSError, match="Input/output"):
        Reserve(tmp_path / "other", SIZE).ensure()
    assert not lacks_room(tmp_path / "other", 10)
    assert names(tmp_path / "other") == set()
