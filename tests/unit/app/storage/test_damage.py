"""Files that were changed behind the journal's back: either nothing is lost, or somebody is told."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from oubli.app.errors import JournalDamagedError, StartError
from oubli.app.storage.journal import MARK_NAME, Record
from tests.unit.app.storage.support import batch, contents, journal_in, killed

N_RECORDS = 24
ROTATED = 10


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed server leaves: a closed segment, an open one, and a log that holds some of its records."""
    data = tmp_path_factory.mktemp("sound") / "data"
    journal = journal_in(data, ROTATED - 1)
    journal.rotate(ROTATED)
    journal.append(batch(ROTATED, ROTATED + 4))
    journal._segment.fold_log(truncate=True)
    for seq in range(ROTATED + 5, N_RECORDS + 1):
        journal.append(batch(seq, seq))
    copy = killed(data, data.parent / "copy")
    journal.close()
    return copy


def is_read(directory: Path) -> bool:
    """Read a damaged journal; whether it was read whole. What comes before a refusal is right."""
    found: list[Record] = []
    try:
        with closing(journal_in(directory)) as journal:
            found.extend(journal.records(0))
            last = journal.last_seq
    except StartError as error:
        if not re.search("journal.*: ", str(error)):  # which file it is, and what to do
            raise
        assert found == batch(1, len(found))
        return False
    assert (found, last) == (batch(1, N_RECORDS), N_RECORDS)
    return True


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :]


def truncated(content: bytes, position: int) -> bytes:
    return content[:position]


@pytest.mark.parametrize(
    ("damage", "stride", "n_least"),
    [
        (flipped, 1201, 12),
        (truncated, 3001, 12),
        pytest.param(flipped, 7, 1000, marks=pytest.mark.long),
        pytest.param(truncated, 13, 1000, marks=pytest.mark.long),
    ],
)
def test_damage_is_noticed_or_does_no_harm(
    sound: Path, tmp_path: Path, damage: Callable[[bytes, int], bytes], stride: int, n_least: int
) -> None:
    copy = killed(sound, tmp_path / "whole")
    assert is_read(copy)
    are_read: list[bool] = []
    for path in sorted(sound.glob("journal-*.sqlite*")):
        size = path.stat().st_size
        for position in sorted({*range(0, size, stride), *range(0, min(size, 100), max(1, stride // 40)), size - 1}):
            copy = killed(sound, tmp_path / "copy")
            (copy / path.name).write_bytes(damage(path.read_bytes(), position))
            are_read.append(is_read(copy))
            shutil.rmtree(copy)
    assert are_read.count(False) > n_least
    assert any(are_read) or damage is truncated, "there is room that nothing uses"


def test_a_lost_log_is_noticed(sound: Path, tmp_path: Path) -> None:
    copy = killed(sound, tmp_path / "copy")
    (copy / f"journal-{ROTATED:012d}.sqlite-wal").unlink()
    missing = rf"record {ROTATED + 5} of the journal was acknowledged and is missing: restore.*removing {MARK_NAME}"
    with pytest.raises(JournalDamagedError, match=missing):
        journal_in(copy)
    # The operator may say that it is lost.
    (copy / MARK_NAME).unlink()
    assert contents(copy) == batch(1, ROTATED + 4)


def test_a_damaged_record_is_named_with_its_file(sound: Path, tmp_path: Path) -> None:
    copy = killed(sound, tmp_path / "copy")
    path = copy / "journal-000000000001.sqlite"
    content = path.read_bytes()
    assert content.count(b'{"body":4}') == 3
    path.write_bytes(content.replace(b'{"body":4}', b'{"body":5}', 1))
    journal = journal_in(copy)
    with pytest.raises(JournalDamagedError, match=r"record 4 of the journal, in journal-0{11}1\.sqlite, is damaged"):
        list(journal.records(0))
    # No one who does not need it is troubled.
    assert list(journal.records(4)) == batch(5, N_RECORDS)


@pytest.mark.parametrize(
    "change",
    [
        *("version = version + 1", "at = at + 1", "notes = body, body = notes", "body = 'text'", "body = 7"),
        *("version = 1.5", "seq = 1200", "DELETE FROM records WHERE seq = 12"),
        "DELETE FROM records WHERE seq >= 8",  # the end of the older segment
    ],
)
def test_a_changed_row_is_noticed(sound: Path, tmp_path: Path, change: str) -> None:
    copy = killed(sound, tmp_path / "copy")
    seq, first = (8, 1) if ">= 8" in change else (12, ROTATED)
    is_whole = change.startswith("DELETE")
    with closing(sqlite3.connect(copy / f"journal-{first:012d}.sqlite")) as connection, connection:
        connection.execute(change if is_whole else f"UPDATE records SET {change} WHERE seq = 12")  # noqa: S608
    with pytest.raises(JournalDamagedError, match=f"record {seq} of the journal"):
        list(journal_in(copy).records(0))
