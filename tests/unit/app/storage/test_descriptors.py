"""A process that may not open more files loses nothing, and continues when it may."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from oubli.app.errors import JournalFullError, NoDescriptorsError
from tests.unit.app.storage.support import batch, closed, journal_in


@contextmanager
def descriptors_left(n: int) -> Iterator[None]:
    """Let the process open so many more files and no other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept_free = [os.open(os.devnull, os.O_RDONLY) for _ in range(n)]
    highest = max(int(name) for name in os.listdir("/dev/fd"))  # noqa: PTH208 - no files, numbers
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    taken: list[int] = []
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        while kept_free:
            os.close(kept_free.pop())
        yield
    finally:
        for descriptor in (*kept_free, *taken):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("n", range(8))
def test_a_rotation_without_descriptors_is_tried_again(tmp_path: Path, n: int) -> None:
    journal = journal_in(tmp_path, 3)
    with descriptors_left(n):
        try:
            journal.rotate(4)
        except NoDescriptorsError:
            assert n < 6, "a rotation needs no more than that"
            n_files = 2  # the old segment with its log, nothing else
        else:
            n_files = 3
        journal.append(batch(4, 5))  # the files that are open are enough
        assert not journal.failed
    assert len(list(tmp_path.glob("*.sqlite*"))) == n_files
    journal.rotate(6)
    journal.append(batch(6, 7))
    assert closed(journal, tmp_path) == batch(1, 7)


@pytest.mark.parametrize("n", range(4))
def test_other_work_without_descriptors_is_tried_again(tmp_path: Path, n: int) -> None:
    journal = journal_in(tmp_path, 3)
    journal.rotate(4)
    journal.append(batch(4, 4))
    journal._reserve.give_up()
    with descriptors_left(n):
        for work in (journal.probe, lambda: journal.drop_before(4), lambda: journal.append(batch(5, 5))):
            with suppress(JournalFullError):
                work()
            assert not journal.failed
    journal.probe()
    journal.drop_before(4)
    first = journal.last_seq + 1
    journal.append(batch(first, first))
    assert closed(journal, tmp_path) == batch(4, first)
