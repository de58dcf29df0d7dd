"""No id, subject or target is in the ledger, in any form, at any time."""

import base64
import hashlib
import uuid

import orjson

from oubli.app.ledger.entries import IdempotencyRecord, with_idempotency
from tests.process.durability.canaries import forms_of_text
from tests.unit.app.ledger.support import WholeLedger

IDS = ("ada.lovelace@example.org", "Grace Ω Hopper", "4711081500")
SUBJECTS = ("subject of ada.lovelace", "patient 0815-4711")
CALLERS_KEY = "callers-own-key-of-ada"


def forms(text: str) -> set[bytes]:
    """A text in the encodings and unkeyed hashes that it could be found by."""
    found = set(forms_of_text(text))
    for name in ("md5", "sha1", "sha256"):
        digest = hashlib.new(name, text.encode()).digest()
        found |= {digest, digest[:16], digest.hex().encode(), digest[:16].hex().encode(), base64.b64encode(digest)}
    return found


def everything(ledger: WholeLedger) -> bytes:
    """All that was written or would be answered."""
    assert ledger.path is not None
    parts = [path.read_bytes() for path in sorted(ledger.path.parent.rglob("*")) if path.is_file()]
    parts += [notes for _, notes in ledger.records]
    parts.append(orjson.dumps(ledger.entries()))
    receipts, _ = ledger.store.receipts_page(0, 100, lambda _: True)
    parts += [orjson.dumps(receipt.content()) for receipt in receipts]
    return b"\0".join(parts)


def test_nothing_of_a_person_is_anywhere(ledger):
    ledger.event("begin", model_version=1)
    receipts = [ledger.unlearned(name) for name in IDS]
    receipts.append(ledger.unlearned(*IDS, targets=SUBJECTS, by="subjects"))
    receipts.append(ledger.unlearned(IDS[0], kind="rectification"))
    key = ledger.auditor.hash_text(CALLERS_KEY)
    record = IdempotencyRecord(key, key, ledger.now + 10**6, 1, 1, 0, None, receipts[0].id)
    ledger.record(with_idempotency(b"", record))
    hidden = {form for text in (*IDS, *SUBJECTS, CALLERS_KEY) for form in forms(text)}
    for step in (None, lambda: ledger.erased(*receipts), ledger.store.flush, ledger.reopen):
        if step is not None:
            step()
        whole = everything(ledger)
        assert [form for form in hidden if form in whole] == []
        # The search is not blind: what is meant to be there is found.
        assert all(receipt.id.encode() in whole for receipt in receipts)
        assert ledger.auditor.hashes_of(IDS[0])[0].encode() in whole
        assert key.encode() in whole
    # What has expired is gone from the file.
    ledger.records.clear()
    assert key.encode() in everything(ledger)
    ledger.store.forget_idempotent(record.expires_ms)
    ledger.store.flush()
    assert key.encode() not in everything(ledger)


def test_the_queue_of_deliveries_takes_ids_and_words_alone(ledger):
    name, add = str(uuid.uuid4()), ledger.store.deliveries.add
    add(["webhook"], name, None, "unlearned", 1)
    add(["webhook"], "ada@example.com", None, "unlearned", 1)  # no row at all, rather than one with a name in it
    add(["webhook"], name, "ada@example.com", "erased", 1)
    add(["webhook"], name, None, "ada", 1)
    assert [one.subject for one in ledger.store.deliveries.due("webhook", 0, 9)] == [name]
