"""Checks a downloaded ledger, and a receipt against it, without the server and without its keys' private halves.

An altered, dropped, inserted or moved entry shows where it stands or at the next one. Two things do not show in the
chain alone, and a receipt or a hash that was kept elsewhere is needed for them: entries cut off at the end, and a chain
that was made anew from some entry on.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oubli.app.ledger.entries import (
    EMPTY,
    ERASED,
    FIELDS,
    FIRST_FIELDS,
    SIGNING_KEY,
    UNLEARNED,
    CanonicalError,
    ChainError,
    Entry,
    Head,
    Receipt,
    check_entry,
    check_whole,
    erased_state,
    head_of,
    moment_of,
    original_of,
    receipt_of,
)
from oubli.app.ledger.key_files import is_signed, signing_key_id

# What an answer says besides the receipt.
_BESIDE = "durable"


class ReceiptError(Exception):
    """A receipt is not what the ledger and its key say; the text names the rule."""


@dataclass(slots=True)
class CheckedLedger:
    """A ledger whose chain is whole.

    Attributes
    ----------
    head
        Its newest entry.
    first_at, last_at
        Times of its first and newest entries; None when it has none.
    n_erasures, n_erased
        Receipts it tells of, and those of them that are erased.
    keys
        Public halves of the signing keys that it tells, by id.
    """

    head: Head = EMPTY
    first_at: str | None = None
    last_at: str | None = None
    n_erasures: int = 0
    n_erased: int = 0
    keys: dict[str, bytes] = field(default_factory=dict)
    _latest_ms: int = 0
    _seen: set[tuple[int, str]] = field(default_factory=set)
    _begun: dict[str, Entry] = field(default_factory=dict)
    _finished: dict[str, Entry] = field(default_factory=dict)

    def take(self, entry: Any) -> None:
        """Take in the next entry.

        Raises
        ------
        ChainError
            When it is not whole, or not the next.
        """
        check_entry(entry, self.head)
        at_ms = moment_of(entry)
        if at_ms < self._latest_ms:
            raise ChainError(entry["index"], "is older than the one before")
        self.head, self._latest_ms = head_of(entry), at_ms
        self.first_at = self.first_at or entry["at"]
        self.last_at = entry["at"]
        try:
            original = original_of(entry)
            if original is not entry:
                check_whole(original, entry["index"])
            self._understand(original)
        except (KeyError, TypeError, ValueError):
            raise ChainError(entry["index"], "does not say what an entry of its type says") from None

    def state_of(self, receipt: Receipt) -> Receipt:
        """Return a receipt as the ledger has it, in the state that a given one claims; not signed.

        Raises
        ------
        ReceiptError
            When the ledger does not tell of it.
        """
        index = receipt.ledger_index
        if (index, receipt.ledger_head) not in self._seen:
            if index > self.head.index:
                raise ReceiptError(
                    f"it names entry {index}, and the ledger ends with entry {self.head.index}: entries were cut off, "
                    "or the download is older than the receipt"
                )
            raise ReceiptError(f"entry {index} is another than when it was signed")
        begun = self._begun.get(receipt.id)
        if begun is None:
            raise ReceiptError("no entry tells of it")
        written = receipt_of(begun)
        if receipt.status != "erased":
            return written
        finished = self._finished.get(receipt.id)
        if finished is None:
            raise ReceiptError("no entry says that it is erased")
        return erased_state(written, finished)

    def _understand(self, entry: Entry) -> None:
        self._seen.add((entry["index"], entry["hash"]))
        if entry["type"] == SIGNING_KEY:
            public = base64.b64decode(entry["public_key"], validate=True)
            if signing_key_id(public) != entry["key_id"]:
                raise ValueError
            self.keys[entry["key_id"]] = public
        elif entry["type"] == UNLEARNED:
            if entry["receipt"] in self._begun:
                raise ValueError
            receipt_of(entry)
            self._begun[entry["receipt"]] = entry
            self.n_erasures += 1
        elif entry["type"] == ERASED:
            for name in entry["receipts"]:
                # One that is not known began in entries that an operator went on without.
                if name in self._begun and name not in self._finished:
                    erased_state(receipt_of(self._begun[name]), entry)
                    self._finished[name] = entry
                    self.n_erased += 1


def check_ledger(entries: Iterable[Any]) -> CheckedLedger:
    """Check a ledger from its first entry on.

    Raises
    ------
    ChainError
        With the index of the first entry that is wrong.
    """
    ledger = CheckedLedger()
    for entry in entries:
        ledger.take(entry)
    return ledger


def check_receipt(
    content: Mapping[str, Any], ledger: CheckedLedger, keys: Mapping[str, bytes] | None = None
) -> Receipt:
    """Check a receipt against a ledger and the key that has signed it.

    Parameters
    ----------
    content
        As the server has answered it.
    ledger
        See `check_ledger`.
    keys
        Public keys that are trusted, by id; None takes those that the ledger tells.

    Raises
    ------
    ReceiptError
        When something does not agree.
    """
    receipt = _read(content)
    public = (ledger.keys if keys is None else keys).get(receipt.key_id)
    if public is None:
        raise ReceiptError("the key that it names is not known")
    try:
        form = receipt.signed_form()
    except CanonicalError:
        raise ReceiptError("it holds what no receipt holds") from None
    if not is_signed(public, receipt.signature, form):
        raise ReceiptError("its signature is not that of its content: something in it was changed")
    written = ledger.state_of(receipt)
    # Whoever reads a receipt that waits too long is told so; the entry was written before. And where a key was retired
    # before the ledger's file was made, the next one has signed.
    overdue = receipt.overdue if receipt.status == "unlearned" else written.overdue
    expected = written._replace(overdue=overdue, key_id=receipt.key_id, signature=receipt.signature)
    wrong = [name for name in FIELDS if getattr(receipt, name) != getattr(expected, name)]
    if wrong:
        raise ReceiptError(f"the ledger has another '{wrong[0]}'")
    return receipt


def read_public_keys(content: Mapping[str, Any]) -> dict[str, bytes] | None:
    """Return the keys of an answer of `GET /keys`, by id; None when it is none."""
    try:
        return {key["key_id"]: base64.b64decode(key["public_key"], validate=True) for key in content["keys"]}
    except (KeyError, TypeError, binascii.Error):
        return None


def _read(content: Mapping[str, Any]) -> Receipt:
    if set(content) - {_BESIDE} not in (set(FIELDS), set(FIRST_FIELDS)):
        raise ReceiptError("it does not have the fields of a receipt")
    receipt = Receipt.from_content(content)
    if not all(type(text) is str for text in (receipt.id, receipt.key_id, receipt.signature, receipt.ledger_head)):
        raise ReceiptError("it does not have the fields of a receipt")
    if type(receipt.ledger_index) is not int:
        raise ReceiptError("it does not have the fields of a receipt")
    return receipt
