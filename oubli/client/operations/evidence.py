"""Erasures: receipts, the keys that sign them, and the ledger; checks of receipts without the server's help.

Signed is the RFC 8785 form of everything in a receipt but `signature` and `durable`; the hash of an entry is the
SHA-256 of the same form of everything in it but `hash`. Neither holds fractions, and all names are ASCII, so that
sorted JSON without spaces is this form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

import orjson

from oubli.api.erasures import (
    DeadLetter,
    DeadLettersAnswer,
    ErasuresAnswer,
    NothingErased,
    Receipt,
    RedeliveryAnswer,
)
from oubli.api.ledger import KeysAnswer, LedgerAnswer, LedgerEntry, PublicKey
from oubli.client.errors import DataError, ReceiptError, WaitTimeoutError
from oubli.client.messages import Emits, Flow, Sleep
from oubli.client.operations.requests import FIRST_POLL, LONGEST_POLL, object_of, paged, posting, reading
from oubli.client.results import read
from oubli.client.session import Session

_NOT_SIGNED = ("signature", "durable")
_LARGEST = 2**53 - 1
_DEEPEST = 32
_ID_BYTES = 8


def erasure(session: Session, receipt: Receipt | NothingErased | str) -> Flow[Receipt]:
    """Return a receipt as it is now.

    Parameters
    ----------
    receipt : Receipt or str
        The receipt or its id.

    Raises
    ------
    NotFoundError
        When there is none.
    DataError
        When the erasure found nothing and the server has made no receipt.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["asked-1"])
    >>> receipt = client.delete("asked-1")
    >>> client.erasure(receipt.id).unlearned
    1
    """
    name = receipt if isinstance(receipt, str) else receipt.id
    if name is None:
        raise DataError("nothing was held, and the server has made no receipt: there is nothing to ask for")
    return read(Receipt, (yield from session.ask(reading(f"/erasures/{quote(name, safe='')}"))))


def erasures(
    session: Session,
    ref: str | None = None,
    *,
    status: Literal["unlearned", "erased", "overdue"] | None = None,
    page_size: int | None = None,
) -> Flow[list[Receipt]]:
    """Return receipts, the oldest first: all, those with a case number, or those of a status.

    Parameters
    ----------
    ref : str, optional
        The case number.
    status : str, optional
        `unlearned` for all that are not erased, `overdue` for those of them that should be, or `erased`.
    page_size : int, optional
        Receipts an answer; as many pages are asked for as there are.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["case-1"])
    >>> receipt = client.delete("case-1")
    >>> receipt.id in [one.id for one in client.erasures()]
    True
    """
    found: list[Receipt] = []
    cursor: str | None = None
    while True:
        request = reading("/erasures", status=status, ref=ref, cursor=cursor, limit=page_size)
        page = read(ErasuresAnswer, (yield from session.ask(request)))
        found += page.erasures
        cursor = page.next
        if cursor is None:
            return found


def dead_letters(session: Session, *, page_size: int | None = None) -> Emits[DeadLetter]:
    """Iterate over the states that webhooks and callbacks could not deliver. Pages are asked for as they are needed.

    Parameters
    ----------
    page_size : int, optional
        Dead letters an answer.

    Examples
    --------
    >>> list(client.dead_letters())
    []
    """
    yield from paged(session, DeadLettersAnswer, "dead_letters", "/webhooks/dead-letters", limit=page_size)


def redeliver(session: Session, letter: DeadLetter | Receipt | str) -> Flow[int]:
    """Send the undelivered states of a receipt again; return how many there are.

    Parameters
    ----------
    letter : DeadLetter, Receipt or str
        The dead letter, the receipt, or its id.

    Raises
    ------
    NotFoundError
        When nothing of it was given up.

    Examples
    --------
    >>> for letter in client.dead_letters():
    ...     n_states = client.redeliver(letter)
    """
    name = letter if isinstance(letter, str) else letter.id
    request = posting(f"/webhooks/dead-letters/{quote(name, safe='')}/redeliver")
    return read(RedeliveryAnswer, (yield from session.ask(request))).states


def wait_erased(
    session: Session, receipt: Receipt | NothingErased | str, *, timeout: float | None = None
) -> Flow[Receipt]:
    """Wait until what was unlearned is erased from all files of the server, and return the receipt that says so.

    Parameters
    ----------
    receipt : Receipt or str
        The receipt or its id.
    timeout : float, optional
        In seconds; by default as long as it takes. Servers take a minute unless they are set to another deadline.

    Raises
    ------
    WaitTimeoutError
        When it is not erased in time; it will be.
    EphemeralError
        When the server keeps nothing on disk: then a receipt never says `erased`.
    DataError
        When the erasure found nothing and the server has made no receipt.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["soon-1"])
    >>> receipt = client.delete("soon-1")
    >>> job = client.scrub()  # without waiting for the deadline
    >>> client.wait_erased(receipt, timeout=60).status
    'erased'
    """
    deadline = None if timeout is None else session.clock() + timeout
    pause = FIRST_POLL
    while True:
        state = yield from erasure(session, receipt)
        if state.status == "erased":
            return state
        if not state.durable:
            yield from session.ask(reading("/snapshot"))  # refused, in the server's words
        if deadline is not None and session.clock() >= deadline:
            raise WaitTimeoutError("it is not erased in time; the server continues")
        yield Sleep(pause)
        pause = min(LONGEST_POLL, 1.5 * pause)


def keys(session: Session) -> Flow[list[PublicKey]]:
    """Return the public keys that check receipts, the current one first. Keep them: they are what you trust.

    Examples
    --------
    >>> [key.status for key in client.keys()]
    ['current']
    """
    return read(KeysAnswer, (yield from session.ask(reading("/ledger/keys")))).keys


def verify_receipt(
    session: Session,
    receipt: Receipt | NothingErased | Mapping[str, Any],
    *,
    keys: Iterable[PublicKey] | None = None,
    in_ledger: bool = False,
) -> Flow[str]:
    """Check that a receipt is signed, as it is, by a key that is trusted; return the key's id.

    Parameters
    ----------
    receipt : Receipt or dict
        As answered; of a receipt that was kept, the JSON object.
    keys : iterable of PublicKey, optional
        Trusted; by default those that the client was given as `trusted_keys`, else those that the server publishes
        (which proves that the server stands by it, and no more).
    in_ledger : bool
        Whether to ask for the ledger's entry that the receipt names as well, and compare its hash.

    Raises
    ------
    ReceiptError
        When it is not.

    Examples
    --------
    >>> added = client.add([[39, "a", True]], ["yes"], ids=["signed-1"])
    >>> receipt = client.delete("signed-1")
    >>> client.verify_receipt(receipt, in_ledger=True) == client.keys()[0].key_id
    True
    """
    content = receipt if isinstance(receipt, Mapping) else receipt.content
    if keys is not None:
        trusted: Mapping[str, str] = {key.key_id: key.public_key for key in keys}
    elif session.trusted_keys is not None:
        trusted = session.trusted_keys
    else:
        trusted = {key.key_id: key.public_key for key in (yield from _published(session))}
    key_id = check_signature(content, trusted)
    if in_ledger:
        index, head = content.get("ledger_index"), content.get("ledger_head")
        if type(index) is not int or not isinstance(head, str):
            raise ReceiptError("it does not have the fields of a receipt")
        page = object_of((yield from session.ask(reading("/ledger", cursor=index - 1, limit=1))))
        entries: Sequence[Any] = page.get("entries") or [{}]
        check_entry(entries[0], index, head)
    return key_id


_published = keys  # the parameter of the same name hides it


def ledger(session: Session, *, after: int = 0, page_size: int | None = None) -> Emits[LedgerEntry]:
    """Iterate over the entries of the audit ledger. Pages are asked for as they are needed.

    Parameters
    ----------
    after : int
        Index of the entry to begin behind.
    page_size : int, optional
        Entries an answer.

    Examples
    --------
    >>> next(client.ledger()).index
    1
    """
    yield from paged(session, LedgerAnswer, "entries", "/ledger", cursor=after, limit=page_size)


def canonical(content: Mapping[str, Any]) -> bytes:
    """Internal: the RFC 8785 form of an object.

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
    """Internal: the id that a public key has."""
    return hashlib.sha256(public_key).digest()[:_ID_BYTES].hex()


def check_signature(content: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    """Internal: check a receipt, as it was answered, against trusted keys; return the id of the one that signed it.

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
    """Internal: check that an entry of the ledger is the one that a receipt names.

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
