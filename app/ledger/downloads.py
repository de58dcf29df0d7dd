"""Downloaded ledgers: reading them, and checking them and receipts without the server and without private keys.

A file holds one JSON object a line, an entry or a page of `GET /ledger` as it was answered. Only pages have the keyed
hashes of erasures beside the entries; with them the entries are returned. Only the last page has the signed head, which
shows that no entry was cut off.

An altered, dropped, inserted or moved entry is found where it stands or at the next one. Two things do not show in the
chain alone, and need a receipt or a hash that was kept elsewhere: entries cut off at the end, and a chain that was made
again from some entry on.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import orjson

from oubli.app.errors import StartError
from oubli.app.ledger.entries import (
    EMPTY,
    ERASED,
    FIELDS,
    FIRST_FIELDS,
    HASH_BYTES,
    SECOND_FIELDS,
    SIGNING_KEY,
    UNLEARNED,
    CanonicalError,
    ChainError,
    Entry,
    Head,
    Receipt,
    check_entry,
    check_whole,
    keyed_of,
    moment_of,
    original_of,
    root_of,
)
from oubli.app.ledger.keys import is_signed, signing_key_id


def read_lines(path: Path) -> Iterator[Any]:
    """Return what should be entries; see `read_pages`."""
    return chain.from_iterable(entries for entries, _ in read_pages(path))


def read_pages(path: Path) -> Iterator[tuple[Iterable[Any], Any]]:
    """Return what should be entries, and the signed head after them or None, in the order of the file.

    Whether they are is for others to check.

    Raises
    ------
    StartError
        When the file cannot be read, or a line is not JSON.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                content = _parse(path, number, line)
                if isinstance(content, dict) and isinstance(content.get("entries"), list):
                    yield _entries_of(content), content.get("checkpoint")
                else:
                    yield [content], None
    except OSError as error:
        raise StartError(f"{path} cannot be read ({error.strerror}): name a file that this user may read") from None


def _entries_of(page: dict[str, Any]) -> Iterator[Any]:
    keyed = page.get("keyed")
    for entry in page["entries"]:
        beside = keyed.get(str(entry.get("index"))) if isinstance(keyed, dict) and isinstance(entry, dict) else None
        yield entry if beside is None else {**entry, "keyed": beside}


def check_keyed(entry: Entry) -> None:
    """Check what came beside an entry of an erasure: keyed hashes of its names, and the leaves of its roots.

    Raises
    ------
    ChainError
        When it is not there, or not what belongs to the entry.
    """
    original = original_of(entry)
    if original["type"] != UNLEARNED or "targets_root" not in original:
        return
    keyed = keyed_of(entry)
    samples, targets = keyed.get("samples"), keyed.get("target_leaves")
    lists = {"targets_root": targets, "samples_root": keyed.get("sample_leaves", targets)}
    subjects, counts = keyed.get("subjects", []), keyed.get("subject_samples", [])
    is_sound = isinstance(subjects, list) and isinstance(counts, list) and len(subjects) == len(counts)
    is_sound &= isinstance(samples, list) and all(type(one) is str for one in samples)
    if not is_sound or any(_root_in(text) != original[name] for name, text in lists.items()):
        raise ChainError(entry["index"], "came with keyed hashes that do not belong to it")


def _root_in(text: object) -> str | None:
    """Return the root of leaves that are written as one text; None when they are not."""
    try:
        raw = base64.b64decode(text, validate=True) if isinstance(text, str) else b"?"
    except binascii.Error:
        return None
    if len(raw) % HASH_BYTES:
        return None
    return root_of([raw[start : start + HASH_BYTES] for start in range(0, len(raw), HASH_BYTES)])


def read_object(path: Path) -> dict[str, Any]:
    """Return the one JSON object in a file.

    Raises
    ------
    StartError
        When the file cannot be read, or holds something else.
    """
    try:
        content = _parse(path, 1, path.read_bytes())
    except OSError as error:
        raise StartError(f"{path} cannot be read ({error.strerror}): name a file that this user may read") from None
    if not isinstance(content, dict):
        raise StartError(f"{path} is not one JSON object: give the file as the server answered it")
    return content


