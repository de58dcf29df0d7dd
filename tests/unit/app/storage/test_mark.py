import stat
from pathlib import Path

import pytest

from oubli.app.storage.journal import MARK_NAME, Mark


def found(directory: Path) -> int:
    mark = Mark(directory / MARK_NAME)
    mark.close()
    mark.close()
    return mark.seq


def test_is_read_back(tmp_path: Path) -> None:
    assert found(tmp_path) == 0
    mark = Mark(tmp_path / MARK_NAME)
    for seq in (1, 2**40, 7):
        mark.write(seq)
        assert found(tmp_path) == seq
    mark.close()
    assert stat.S_IMODE((tmp_path / MARK_NAME).stat().st_mode) == 0o600


def test_what_makes_no_sense_is_no_mark(tmp_path: Path) -> None:
    mark = Mark(tmp_path / MARK_NAME)
    mark.write(123)
    mark.close()
    whole = (tmp_path / MARK_NAME).read_bytes()
    for position in range(len(whole)):
        (tmp_path / MARK_NAME).write_bytes(whole[:position])
        assert found(tmp_path) == 0
        flipped = bytearray(whole)
        flipped[position] ^= 1
        (tmp_path / MARK_NAME).write_bytes(flipped)
        assert found(tmp_path) == 0


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Mark(tmp_path / "none" / MARK_NAME).open()
