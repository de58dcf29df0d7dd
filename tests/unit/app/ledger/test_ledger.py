import uuid
from hashlib import sha256

import pytest

from oubli.app.ledger.entries import DISCLOSURE_LIMITS, EMPTY, FIELDS, FIRST_PREVIOUS
from oubli.app.ledger.keys import is_signed
from oubli.app.ledger.ledger import Tombstones
from oubli.app.times import to_text
from tests.unit.app.ledger.support import DEADLINE, START, make_ledger


def test_a_receipt_says_what_was_asked_and_is_signed():
    ledger, ref = make_ledger(), str(uuid.uuid4())
    asked = {"requested": 3, "absent": 1, "kind": "expiry"}
    receipt = ledger.unlearned("a", "b", targets=["a", "b", "c"], ref=ref.upper(), exported=2, **asked)
    content = receipt.content()
    assert tuple(content) == FIELDS
    asked |= {"ref": ref, "by": "ids", "disclosure_limits": DISCLOSURE_LIMITS["low"]}
    done = {"status": "unlearned", "held": True, "unlearned": 2, "exported_snapshots": 2}
    times = {"received_at": START + 9, "unlearned_at": START + 10, "deadline": START + 10 + DEADLINE}
    place = {"ledger_index": 2, "ledger_head": ledger.auditor.head.hash, "key_id": ledger.keys.signing.id}
    expected = {**asked, **done, **{name: to_text(at) for name, at in times.items()}, **place}
    assert expected.items() <= content.items()
    assert is_signed(ledger.keys.signing.public, receipt.signature, receipt.signed_form())
    receipts = [receipt, *(ledger.unlearned("a") for _ in range(20))]
    ids = [one.id for one in receipts]
    assert len(set(ids)) == 21
    for one in map(uuid.UUID, ids):
        assert (str(one) in ids, one.version, one.variant) == (True, 4, uuid.RFC_4122)
    before = ledger.auditor.head.index
    ledger.erased(*receipts)
    (entry,) = ledger.store.entries(before, 9)  # one for a whole pass
    assert (entry["type"], entry["receipts"], "kind" in entry) == ("erased", ids, False)


def test_the_first_entry_tells_the_signing_key(ledger):
    ledger.unlearned("a")
    key, unlearned = ledger.entries()
    assert (key["index"], key["previous"], key["type"]) == (1, FIRST_PREVIOUS, "signing-key")
    assert {"key_id", "algorithm", "public_key"} <= ledger.auditor.public_keys()[0].keys() & key.keys()
    assert (unlearned["index"], unlearned["previous"], unlearned["type"]) == (2, key["hash"], "unlearned")
    ledger.unlearned("b")
    ledger.reopen()
    ledger.unlearned("c")
    ledger.keys.rotate("signing")
    ledger.reopen()
    ledger.unlearned("d", "e")
    told = [entry["key_id"] for entry in ledger.entries() if entry["type"] == "signing-key"]
    assert told == [key["key_id"] for key in reversed(ledger.auditor.public_keys())], "each is told once it is used"


def test_what_was_taken_back_never_was(ledger):
    assert ledger.auditor.head == EMPTY
    first = ledger.auditor.event("begin", {})
    ledger.auditor.rewind(EMPTY)
    second = ledger.auditor.event("begin", {})
    assert first == second, "the signing key is told again"
    ledger.record(second)
    head = ledger.auditor.head
    ledger.unlearned("a", fold=False)
    ledger.records.pop()
    ledger.auditor.rewind(head)
    receipt = ledger.unlearned("b")
    assert receipt.ledger_index == head.index + 1
    assert [entry["type"] for entry in ledger.entries()] == ["signing-key", "begin", "unlearned"]


def test_hashes_are_keyed_and_do_not_depend_on_the_order():
    one, other = make_ledger().auditor, make_ledger().auditor
    assert one.hashes_of("7") != other.hashes_of("7")
    assert one.hashes_of("7") != one.hashes_of("007")
    assert one.target_hashes(["a", "b", "a"], "ids") == one.target_hashes(["b", "a"], "ids")
    targets = (["a"], ["ab"], ["a", "b"], ["a\0b"], ["a\0", "b"])
    different = [one.target_hashes(names, "ids") for names in targets]
    different += [one.target_hashes(["a"], "subjects"), one.hashes_of("a"), (one.hash_text("a"),)]
    assert len(set(different)) == len(different)
    assert all(len(bytes.fromhex(known)) == 16 for (known,) in different)


def test_times_never_run_back_and_nothing_is_received_after_it_was_done(ledger):
    ledger.unlearned("a")
    late = ledger.now
    ledger.now -= 3_600_000
    ledger.event("fit", model_version=7)
    receipt = ledger.unlearned("b", received_at=late, unlearned_at=ledger.now)
    assert receipt.received_at == receipt.unlearned_at == to_text(ledger.now - 10)
    times = [entry["at"] for entry in ledger.entries()]
    assert times == sorted(times)
    assert times[-1] == to_text(late)
    ledger.reopen()
    ledger.event("fit")
    assert ledger.entries()[-1]["at"] == to_text(late)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        *(("restore", {"who": text}) for text in ("Ada Lovelace", "ada@example.org", "a\nb", "")),
        *(("restore", {"hash": "0"}), ("restore", {"at": 7}), ("fit", {"share": 0.5})),
        *((kind, {}) for kind in ("Free text", "state", "unlearned", "erased", "signing-key", "carried-over")),
    ],
)
def test_no_free_text_goes_into_the_ledger(ledger, kind, fields):
    ledger.event("begin")
    head = ledger.auditor.head
    with pytest.raises(ValueError, match=r"an event|integers"):
        ledger.auditor.event(kind, fields)
    for ref in ("Case of Ada Lovelace", "", "ada@example.org", "0" * 31):
        with pytest.raises(ValueError, match="UUID"):
            ledger.unlearned("a", ref=ref)
    assert ledger.auditor.head == head


def code(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def make(period: int, now: list[int], erased=()):
    known = [(code(text), at) for text, at in erased]
    return Tombstones(period, lambda name: [code(f"new-{name}"), code(f"old-{name}")], lambda: now[0], known)


def test_an_id_is_known_for_a_period_and_longer_when_it_is_erased_again():
    now = [0]
    grace = make(50, now)
    grace.add([code("new-a"), code("new-b")], 0)
    grace.add([code("new-a")], 49)
    grace.add([code("new-a"), code("new-a")], 51)
    for at, known in ((49, "ab"), (50, "a"), (100, "a"), (101, "")):
        now[0] = at
        assert [name for name in "abc" if grace.holds(name)] == [*known]
    assert not [*grace._times, *grace._order, *grace._n_stale], "nothing is kept longer"


def test_what_was_erased_before_a_start_is_known_under_any_key_and_without_a_period_nothing_is_kept():
    grace = make(50, [60], [("new-b", 5), ("old-a", 20), ("new-c", 55)])
    assert [grace.holds(name) for name in ("a", "b", "c")] == [True, False, True]
    grace = make(0, [0])
    grace.add([code("new-a")], 0)
    assert (grace.holds("a"), len(grace._times)) == (False, 0)
