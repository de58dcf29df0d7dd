import sqlite3
import uuid
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from oubli.app.errors import StartError, StorageError
from oubli.app.ledger import file as file_module
from oubli.app.ledger.database import LedgerDatabase
from oubli.app.ledger.entries import IdempotencyRecord, with_idempotency
from oubli.core.errors import FileError
from tests.unit.app.ledger.support import DEADLINE, START, held, in_time


def test_of_one_pass_what_is_erased_too_late_alone_is_overdue_for_ever(ledger):
    on_time = ledger.unlearned("a")
    late = ledger.unlearned("b", unlearned_at=ledger.now - DEADLINE)
    ledger.now = START + 10 + DEADLINE - 10
    ledger.erased(on_time, late)
    assert [ledger.now_of(one).overdue for one in (on_time, late)] == [False, True]
    page, after = ledger.store.receipts_page(0, 1, ledger.is_overdue)
    assert ([one.id for one in page], after is None) == ([on_time.id], False)


def test_the_last_erasure_of_exactly_these_targets(ledger):
    def last(*names, by="ids"):
        return ledger.store.last_receipt_of(ledger.auditor.target_hashes(names, by), in_time)

    assert last("a") is None
    both = ledger.unlearned("a", "b")
    assert last("b", "a") == both
    assert last("a") is None
    assert last("a", "b", by="subjects") is None
    ledger.unlearned(targets=["a", "b"], absent=2)  # found nothing: that is no erasure
    assert last("a", "b") == both
    ledger.unlearned("a", kind="rectification")
    assert last("a") is None
    expired = ledger.unlearned("a", kind="expiry")
    assert last("a") == expired
    ledger.rotate("hashing")
    assert last("a") == expired
    again = ledger.unlearned("a", "b")
    assert last("a", "b") == again


def test_pending_ones_are_those_not_erased(ledger):
    first, second, empty = ledger.unlearned("a", "b"), ledger.unlearned("c"), ledger.unlearned(targets=["x"])
    waiting = [(one.receipt_id, one.acknowledged_ms, one.seq, one.n_samples) for one in ledger.store.pending()]
    assert waiting == [(first.id, START + 10, 1, 2), (second.id, START + 20, 2, 1), (empty.id, START + 30, 3, 0)]
    ledger.erased(first, empty)
    assert [one.receipt_id for one in ledger.store.pending()] == [second.id]


def test_erased_since_a_version(ledger):
    for kind, names in (("deletion", "ab"), ("rectification", "cd"), ("expiry", "e"), ("deletion", "d")):
        ledger.unlearned(*names, kind=kind)
        ledger.rotate("hashing")
    ids = list("zabcdef")
    expected = {"a": "deletion", "b": "deletion", "c": "rectification", "d": "deletion", "e": "expiry"}
    assert ledger.store.erased_since(ids, -1) == ledger.store.erased_since(ids, 0) == expected
    assert ledger.store.erased_since(ids, 2) == {"d": "deletion", "e": "expiry"}
    assert ledger.store.erased_since(ids, 4) == {}
    # Deleted and then rectified counts as deleted too.
    ledger.unlearned("a", kind="rectification")
    assert ledger.store.erased_since(["a"], 0) == {"a": "deletion"}
    assert ledger.store.erased_since(["a"], 4) == {"a": "rectification"}
    # What a destroyed key has hashed cannot be restored past.
    ledger.keys.destroy_hashing_key(ledger.keys.hashing[-1].id, None)
    assert ledger.store.erased_since(ids, 1) == {"a": "rectification", **{one: expected[one] for one in "cde"}}
    with pytest.raises(FileError, match="hashing key is gone"):
        ledger.store.erased_since(ids, 0)


def test_recently_erased(ledger):
    ledger.unlearned("a", "b")
    ledger.event("fit")
    ledger.unlearned("c", kind="rectification")
    ledger.unlearned("d", kind="expiry")
    known = [(ledger.auditor.hashes_of(name)[0], at) for name, at in (("a", 10), ("b", 10), ("d", 40))]
    expected = [(hashed, START + at) for hashed, at in known]
    assert ledger.store.recently_erased(0) == expected
    assert ledger.store.recently_erased(START + 11) == ledger.store.recently_erased(START + 40) == expected[2:]
    assert ledger.store.recently_erased(START + 41) == []
    for i in range(600):
        ledger.unlearned(str(i))
    assert [at for _, at in ledger.store.recently_erased(START + 341)] == [START + 10 * i for i in range(35, 605)]


