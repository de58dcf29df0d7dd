"""Checks of receipts and of entries of the ledger, without the server's help.

Signed is the RFC 8785 form of everything in a receipt but `signature` and `durable`; the hash of an entry is the
SHA-256 of the same form of everything in it but `hash`. Neither holds fractions, and all names are ASCII, so that
sorted JSON without spaces is this form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from oubli.client.errors import ReceiptError

_NOT_SIGNED = ("signature", "durable")
_LARGEST = 2**53 - 1
_DEEPEST = 32
_ID_BYTES = 8


def canonical(content: Mapping[str, Any]) -> bytes:
    """Return the RFC 8785 form of an object.

    Raises
    ------
    ReceiptError
        When it holds what no receipt and no entry holds.
    """
    _check(content, _DEEPEST)
    try:
        return orjson.dumps(dict(content), option=orjson.OPT_SORT_KEYS)
    except TypeError:
        raise ReceiptError("it holds text that is not valid Unicode") from None


def key_id_of(public_key: bytes) -> str:
    """Return the id that a public key has."""
    return hashlib.sha256(public_key).digest()[:_ID_BYTES].hex()


def check_signature(content: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    """Check a receipt, as it was answered, against keys that are trusted; return the id of the one that signed it.

    Parameters
    ----------
    content
        The receipt.
    keys
        Public keys in base64, by id.

    Raises
    ------
    ReceiptError
        When none of the keys has signed exactly this.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    key_id, signature = content.get("key_id"), content.get("signature")
    if not isinstance(key_id, str) or not isinstance(signature, str):
        raise ReceiptError("it does not have the fields of a receipt")
    if key_id not in keys:
        raise ReceiptError("the key that it names is not one of those that are trusted")
    try:
        public = base64.b64decode(keys[key_id], validate=True)
        verifier = Ed25519PublicKey.from_public_bytes(public)
    except (binascii.Error, ValueError):
        raise ReceiptError("the key that it names is no Ed25519 key") from None
    if key_id_of(public) != key_id:
        raise ReceiptError("the key that it names has another id than the key itself gives")
    signed = canonical({name: value for name, value in content.items() if name not in _NOT_SIGNED})
    try:
        verifier.verify(base64.b64decode(signature, validate=True), signed)
    except (InvalidSignature, binascii.Error, ValueError):
        raise ReceiptError("its signature is not that of its content: something in it was changed") from None
    return key_id


def check_entry(entry: Mapping[str, Any], index: int, head: str) -> None:
    """Check that an entry of the ledger is the one that a receipt names.

    Raises
    ------
    ReceiptError
        When it is another.
    """
    body = {name: value for name, value in entry.items() if name != "hash"}
    if entry.get("index") != index or hashlib.sha256(canonical(body)).hexdigest() != head:
        raise ReceiptError(f"entry {index} of the ledger is another than when the receipt was signed")


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str) or value is None or isinstance(value, bool):
        return
    if type(value) is int and -_LARGEST <= value <= _LARGEST:
        return
    if depth and isinstance(value, Mapping) and all(isinstance(key, str) and key.isascii() for key in value):
        for item in value.values():
            _check(item, depth - 1)
        return
    if depth and isinstance(value, list):
        for item in value:
            _check(item, depth - 1)
        return
    raise ReceiptError("it holds what no receipt holds")
