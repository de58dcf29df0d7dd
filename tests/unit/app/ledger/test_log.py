"""The log in the ledger's file: what is signed stays true across crashes, and damage is found when it is opened."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from oubli.app.errors import StartError, StorageError
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.entries import EMPTY, body_of, make_entry
from oubli.app.ledger.file import LedgerDamagedError
from oubli.app.ledger.ledger import Ledger
from oubli.app.ledger.log import TILE
from oubli.app.times import to_text
from oubli.verifier.merkle import hash_leaf, root_of
from tests.closing import closed_at_the_end
from tests.unit.app.ledger.support import START, WholeLedger, begun, make_ledger, signed_end, write_lines


def grown(folder: Path, n: int) -> WholeLedger:
    """A ledger with some entries, on the disk."""
    ledger = begun(folder)
    ledger.unlearned("a")
    notes = [ledger.auditor.event("fit", {}) for _ in range(n - ledger.store.head().index)]
    ledger.records += enumerate(notes, ledger.records[-1][0] + 1)
    ledger.store.fold_many(ledger.records)
    return ledger


def change_file(ledger: WholeLedger, statement: str) -> Path:
    """Change the file of a ledger behind its back."""
    ledger.store.flush()
    ledger.store.close()
    assert ledger.path is not None
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute(statement)
    return ledger.path


def true_root(ledger: WholeLedger, size: int) -> bytes:
    return root_of(hash_leaf(body_of(entry)) for entry in ledger.store.entries(0, size))


@pytest.mark.parametrize("n", [5, TILE, TILE + 3])
def test_the_same_bytes_are_signed_again_after_a_restart(n, tmp_path):
    ledger = grown(tmp_path, n)
    first = ledger.store.sign_checkpoint()
    assert (first.size, first.root) == (n, true_root(ledger, n))
    assert ledger.store.sign_checkpoint() == first
    ledger.reopen()
    assert ledger.store.log.signed == ledger.store.sign_checkpoint() == first
    ledger.event("fit")
    new = ledger.store.sign_checkpoint()
    assert new.root == true_root(ledger, n + 1)
    ledger.store.publish(new)
    ledger.store.publish(first)
    assert ledger.store.log.published == new, "an older one is not published over a newer one"


def test_what_is_not_written_is_not_in_the_tree():
    ledger = begun()
    ledger.event("fit")
    before = ledger.store.sign_checkpoint()
    notes = [ledger.auditor.event("fit", {}) for _ in range(2 * TILE)]
    records = list(enumerate(notes, ledger.records[-1][0] + 1))
    with pytest.raises(orjson.JSONDecodeError):
        ledger.store.fold_many([*records, (10**6, b"no notes")])
    assert ledger.store.sign_checkpoint() == before
    ledger.store.fold_many(records)
    assert ledger.store.log.tree.root() == true_root(ledger, before.size + 2 * TILE)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE tiles SET hashes = zeroblob(16320) WHERE level = 0 AND number = 1",
        *("UPDATE tiles SET number = 7 WHERE number = 1", "DELETE FROM tiles WHERE number = 1"),
        *("INSERT INTO tiles VALUES (0, 9, x'00')", "UPDATE log SET origin = 'other/0'", "DELETE FROM log"),
        "UPDATE log SET signed = replace(signed, char(10) || '600', char(10) || '599')",
        *("DELETE FROM keyed", "UPDATE keyed SET hashes = x'7b7d'"),
        "DELETE FROM entries WHERE idx > 598",  # without these entries the signed checkpoints have to go as well
    ],
)
def test_damage_is_found(damage, tmp_path):
    ledger = grown(tmp_path, 600)
    ledger.store.sign_checkpoint()
    path = change_file(ledger, damage)
    words = "ends before entry 600" if "entries" in damage else "backup"
    failures = []
    for _ in range(2):  # the first one has let go of the file, though its traceback is held
        with pytest.raises(LedgerDamagedError, match=words) as found:
            LedgerDatabase(path, ledger.keys)
        failures.append(found)


def test_a_file_without_tiles_gets_them(tmp_path):
    """As that of an earlier version, whose entries are there already."""
    ledger = grown(tmp_path, 600)
    root = ledger.store.log.tree.root()
    change_file(ledger, "DELETE FROM tiles")
    for _ in range(2):
        ledger.open()
        assert ledger.store.log.tree.root() == root
        assert ledger.store.log.tree.tile(0, 1, TILE) is not None
        ledger.store.close()


@pytest.mark.parametrize("seed", range(2))
def test_no_two_checkpoints_contradict_each_other_whatever_is_lost(seed, tmp_path):
    """The journal keeps what was flushed. The ledger's file comes back as it was at any time before."""
    draw = random.Random(seed)
    (tmp_path / "live").mkdir()
    ledger = begun(tmp_path / "live")
    seen: dict[tuple[str, int], bytes] = {}
    copies: list[Path] = []
    for step in range(50):
        what = draw.choice(["flushed", "flushed", "folded", "signed", "copied", "killed", "power lost"])
        if what == "flushed":  # acknowledged, and not in the ledger's file yet
            for i in range(draw.randint(1, 15)):
                ledger.unlearned(f"{step}-{i}", fold=False)
        elif what == "folded":
            ledger.store.fold_many(ledger.records[: draw.randint(0, len(ledger.records))])
        elif what == "signed":
            made = ledger.store.sign_checkpoint()
            assert seen.setdefault((made.origin, made.size), made.root) == made.root
        elif what == "copied":
            copies.append(tmp_path / str(step))
            shutil.copytree(tmp_path / "live", copies[-1])
        else:
            ledger.store.close()
            if what == "power lost" and copies:
                shutil.rmtree(tmp_path / "live")
                shutil.copytree(draw.choice(copies), tmp_path / "live")
            ledger.store = closed_at_the_end(LedgerDatabase(tmp_path / "live" / "ledger.sqlite", ledger.keys))
            ledger.store.fold_many(ledger.records)
            ledger.auditor = Ledger(ledger.store, ledger.keys, lambda: START)
    ledger.store.fold_many(ledger.records)
    assert len({origin for origin, _ in seen}) == 1
    assert len(seen) > 3
    for (_, size), root in seen.items():
        assert ledger.store.log.tree.root(size) == root == true_root(ledger, size)


