from pathlib import Path
from unittest.mock import Mock

import pytest

from oubli.app.errors import JournalUnreachableError, StartError
from oubli.app.storage import journal as module
from oubli.app.storage.directory import FlushError
from oubli.app.storage.journal import Journal, SqliteJournal, move_journal
from oubli.app.storage.segment_keys import SegmentKeys
from tests.closing import closed_at_the_end
from tests.postgres import Server
from tests.unit.app.storage.support import batch, closed, contents, journal_in, names


@pytest.fixture
def journal(postgres: Server, tmp_path: Path) -> Journal:
    from oubli.app.storage.postgres.journal import SoleJournal

    url = postgres.url(postgres.new_schema())
    return closed_at_the_end(SoleJournal(url, SegmentKeys(tmp_path / "keys"), name="a"))


def written(directory: Path, first: int, last: int) -> None:
    """Leave a journal in files that begins with a number."""
    old = journal_in(directory, first - 1)
    old.rotate(first)
    old.append(batch(first, last - 5))
    old.rotate(last - 4)
    old.append(batch(last - 4, last))
    old.drop_before(first)
    old.close()


def test_a_move_that_was_cut_short_goes_on(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "data"
    written(directory, 30, 200)
    append, calls = journal.append, []

    def lost(records: object, *, reserve: bool = False) -> None:
        calls.append(records)
        if len(calls) == 2:
            raise JournalUnreachableError("away")
        append(records, reserve=reserve)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        broken.setattr(journal, "append", lost)
        with pytest.raises(JournalUnreachableError):
            move_journal(directory, journal)
    assert 30 < journal.last_seq < 200
    assert contents(directory) == batch(30, 200)  # still whole
    with monkeypatch.context() as broken:
        broken.setattr(module, "remove", Mock(side_effect=FlushError(5, "no")))
        with pytest.raises(StartError, match="cannot be removed"):
            move_journal(directory, journal)
    assert move_journal(directory, journal) == 0
    assert list(journal.records(29)) == batch(30, 200)
    assert not any(name.startswith("journal") for name in names(directory))


@pytest.mark.parametrize("n_others", [2, 300])
def test_a_database_with_records_of_its_own_is_refused(journal: Journal, tmp_path: Path, n_others: int) -> None:
    directory = tmp_path / "data"
    written(directory, 30, 200)
    journal.append(batch(1, n_others))
    with pytest.raises(StartError, match="give an empty database"):
        move_journal(directory, journal)
    assert contents(directory) == batch(30, 200)
    SqliteJournal(directory).close()  # it can still be used


def test_records_keep_their_numbers_where_the_first_ones_are_gone(tmp_path: Path) -> None:
    directory, other = tmp_path / "data", tmp_path / "other"
    written(directory, 30, 200)
    journal = journal_in(other)
    assert move_journal(directory, journal) == 171
    assert closed(journal, other) == batch(30, 200)
    assert not any(name.startswith("journal") for name in names(directory))
