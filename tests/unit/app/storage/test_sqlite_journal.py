import shutil
import sqlite3
import stat
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from oubli.app.errors import JournalDamagedError, StartError
from oubli.app.storage import journal as journal_module
from oubli.app.storage.journal import MARK_NAME, RESERVE_NAME, Mark, SqliteJournal
from tests.unit.app.storage.support import RESERVE_BYTES, batch, closed, contents, journal_in, killed, names

FIRST = "journal-000000000001.sqlite"


def test_a_second_rotation_to_the_same_number_wipes_what_was_rolled_back(tmp_path: Path) -> None:
    journal = journal_in(tmp_path)
    connection = journal._segment._connection
    connection.execute("PRAGMA cache_size=4")  # so that rows go to the log before they are committed
    connection.execute("BEGIN IMMEDIATE")
    rows = [(seq, 1, 1, b"CANARY" * 900, b"", b"") for seq in range(1, 60)]
    connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute("ROLLBACK")
    log = tmp_path / f"{FIRST}-wal"
    assert b"CANARY" in log.read_bytes()
    journal.rotate(1)
    assert all(b"CANARY" not in path.read_bytes() for path in tmp_path.iterdir())
    journal.append(batch(1, 2))
    assert closed(journal, tmp_path) == batch(1, 2)


def test_the_log_is_taken_in_before_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_LOG_BYTES", 10 * 8192)
    journal = journal_in(tmp_path / "data")
    for seq in range(1, 301):
        journal.append(batch(seq, seq))
    assert (tmp_path / "data" / f"{FIRST}-wal").stat().st_size < 300_000
    copy = killed(tmp_path / "data", tmp_path / "copy")
    assert closed(journal, copy) == batch(1, 300)


def test_a_rotated_segment_leaves_no_log_and_what_a_kill_left_is_removed(tmp_path: Path) -> None:
    journal, second = journal_in(tmp_path, 2), "journal-000000000003.sqlite"
    journal.rotate(3)
    assert names(tmp_path) == {FIRST, second, f"{second}-wal", MARK_NAME, RESERVE_NAME}
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    journal.close()
    left = (".journal-000000000009.sqlite.tmp", ".journal-000000000009.sqlite.tmp-wal", ".journal-reserve.tmp")
    other = "other-000000000002.sqlite-wal"
    for name in (*left, "journal-000000000002.sqlite-wal", "journal-000000000002.sqlite-shm", other):
        (tmp_path / name).write_bytes(b"left")
    assert contents(tmp_path) == batch(1, 2)
    assert names(tmp_path) == {FIRST, second, MARK_NAME, RESERVE_NAME, other}


def test_what_is_removed_is_gone_after_a_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may hold records: it must not come back when their keys are thought to be all that is left of them."""
    (tmp_path / ".journal-7.tmp").write_bytes(b"records")
    (tmp_path / "journal-7.sqlite-wal").write_bytes(b"records")
    left_at_flush: list[set[str]] = []
    monkeypatch.setattr(journal_module, "flush_directory", lambda path: left_at_flush.append(names(path)))
    journal_module.remove_leftovers(tmp_path)
    journal_module.remove_leftovers(tmp_path)
    assert left_at_flush == [set()]


@pytest.mark.parametrize("which", [0, 1])
def test_a_newer_format_is_refused(tmp_path: Path, which: int) -> None:
    journal = journal_in(tmp_path, 2)
    journal.rotate(3)
    journal.append(batch(3, 3))
    journal.close()
    path = sorted(tmp_path.glob("*.sqlite"))[which]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version=2")
    with pytest.raises(StartError, match=rf"{path.name} .* journal of format 2 .*newer version of Oubli .*start that"):
        contents(tmp_path)


def test_what_cannot_be_opened_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StartError, match=r"cannot be opened \(No such file.*--data-dir"):
        SqliteJournal(tmp_path / "none")
    (tmp_path / "other").mkdir()
    with closing(sqlite3.connect(tmp_path / "other" / FIRST)) as connection:
        connection.execute("CREATE TABLE records (a)")
    with pytest.raises(JournalDamagedError, match="is not a journal of Oubli: restore"):
        journal_in(tmp_path / "other")
    journal_in(tmp_path / "own")
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0))
    with pytest.raises(StartError, match="in use: close the program"):
        journal_in(tmp_path / "own")


def test_reads_what_the_first_version_wrote(tmp_path: Path) -> None:
    """The checksum and the table are a format: files of today must be readable tomorrow."""
    with closing(SqliteJournal(tmp_path, RESERVE_BYTES, lambda: 1700000000.25)) as journal:
        journal.append(batch(1, 2))
    with closing(sqlite3.connect(tmp_path / FIRST)) as connection:
        values = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
        rows = connection.execute("SELECT seq, version, at, body, notes, hex(checksum) FROM records").fetchall()
    assert values == [(0x4F75626C,), (1,)]
    assert rows == [
        (1, 1, 1700000000250, b'{"body":1}' * 3, b'{"notes":1}', "2025C1936EC65059590CA74778F131C2"),
        (2, 2, 1700000000250, b'{"body":2}' * 3, b'{"notes":2}', "FC9F965738F3559200BB203ED4191191"),
    ]


def mark_in(directory: Path) -> int:
    mark = Mark(directory / MARK_NAME)
    mark.close()
    mark.close()
    return mark.seq


def test_a_mark_is_read_back_and_what_makes_no_sense_is_none(tmp_path: Path) -> None:
    assert mark_in(tmp_path) == 0
    mark = Mark(tmp_path / MARK_NAME)
    for seq in (1, 2**40, 123):
        mark.write(seq)
        assert mark_in(tmp_path) == seq
    mark.close()
    whole = (tmp_path / MARK_NAME).read_bytes()
    for position in range(len(whole)):
        flipped = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
        for content in (whole[:position], flipped):
            (tmp_path / MARK_NAME).write_bytes(content)
            assert mark_in(tmp_path) == 0
    mark.forget()
    assert not (tmp_path / MARK_NAME).exists()


def test_segments_that_are_gone_are_missed(tmp_path: Path) -> None:
    journal = journal_in(tmp_path / "data", 3)
    for first in (4, 7):
        journal.rotate(first)
        journal.append(batch(first, first + 2))
    journal.close()
    segments = sorted(path.name for path in (tmp_path / "data").glob("*.sqlite"))
    for gone in (segments[:1], segments[1:2], segments[2:], segments):
        copy = killed(tmp_path / "data", tmp_path / "copy")
        for name in gone:
            (copy / name).unlink()
        with pytest.raises(JournalDamagedError, match="backup"), closing(journal_in(copy)) as journal:
            list(journal.records(0))
        shutil.rmtree(copy)
