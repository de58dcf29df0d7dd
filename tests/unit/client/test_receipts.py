"""Receipts are checked as anybody could: against the form that another implementation writes."""

import base64
import hashlib
from typing import Any

import pytest
import rfc8785
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from oubli.client import ReceiptError
from oubli.client.operations.evidence import canonical, check_entry, check_signature, key_id_of

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC = PRIVATE.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
KEYS = {key_id_of(PUBLIC): base64.b64encode(PUBLIC).decode()}


def receipt(**changed: Any) -> dict[str, Any]:
    content = {"id": "1", "ref": None, "unlearned": 3, "overdue": False, "note": 'é\x07"', "key_id": key_id_of(PUBLIC)}
    content["signature"] = base64.b64encode(PRIVATE.sign(rfc8785.dumps(content))).decode()
    return {**content, "durable": True, **changed}


CHANGED: list[tuple[dict[str, Any], str]] = [
    *((one, "something in it was changed") for one in ({"unlearned": 4}, {"overdue": True}, {"more": 1})),
    *(({"signature": text}, "something in it was changed") for text in ("AAAA", "?")),
    *(({name: None}, "fields of a receipt") for name in ("signature", "key_id")),
    ({"unlearned": 3.0}, "holds what no receipt holds"),
    ({"note": "\ud800"}, "not valid Unicode"),
    ({"key_id": "0" * 16}, "not one of those that are trusted"),
]


def test_a_receipt_that_is_signed_is_good_and_one_that_was_changed_is_not() -> None:
    for is_durable in (True, False):
        assert check_signature(receipt(durable=is_durable), KEYS) == key_id_of(PUBLIC)
    for changed, part in CHANGED:
        with pytest.raises(ReceiptError, match=part):
            check_signature(receipt(**changed), KEYS)
    for key in ("?", "AAAA", base64.b64encode(bytes(32)).decode()):  # another than its id says
        with pytest.raises(ReceiptError, match=r"no Ed25519 key|another id"):
            check_signature(receipt(), {key_id_of(PUBLIC): key})


def test_the_form_is_that_of_the_standard() -> None:
    content = {"b": [1, {"z": None, "a": "\u2028/\\"}], "a": {"x": True, "A": -5}, "n": 2**53 - 1}
    assert canonical(content) == rfc8785.dumps(content)
    for value in (1.5, 2**53, b"x", {1: 2}, {"é": 1}, (1,), object()):
        with pytest.raises(ReceiptError):
            canonical({"a": value})


def test_an_entry_is_the_one_that_was_named() -> None:
    entry = {"index": 4, "previous": "0" * 64, "type": "unlearned", "at": "2030-01-31T12:00:00Z", "samples": ["a"]}
    head = hashlib.sha256(rfc8785.dumps(entry)).hexdigest()
    check_entry({**entry, "hash": head}, 4, head)
    for wrong in ({**entry, "samples": ["b"], "hash": head}, {**entry, "index": 5, "hash": head}, {}):
        with pytest.raises(ReceiptError, match="entry 4"):
            check_entry(wrong, 4, head)
