"""What a verifier finds: every change to a chain and to a receipt."""

import base64
import hashlib
import uuid
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oubli.app.ledger.downloads import ReceiptError, check_ledger, check_receipt, read_public_keys
from oubli.app.ledger.entries import CARRIED_OVER, FIELDS, ChainError, Head, Receipt, canonical, make_entry, sign
from tests.unit.app.ledger.support import DEADLINE, WholeLedger, as_objects, make_ledger

KINDS = st.sampled_from(["one", "many", "absent", "rectify", "erase", "erase all", "event", "signing", "hashing"])
STEPS = st.lists(KINDS, min_size=1, max_size=14)
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def told(steps: list[str]) -> tuple[WholeLedger, list[Receipt]]:
    """A ledger after some steps, with the receipts as they were given."""
    ledger, given_out = make_ledger(), []
    for number, step in enumerate(steps):
        name = str(number)
        if step == "one":
            given_out.append(ledger.unlearned(name, ref=str(uuid.uuid4())))
        elif step == "many":
            given_out.append(ledger.unlearned(*(f"{name}-{i}" for i in range(4)), kind="expiry"))
        elif step == "absent":
            given_out.append(ledger.unlearned(targets=[name], absent=1))
        elif step == "rectify":
            given_out.append(ledger.unlearned(name, kind="rectification", exported=3))
        elif step == "erase":
            ledger.erased(*given_out[-1:])
        elif step == "erase all":
            ledger.now += DEADLINE
            ledger.erased(*given_out)
        elif step == "event":
            ledger.event("restore", model_version=number, kind="forest", whole=True, nothing=None)
        elif step == "signing" or step == "hashing":
            ledger.rotate(step)
    return ledger, given_out


STORY = ["one", "many", "event", "erase", "absent", "signing", "one", "rectify", "hashing", "erase all", "one"]


@settings(QUICK, max_examples=40)
@given(STEPS)
def test_whatever_happens_the_chain_is_whole_and_every_receipt_in_it(steps):
    ledger, receipts = told(steps)
    entries = hashed(ledger)
    checked = check_ledger(entries)
    assert checked.head == ledger.store.head()
    for receipt in receipts:
        for state in (receipt, ledger.now_of(receipt)):
            assert check_receipt(state.content(), checked) == state
    n_erased = sum(ledger.now_of(receipt).status == "erased" for receipt in receipts)
    assert (checked.n_erasures, checked.n_erased) == (len(receipts), n_erased)


def hashed(ledger: WholeLedger) -> list[Any]:
    """The entries without what is beside them, which is not hashed."""
    return [{name: value for name, value in one.items() if name != "keyed"} for one in as_objects(ledger.entries())]


def refused(words: str | None, content: Any, *against: Any) -> None:
    """Have a receipt refused."""
    with pytest.raises(ReceiptError, match=words):
        check_receipt(content, *against)


