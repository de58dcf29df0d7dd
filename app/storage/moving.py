"""A journal in files goes on in another journal: its records are taken over, then the files are removed.

Killed at any step, the next start goes on: as long as a segment is there, what the other journal does not have yet is
in it.
"""

import itertools
from pathlib import Path

from oubli.app.errors import StartError
from oubli.app.storage.directory import flushed
from oubli.app.storage.journal import Journal
from oubli.app.storage.reserve import RESERVE_NAME
from oubli.app.storage.segment import remove, segments_in
from oubli.app.storage.sqlite_journal import MARK_NAME, SqliteJournal

_AT_ONCE = 64


def move_journal(directory: Path, journal: Journal) -> int:
    """Move the records of the journal in a directory to another one, which goes on with them; return how many.

    Raises
    ------
    StartError
        When the other journal has records of its own, or one of them cannot be used.
    JournalError
        When the other journal cannot be written; it can be tried again.
    """
    if not segments_in(directory):
        return 0
    old = SqliteJournal(directory)
    try:
        first, last = old.first_seq or 1, old.last_seq
        if journal.last_seq == 0 and first > 1:
            journal.rotate(first)
        if not first - 1 <= journal.last_seq <= last:
            raise StartError(
                "the data directory has a journal in files, and the database that --journal names has another one: "
                "give a database that is empty, or leave --journal out"
            )
        n_moved = 0
        records = old.records(journal.last_seq)
        while batch := list(itertools.islice(records, _AT_ONCE)):
            journal.append(batch, reserve=True)
            n_moved += len(batch)
        journal.drop_before(first)
    finally:
        old.close()
    try:
        with flushed(directory):
            for path in segments_in(directory):
                remove(path)
            for name in (MARK_NAME, RESERVE_NAME):
                (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise StartError(
            f"the files of the journal before, in {directory}, cannot be removed ({error.strerror}): see to their owner"
        ) from None
    return n_moved
