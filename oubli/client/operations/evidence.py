"""Erasures: receipts, the keys that sign them, and the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote

from oubli.client.errors import DataError, ReceiptError, WaitTimeoutError
from oubli.client.messages import Emit, Emits, Flow, Sleep
from oubli.client.operations.requests import FIRST_POLL, LONGEST_POLL, object_of, posting, reading
from oubli.client.receipts import check_entry, check_signature
from oubli.client.results import (
    DeadLetter,
    LedgerEntry,
    NothingHeld,
    PublicKey,
    Receipt,
    read,
    read_entry,
    read_receipt,
)
from oubli.client.session import Session


def erasure(session: Session, receipt: Receipt | NothingHeld | str) -> Flow[Receipt]:
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
    """
    name = receipt if isinstance(receipt, str) else receipt.id
    if name is None:
        raise DataError("nothing was held, and the server has made no receipt: there is nothing to ask for")
    return read_receipt((yield from session.ask(reading(f"/erasures/{quote(name, safe='')}"))))


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
    """
    found: list[Receipt] = []
    cursor: str | None = None
    while True:
        request = reading("/erasures", status=status, ref=ref, cursor=cursor, limit=page_size)
        content = object_of((yield from session.ask(request)))
        found += [read_receipt(one) for one in content.get("erasures", [])]
        cursor = content.get("next")
        if cursor is None:
            return found


def dead_letters(session: Session, *, page_size: int | None = None) -> Emits[DeadLetter]:
    """Iterate over the states that webhooks and callbacks could not tell of. Pages are asked for as they are needed.

    Parameters
    ----------
    page_size : int, optional
        Dead letters an answer.
    """
    cursor: str | None = None
    while True:
        content = object_of((yield from session.ask(reading("/webhooks/dead-letters", cursor=cursor, limit=page_size))))
        for letter in content.get("dead_letters", []):
            yield Emit(read(DeadLetter, letter))
        cursor = content.get("next")
        if cursor is None:
            return


def redeliver(session: Session, letter: DeadLetter | Receipt | str) -> Flow[int]:
    """Have all states of a receipt that could not be told tried again; return how many they are.

    Parameters
    ----------
    letter : DeadLetter, Receipt or str
        The dead letter, the receipt, or its id.

    Raises
    ------
    NotFoundError
        When nothing of it was given up.
    """
    name = letter if isinstance(letter, str) else letter.id
    request = posting(f"/webhooks/dead-letters/{quote(name, safe='')}/redeliver")
    return int(object_of((yield from session.ask(request)))["states"])


def wait_erased(
    session: Session, receipt: Receipt | NothingHeld | str, *, timeout: float | None = None
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
            raise WaitTimeoutError("it is not erased in time; the server goes on")
        yield Sleep(pause)
        pause = min(LONGEST_POLL, 1.5 * pause)


def keys(session: Session) -> Flow[list[PublicKey]]:
    """Return the public keys that check receipts, the current one first. Keep them: they are what you trust."""
    content = object_of((yield from session.ask(reading("/keys"))))
    return [read(PublicKey, one) for one in content.get("keys", [])]


def verify_receipt(
    session: Session,
    receipt: Receipt | NothingHeld | Mapping[str, Any],
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
    """
    cursor: str | None = str(after)
    while cursor is not None:
        content = object_of((yield from session.ask(reading("/ledger", cursor=cursor, limit=page_size))))
        for entry in content.get("entries", []):
            yield Emit(read_entry(entry))
        cursor = content.get("next")