def test_requests_that_come_again_are_kept_as_hashes_and_numbers(ledger):
    record = IdempotencyRecord("ab" * 16, "cd" * 16, START + 100, 7, 70, 1, 2**52, None)
    other = replace(record, key="ef" * 16, first_id=None, receipt=str(uuid.uuid4()), expires_ms=START + 50)
    for fields in ({"key": "order of Ada"}, {"body": "Ada"}, {"receipt": "Ada"}, {"first_id": "Ada"}, {"n_new": "x"}):
        with pytest.raises(StorageError):
            ledger.store.fold_many([(1, with_idempotency(b"", replace(record, **fields)))])
    assert ledger.store.applied_seq() == 0
    ledger.record(with_idempotency(b"", record))
    ledger.record(with_idempotency(ledger.auditor.event("begin", {}), other))
    known = [ledger.store.idempotent(key, START) for key in (record.key, other.key, "00" * 16)]
    assert known == [record, other, None]
    assert ledger.store.idempotent(other.key, START + 50) is None
    assert [entry["type"] for entry in ledger.entries()] == ["signing-key", "begin"]
    ledger.store.forget_idempotent(START + 60)
    assert [ledger.store.idempotent(key, 0) for key in (other.key, record.key)] == [None, record]


def test_all_records_are_folded_or_none(ledger):
    """Whether a record is broken or the disk fails."""

    def content() -> tuple[Any, ...]:
        return held(ledger.store), ledger.store.pending(), ledger.store.head(), ledger.store.applied_seq()

    ledger.unlearned("a")
    before = content()
    ledger.unlearned("b", fold=False)
    good, (seq, notes) = ledger.records[-1], (3, ledger.auditor.event("fit", {}))
    broken = orjson.dumps({"entries": [{**orjson.loads(notes)["entries"][0], "index": 9}]})
    with pytest.raises(StartError):
        ledger.store.fold_many([good, (seq, broken)])
    assert content() == before
    ledger.records.append((seq, notes))
    for i in range(200):
        ledger.unlearned(f"b{i}", fold=False)
    ledger.store._connection.execute("PRAGMA max_page_count=1")
    with pytest.raises(StorageError) as caught:
        ledger.store.fold_many(ledger.records)
    assert str(ledger.path.parent) not in str(caught.value)
    assert content() == before
    ledger.store._connection.execute("PRAGMA max_page_count=100000")
    ledger.store.fold_many(ledger.records)
    assert ledger.store.head() == ledger.auditor.head


def test_the_highest_time(ledger):
    assert ledger.store.highest_ms() is None
    ledger.unlearned("a")
    assert ledger.store.highest_ms() == START + 10
    ledger.store.witness(START + 5000)
    ledger.store.witness(START + 4000)
    assert ledger.store.highest_ms() == START + 5000
    ledger.now = START + 9000
    ledger.event("fit")
    assert ledger.store.highest_ms() == START + 9010


def test_a_second_program_and_an_older_one_are_refused(ledger, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.1))
        with pytest.raises(StartError, match="in use"):
            LedgerDatabase(ledger.path, ledger.keys)
    ledger.store._connection.execute("PRAGMA user_version=99")
    with pytest.raises(StartError, match="newer version"):
        ledger.reopen()
    with pytest.raises(StartError, match="cannot be"):
        LedgerDatabase(tmp_path / "none" / "ledger.sqlite", ledger.keys)


def test_the_tables_take_no_free_text(ledger):
    receipt = ledger.unlearned("a", ref=str(uuid.uuid4()))
    for column in ("ref", "id", "kind", "status", "targets", "n_samples", "seq"):
        with pytest.raises(sqlite3.IntegrityError):
            ledger.store._connection.execute(f"UPDATE receipts SET {column} = 'Ada'")  # noqa: S608 - names of this test
    assert ledger.now_of(receipt) == receipt


def test_a_new_file_and_its_name_are_on_the_disk_before_it_is_used(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(file_module, "flush_file", lambda path: steps.append(path.name))
    monkeypatch.setattr(file_module, "flush_directory", lambda path: steps.append([one.name for one in path.iterdir()]))
    file_module.open_file(tmp_path / "ledger.sqlite").close()
    assert steps == [".ledger.sqlite.tmp", ["ledger.sqlite"]]
