"""Files as a crash leaves them: copied at any time, cut, flipped, replaced."""

import shutil
from pathlib import Path

import pytest

from oubli.app.errors import StartError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.entries import EMPTY
from oubli.app.ledger.file import LedgerDamagedError
from tests.closing import closed_at_the_end
from tests.unit.app.ledger.support import WholeLedger

NAMES = ("ledger.sqlite", "ledger.sqlite-wal")


def copied(ledger: WholeLedger, folder: Path) -> Path:
    folder.mkdir()
    assert ledger.path is not None
    for path in ledger.path.parent.glob("ledger.sqlite*"):
        shutil.copy(path, folder)
    return folder / "ledger.sqlite"


def long_story(ledger: WholeLedger, n: int) -> None:
    for i in range(n):
        receipts = [ledger.unlearned(f"{i}-{j}") for j in range(3)]
        ledger.erased(*receipts[:2])
        if i % 7 == 3:
            ledger.event("export", model_version=ledger.version)


def test_a_copy_at_any_time_goes_on_to_the_same_end(ledger, tmp_path):
    copies = []
    for i in range(12):
        long_story(ledger, 1)
        if i == 6:
            ledger.store.flush()
        copies.append((copied(ledger, tmp_path / str(i)), ledger.store.applied_seq(), ledger.store.head()))
    end = list(ledger.store._connection.iterdump())
    for path, seq, head in copies:
        store = LedgerDatabase(path, ledger.keys)
        assert (store.applied_seq(), store.head()) == (seq, head)
        store.fold_many(ledger.records)
        assert list(store._connection.iterdump()) == end
        store.close()


def test_every_flipped_byte_is_found_or_changes_nothing(ledger, tmp_path):
    long_story(ledger, 2)
    ledger.store.flush()
    path = copied(ledger, tmp_path / "copy")
    sound, whole = path.read_bytes(), told(ledger.store)
    n_found = 0
    for place in range(0, len(sound), 487):
        for name in NAMES:
            path.with_name(name).unlink(missing_ok=True)
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 4]) + sound[place + 1 :])
        try:
            store = LedgerDatabase(path, ledger.keys)
        except StartError:
            n_found += 1
            continue
        assert told(store) == whole
        store.close()
    assert n_found > 4


def told(store: LedgerDatabase) -> list[str]:
    """What a file holds. Which keys were told is no more than a memory: one that is not known is told again."""
    return [line for line in store._connection.iterdump() if "signing_keys" not in line]


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(ledger, tmp_path):
    long_story(ledger, 20)
    ledger.store.close()
    path = tmp_path / "ledger.sqlite"
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"free text " * 999):
        path.write_bytes(content)
        with pytest.raises(LedgerDamagedError, match="backup"):
            LedgerDatabase(path, ledger.keys)
        assert path.read_bytes() == content


def test_the_log_of_an_earlier_ledger_is_not_taken_for_the_new_ones(ledger, tmp_path):
    long_story(ledger, 3)
    path = copied(ledger, tmp_path / "copy")
    path.unlink()
    assert path.with_name("ledger.sqlite-wal").stat().st_size > 0
    store = closed_at_the_end(LedgerDatabase(path, ledger.keys))
    assert (store.head(), store.applied_seq(), store.pending()) == (EMPTY, 0, [])
    assert [(tmp_path / name).stat().st_mode & 0o077 for name in NAMES] == [0, 0], "they are for their owner only"