def _parse(path: Path, number: int, text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise StartError(
            f"{path} is not a downloaded ledger, receipt or list of keys: line {number} is not JSON. "
            "`oubli ledger fetch` downloads a ledger"
        ) from None


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
        Receipts in it, and those of them that are erased.
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
        self.head, self._latest_ms = Head.of(entry), at_ms
        self.first_at = self.first_at or entry["at"]
        self.last_at = entry["at"]
        try:
            original = original_of(entry)
            if original is not entry:
                check_whole(original, entry["index"])
            self._understand(original)
        except (KeyError, TypeError, ValueError):
            raise ChainError(entry["index"], "lacks a field of its type, or has a wrong one") from None

    def state_of(self, receipt: Receipt) -> Receipt:
        """Return a receipt as the ledger has it, in the state that a given one claims; not signed.

        Raises
        ------
        ReceiptError
            When it is not in the ledger.
        """
        index = receipt.ledger_index
        if (index, receipt.ledger_head) not in self._seen:
            if index > self.head.index:
                raise ReceiptError(
                    f"it names entry {index}, but the ledger ends with entry {self.head.index}: entries were removed "
                    "from the end, or the download is older than the receipt"
                )
            raise ReceiptError(f"entry {index} was changed after the receipt was signed")
        begun = self._begun.get(receipt.id)
        if begun is None:
            raise ReceiptError("no entry is about it")
        written = Receipt.begun(begun)
        if receipt.status != "erased":
            return written
        finished = self._finished.get(receipt.id)
        if finished is None:
            raise ReceiptError("no entry says that it is erased")
        return written.erased_by(finished)

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
            Receipt.begun(entry)
            self._begun[entry["receipt"]] = entry
            self.n_erasures += 1
        elif entry["type"] == ERASED:
            for name in entry["receipts"]:
                # One that is not known began in entries that an operator went on without.
                if name in self._begun and name not in self._finished:
                    Receipt.begun(self._begun[name]).erased_by(entry)
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
        raise ReceiptError("its key is unknown")
    try:
        form = receipt.signed_form()
    except CanonicalError:
        raise ReceiptError("it has content that no receipt has") from None
    if not is_signed(public, receipt.signature, form):
        raise ReceiptError("its signature does not match its content: the receipt was changed")
    written = ledger.state_of(receipt)
    # A receipt that waits too long is answered as overdue; its entry was written before. And where a key was retired
    # before the ledger's file was made, the next one has signed.
    overdue = receipt.overdue if receipt.status == "unlearned" else written.overdue
    expected = written._replace(overdue=overdue, key_id=receipt.key_id, signature=receipt.signature)
    wrong = [name for name in FIELDS if getattr(receipt, name) != getattr(expected, name)]
    if wrong:
        raise ReceiptError(f"the ledger has another '{wrong[0]}'")
    return receipt


def read_public_keys(content: Mapping[str, Any]) -> dict[str, bytes] | None:
    """Return the keys of an answer of `GET /ledger/keys`, by id; None when it is none."""
    try:
        return {key["key_id"]: base64.b64decode(key["public_key"], validate=True) for key in content["keys"]}
    except (KeyError, TypeError, binascii.Error):
        return None


def _read(content: Mapping[str, Any]) -> Receipt:
    if set(content) - {_BESIDE} not in (set(FIELDS), set(SECOND_FIELDS), set(FIRST_FIELDS)):
        raise ReceiptError("it does not have the fields of a receipt")
    receipt = Receipt.from_content(content)
    if not all(type(text) is str for text in (receipt.id, receipt.key_id, receipt.signature, receipt.ledger_head)):
        raise ReceiptError("it does not have the fields of a receipt")
    if type(receipt.ledger_index) is not int:
        raise ReceiptError("it does not have the fields of a receipt")
    return receipt
