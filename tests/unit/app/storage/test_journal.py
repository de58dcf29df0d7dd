import pytest

from oubli.app.storage.journal import Journal, MemoryJournal
from tests.unit.app.storage.support import batch


def test_counts_and_keeps_nothing() -> None:
    journal: Journal = MemoryJournal()
    assert not journal.is_durable
    assert journal.first_seq is None
    assert journal.oldest_at is None
    journal.append([])
    assert journal.oldest_at is None
    journal.append(batch(1, 3))
    journal.append(batch(4, 4), reserve=True)
    assert (journal.n_records, journal.last_seq, journal.failed) == (4, 4, False)
    assert journal.n_bytes == sum(len(one.body) + len(one.notes) for one in batch(1, 4))
    assert journal.oldest_at is not None
    assert list(journal.records(0)) == []
    journal.rotate(5)
    assert (journal.n_records, journal.n_bytes, journal.oldest_at, journal.last_seq) == (0, 0, None, 4)
    journal.append(batch(5, 5))
    journal.drop_before(5)
    journal.close()
    assert (journal.n_records, journal.last_seq) == (1, 5)


def test_refuses_numbers_that_the_other_journal_would_refuse() -> None:
    journal = MemoryJournal()
    journal.append(batch(1, 2))
    with pytest.raises(ValueError, match="record 4 was given where 3 is next"):
        journal.append(batch(4, 5))
    with pytest.raises(ValueError, match="record 2 is written"):
        journal.rotate(2)