def resealed(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with the hash that fits its content."""
    body = {name: value for name, value in entry.items() if name != "hash"}
    return {**body, "hash": hashlib.sha256(canonical(body)).hexdigest()}


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, list):
        return [*value, "00"]
    if value is None:
        return "0"
    return value[:-1] + ("0" if value[-1] != "0" else "1")


def alter(entries: list[Any], place: int, how: str, name: str) -> int:
    """Alter entries at a place; return at which index that must be found."""
    entry, after = entries[place : place + 2]
    altered = {
        "added": [{**entry, "more": 1}, after],
        "removed": [{field: value for field, value in entry.items() if field != name}, after],
        "changed": [{**entry, name: changed(entry[name])}, after],
        "dropped": [after],
        "swapped": [after, entry],
        "moved to the end": [after],
        "repeated": [entry, entry, after],
        # With the right hash in an entry, the one after it is broken.
        "forged": [resealed({**entry, "type": "export", "snapshot": "00000001"}), entry, after],
        "resealed": [resealed({**entry, "at": after["at"], "more": 7}), after],
    }
    entries[place : place + 2] = altered[how]
    if how == "moved to the end":
        entries.append(entry)
    return place + (2 if how in ("repeated", "forged", "resealed") else 1)


ALTERATIONS = "added", "removed", "changed", "dropped", "swapped", "moved to the end", "repeated", "forged", "resealed"


@QUICK
@pytest.mark.parametrize("how", ALTERATIONS)
@given(STEPS, st.data())
def test_any_altered_entry_is_found_where_it_is(how, steps, data):
    ledger, _ = told([*steps, "one", "event", "one"])
    entries = hashed(ledger)
    place = data.draw(st.integers(how in ("forged", "resealed"), len(entries) - 2))
    index = alter(entries, place, how, data.draw(st.sampled_from(sorted(entries[place]))))
    assert found_at(entries) == index


def found_at(entries: list[Any]) -> int:
    with pytest.raises(ChainError) as caught:
        check_ledger(entries)
    return caught.value.index


def test_what_is_no_entry_or_has_fields_of_the_wrong_type():
    for content in (None, 7, "text", [], {}, {"index": 1}):
        assert found_at([content]) == 1
    key, entry = hashed(told(["one"])[0])
    for field, value in product(("index", "previous", "type", "at", "hash"), (None, 1.5, [], True)):
        assert found_at([key, {**entry, field: value}]) == 2


def test_what_is_wrong_under_a_right_hash_is_found():
    ledger, _ = told(["one", "event"])
    key, *between, last = entries = hashed(ledger)
    foreign_key = resealed({**key, "public_key": base64.b64encode(bytes(32)).decode()})
    late = resealed({**last, "at": "2001-01-01T00:00:00.000Z"})

    def carried(entry: dict[str, Any]) -> dict[str, Any]:
        return make_entry(Head.of(last), CARRIED_OVER, last["at"], {"entry": entry})

    check_ledger([*entries, carried(last)])
    for wrong, rule in (
        ([foreign_key], "type"),
        ([key, *between, late], "older"),
        ([*entries, carried(last | {"model_version": 2})], "was changed"),
    ):
        with pytest.raises(ChainError, match=rule):
            check_ledger(wrong)


@settings(QUICK, max_examples=40)
@given(st.data())
def test_a_receipt_that_was_altered_in_any_field_is_found(data):
    ledger, receipts = told(STORY)
    checked = check_ledger(ledger.entries())
    receipt = data.draw(st.sampled_from(receipts))
    content = data.draw(st.sampled_from([receipt, ledger.now_of(receipt)])).content()
    check_receipt({**content, "durable": True}, checked)
    name = data.draw(st.sampled_from(sorted(content)))
    lacking = {key: value for key, value in content.items() if key != name}
    for other in ({name: changed(content[name])}, {"more": 1}, {name: [0.5]}):
        refused(None, {**content, **other}, checked)
    refused(None, lacking, checked)


def test_a_receipt_that_its_own_server_has_signed_otherwise_is_found():
    """The owner of the key can sign anything, but not make the ledger agree."""
    ledger, receipts = told(STORY)
    checked = check_ledger(ledger.entries())
    now = ledger.now_of(receipts[-1])
    for name in ("unlearned", "absent", "requested", "exported_snapshots", "model_version", "disclosure"):
        content = {**now.content(), name: changed(now.content()[name])}
        content["signature"] = sign(ledger.keys.signing, Receipt.from_content(content).signed_form())
        refused(name, content, checked)


def test_a_receipt_shows_entries_that_were_cut_off_or_made_anew():
    ledger, receipts = told(["one", "one"])
    entries = hashed(ledger)
    check_ledger(entries[:-1])  # the chain alone does not show it
    refused("removed from the end", receipts[-1].content(), check_ledger(entries[:-1]))
    again = resealed({**entries[-1], "absent": 5})
    refused("was changed after", receipts[-1].content(), check_ledger([*entries[:-1], again]))


DISCLOSURE = {"disclosure", "disclosure_limits"}


@pytest.mark.parametrize("lacking", [DISCLOSURE, {*DISCLOSURE, "by", "held", "deadline"}])
def test_receipts_of_earlier_versions_have_no_later_field_and_are_right(ledger: WholeLedger, lacking: set[str]) -> None:
    begun = ledger.unlearned_before("a", lacking=lacking)
    ledger.erased(begun)
    checked = check_ledger(hashed(ledger))
    for receipt in (begun, ledger.now_of(begun)):
        content = receipt.content()
        assert set(FIELDS) - set(content) == lacking
        assert check_receipt(content, checked) == receipt
        forged = {**dict.fromkeys(lacking, "low"), **content}
        forged["signature"] = sign(ledger.keys.signing, Receipt.from_content(forged).signed_form())
        refused("disclosure", forged, checked)


def test_a_receipt_that_waits_too_long_is_overdue_wherever_it_is_read_and_signed_as_such():
    ledger, (receipt,) = told(["one"])
    ledger.now += DEADLINE + 1
    read = ledger.now_of(receipt)
    assert read == receipt._replace(overdue=True, signature=read.signature)
    page, _ = ledger.store.receipts_page(0, 9, ledger.is_overdue, ref=receipt.ref)
    last = ledger.store.last_receipt_of(ledger.auditor.target_hashes(["0"], "ids"), ledger.is_overdue)
    assert [*page, last] == [read, read]
    checked = check_ledger(ledger.entries())
    assert check_receipt(read.content(), checked) == read
    refused(None, {**read.content(), "overdue": False}, checked)


def test_only_keys_that_are_trusted():
    ledger, (receipt,) = told(["one"])
    checked = check_ledger(ledger.entries())
    keys = read_public_keys({"keys": ledger.auditor.public_keys()})
    assert check_receipt(receipt.content(), checked, keys) == receipt
    refused("unknown", receipt.content(), checked, {})
    (name,) = keys or {}
    refused("signature", receipt.content(), checked, {name: bytes(32)})
