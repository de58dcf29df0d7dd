"""The life of a journal in a process of its own, so that the tests can make its system calls fail.

    python -m tests.unit.app.storage.life DIRECTORY

Says on its output, a line each: "acked N" for a record that is on the disk, "dropped N" before segments up to N may go,
"full" when the disk was full, "failed" when the journal has failed, "unstarted" when it could not be opened, "end".
"""

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from oubli.app.errors import JournalError, JournalFullError, StartError
from oubli.app.storage import journal as journal_module
from oubli.app.storage.journal import SqliteJournal
from tests.unit.app.storage.support import batch, journal_in

ROTATIONS = (4, 9, 30)
LAST = 36


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def live(journal: SqliteJournal) -> None:
    for first, last in ((1, 2), (3, 3), (4, 4), (5, 8), (9, 20), (21, 29), (30, LAST)):
        if first in ROTATIONS:
            step(journal, partial(journal.rotate, first))
        step(journal, partial(journal.append, batch(first, last), reserve=first == 21))
        say(f"acked {last}")
    say("dropped 9")
    step(journal, partial(journal.drop_before, 9))
    step(journal, partial(journal.rotate, LAST + 1))


def step(journal: SqliteJournal, work: Callable[[], None]) -> None:
    """Do something; when the disk is full, once more."""
    try:
        work()
    except JournalFullError:
        assert not journal.failed
        say("full")
        work()


def main() -> None:
    journal_module._LOG_BYTES = 40_000  # so that the log is taken in within this life
    try:
        journal = journal_in(Path(sys.argv[1]))
    except StartError:
        say("unstarted")
        return
    try:
        live(journal)
        say("end")
    except JournalError:
        assert journal.failed
        say("failed")
        for reserve in (False, True):
            with pytest.raises(JournalError) as caught:
                journal.append(batch(journal.last_seq + 1, journal.last_seq + 1), reserve=reserve)
            assert not isinstance(caught.value, JournalFullError)
    finally:
        journal.close()


if __name__ == "__main__":
    main()
