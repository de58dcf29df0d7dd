"""Entries of states: what is hashed and what is beside them, and that salt and digest go with a finished erasure."""

import hashlib
from typing import Any

import orjson

from oubli.app.ledger.file import Opening, hash_digest
from tests.unit.app.ledger.support import WholeLedger, begun, make_ledger, write_whole

SALT, DIGEST = "5a" * 32, "d1" * 32
SCHEMA = '{"columns":[]}'


def tell(ledger: WholeLedger, version: int, salt: str = SALT, digest: str = DIGEST, **more: Any) -> dict[str, Any]:
    """Write a state of a version."""
    ledger.now += 10
    fields = {"model_version": version, "set_root": "00" * 32, "digest_hash": hash_digest(salt, digest), **more}
    entry, notes = ledger.auditor.model_state(fields, Opening(salt, digest, SCHEMA))
    ledger.record(notes)
    return entry


def opening_of(ledger: WholeLedger, entry: dict[str, Any]) -> Opening:
    found = ledger.store.state_at(entry["index"])
    assert found is not None
    return found[1]


def test_an_entry_holds_the_salted_hash_and_nothing_of_what_is_beside_it(tmp_path):
    ledger = begun()
    entry = tell(ledger, 3)
    (found,) = ledger.store.states_page(0, 10)
    assert found == {name: value for name, value in entry.items() if name != "opening"}
    assert found["digest_hash"] == hashlib.sha256(bytes.fromhex(SALT + DIGEST)).hexdigest()
    assert opening_of(ledger, entry) == (SALT, DIGEST, SCHEMA)
    listed = orjson.dumps(ledger.entries())
    assert SALT.encode() not in listed
    assert DIGEST.encode() not in listed
    # A downloaded ledger has the state without what was beside it.
    other = make_ledger().store
    other.adopt(write_whole(tmp_path / "ledger.jsonl", ledger))
    assert other.state_at(entry["index"]) == (found, Opening())


def test_a_finished_erasure_takes_salt_and_digest_of_earlier_versions_away(ledger):
    ledger.version = 4
    first, second = tell(ledger, 3), tell(ledger, 4)
    receipt = ledger.unlearned("a")  # version 5
    third, fourth = tell(ledger, 5), tell(ledger, 6)
    assert opening_of(ledger, first).salt == SALT
    ledger.erased(receipt)
    gone, kept = (None, None, SCHEMA), (SALT, DIGEST, SCHEMA)
    assert [opening_of(ledger, entry) for entry in (first, second, third, fourth)] == [gone, gone, kept, kept]


def test_what_is_forgotten_does_not_come_back_from_the_journal(ledger):
    """Killed behind any record, the rest is taken in again."""
    before = tell(ledger, 6)
    ledger.store.forget_states(7)
    ledger.reopen()
    fields = {"model_version": 7, "set_root": "00" * 32}
    entry, notes = ledger.auditor.model_state(fields, Opening("7b" * 32, "e2" * 32))
    ledger.record(notes, fold=False)
    ledger.reopen()
    for _ in range(2):
        ledger.store.fold_many(ledger.records)
        assert [opening_of(ledger, one).salt for one in (before, entry)] == [None, "7b" * 32]
