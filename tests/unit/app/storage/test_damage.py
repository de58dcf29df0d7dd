"""Files that were changed behind the journal's back: either nothing is lost, or somebody is told."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from oubli.app.errors import JournalDamagedError, StartError
from oubli.app.storage.journal import MARK_NAME, Record
from tests.unit.app.storage.support import batch, journal_in, killed

N_RECORDS = 24
ROTATED = 10


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed server leaves: a closed segment, an open one, and a log that holds some of its records."""
    data = tmp_path_factory.mktemp("sound") / "data"
    journal = journal_in(data)
    journal.append(batch(1, ROTATED - 1))
    journal.rotate(ROTATED)
    journal.append(batch(ROTATED, ROTATED + 4))
    journal._segment.fold_log(truncate=True)
    for seq in range(ROTATED + 5, N_RECORDS + 1):
        journal.append(batch(seq, seq))
    copy = killed(data, data.parent / "copy")
    journal.close()
    return copy


def check(directory: Path) -> bool:
    """Read a damaged journal; whether it was read whole. What comes before the refusal is right."""
    found: list[Record] = []
    try:
        journal = journal_in(directory)
        try:
            found.extend(journal.records(0))
            last = journal.last_seq
        finally:
            journal.close()
    except StartError as error:
        assert found == batch(1, len(found))
        return is_helpful(str(error))
    assert found == batch(1, N_RECORDS)
    assert last == N_RECORDS
    return True


def is_helpful(text: str) -> bool:
    """False, once it is made sure that the operator learns which file it is and what to do."""
    assert "journal" in text
    assert ": " in text
    return False


def damaged_copies(sound: Path, tmp_path: Path, stride: int) -> Iterator[tuple[Path, Path, int]]:
    """Give a copy of each file and position, to be damaged there."""
    for name in sorted(path.name for path in sound.glob("journal-*.sqlite*")):
        size = (sound / name).stat().st_size
        for position in sorted({*range(0, size, stride), *range(0, min(size, 100), max(1, stride // 40)), size - 1}):
            copy = killed(sound, tmp_path / "copy")
            yield copy, copy / name, position
            shutil.rmtree(copy)


def flip_everywhere(sound: Path, tmp_path: Path, stride: int) -> tuple[int, int]:
    n_refused = n_read = 0
    bits = itertools.cycle(range(8))
    for copy, path, position in damaged_copies(sound, tmp_path, stride):
        content = bytearray(path.read_bytes())
        content[position] ^= 1 << next(bits)
        path.write_bytes(content)
        if check(copy):
            n_read += 1
        else:
            n_refused += 1
    return n_refused, n_read


def truncate_everywhere(sound: Path, tmp_path: Path, stride: int) -> tuple[int, int]:
    n_refused = n_read = 0
    for copy, path, position in damaged_copies(sound, tmp_path, stride):
        path.write_bytes(path.read_bytes()[:position])
        if check(copy):
            n_read += 1
        else:
            n_refused += 1
    return n_refused, n_read


def test_the_sound_one_is_read_whole(sound: Path, tmp_path: Path) -> None:
    assert check(killed(sound, tmp_path / "copy"))


def test_flipped_bits_are_noticed_or_do_no_harm(sound: Path, tmp_path: Path) -> None:
    n_refused, n_read = flip_everywhere(sound, tmp_path, 307)
    assert n_refused > 50
    assert n_read > 0  # there is room that nothing uses


def test_truncated_files_are_noticed_or_do_no_harm(sound: Path, tmp_path: Path) -> None:
    n_refused, _ = truncate_everywhere(sound, tmp_path, 997)
    assert n_refused > 50


@pytest.mark.long
def test_every_bit_that_is_flipped(sound: Path, tmp_path: Path) -> None:
    assert flip_everywhere(sound, tmp_path, 7)[0] > 1000


@pytest.mark.long
def test_every_length_a_file_is_truncated_to(sound: Path, tmp_path: Path) -> None:
    assert truncate_everywhere(sound, tmp_path, 13)[0] > 1000


def test_a_lost_log_is_noticed(sound: Path, tmp_path: Path) -> None:
    copy = killed(sound, tmp_path / "copy")
    (copy / f"journal-{ROTATED:012d}.sqlite-wal").unlink()
    with pytest.raises(
        JournalDamagedError,
        match=rf"record {ROTATED + 5} of the journal was acknowledged and is missing: restore.*removing {MARK_NAME}",
    ):
        journal_in(copy)
    # The operator may say that it is lost.
    (copy / MARK_NAME).unlink()
    journal = journal_in(copy)
    assert list(journal.records(0)) == batch(1, ROTATED + 4)
    journal.close()


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
    journal.close()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE records SET version = version + 1 WHERE seq = 12",
        "UPDATE records SET at = at + 1 WHERE seq = 12",
        "UPDATE records SET notes = body, body = notes WHERE seq = 12",
        "UPDATE records SET body = 'text' WHERE seq = 12",
        "UPDATE records SET body = 7 WHERE seq = 12",
        "UPDATE records SET version = 1.5 WHERE seq = 12",
        "DELETE FROM records WHERE seq = 12",
        "UPDATE records SET seq = 1200 WHERE seq = 12",
    ],
)
def test_a_changed_row_is_noticed(sound: Path, tmp_path: Path, change: str) -> None:
    copy = killed(sound, tmp_path / "copy")
    with sqlite3.connect(copy / f"journal-{ROTATED:012d}.sqlite") as connection:
        connection.execute(change)
    connection.close()
    journal = journal_in(copy)
    with pytest.raises(JournalDamagedError, match="record 12 of the journal"):
        list(journal.records(0))
    journal.close()


def test_the_end_of_an_older_segment_is_missed(sound: Path, tmp_path: Path) -> None:
    copy = killed(sound, tmp_path / "copy")
    with sqlite3.connect(copy / "journal-000000000001.sqlite") as connection:
        connection.execute("DELETE FROM records WHERE seq >= 8")
    connection.close()
    journal = journal_in(copy)
    with pytest.raises(JournalDamagedError, match=r"record 8 of the journal, in journal-0{11}1\.sqlite"):
        list(journal.records(0))
    journal.close()
