from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("psycopg")

from oubli.app.storage.postgres.journal import MARK_NAME, PositionMark


def test_a_mark_that_makes_no_sense_says_nothing(tmp_path: Path) -> None:
    mark = PositionMark(tmp_path)
    assert (mark.seq, list(tmp_path.iterdir())) == (0, [])
    mark.write(7, b"x" * 16)
    assert PositionMark(tmp_path).seq == 7
    (tmp_path / MARK_NAME).write_bytes((tmp_path / MARK_NAME).read_bytes()[:-3])
    assert PositionMark(tmp_path).seq == 0
    mark.forget()
    assert list(tmp_path.iterdir()) == []