def test_a_download_without_keyed_hashes_is_refused(tmp_path):
    ledger = begun()
    ledger.unlearned("a")
    entries = [{name: one for name, one in entry.items() if name != "keyed"} for entry in ledger.entries()]
    other = make_ledger()
    with pytest.raises(StartError, match="keyed hashes"):
        other.store.adopt(write_lines(tmp_path / "ledger.jsonl", [*entries, signed_end(ledger)]))
    keyed = {str(entry["index"]): entry["keyed"] for entry in ledger.entries() if "keyed" in entry}
    pages = [{"entries": entries, "keyed": keyed, "next": None}, signed_end(ledger)]
    assert other.store.adopt(write_lines(tmp_path / "ledger.jsonl", pages)) == len(entries)
    assert other.entries() == ledger.entries()
    logs = other.store.log, ledger.store.log
    assert len({(log.origin, log.tree.root()) for log in logs}) == 1


@pytest.mark.parametrize("fields", [{"log_name": "a b", "log_id": "0" * 16}, {"log_name": "a", "log_id": "x\n1\nAA=="}])
def test_a_download_that_names_a_log_as_nobody_does_is_refused(fields, tmp_path):
    entry = make_entry(EMPTY, "begin", to_text(START), fields)
    with pytest.raises(StartError, match="invalid name of a log"):
        make_ledger().store.adopt(write_lines(tmp_path / "ledger.jsonl", [entry]))


def test_a_full_disk_while_signing_changes_nothing(tmp_path):
    ledger = begun(tmp_path)
    before = ledger.store.sign_checkpoint()
    ledger.event("fit")
    connection = ledger.store.log._connection
    connection.execute("CREATE TEMP TRIGGER full BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    with pytest.raises(StorageError):
        ledger.store.sign_checkpoint()
    assert ledger.store.log.signed == before
    connection.execute("DROP TRIGGER full")
    assert ledger.store.sign_checkpoint().size == before.size + 1
