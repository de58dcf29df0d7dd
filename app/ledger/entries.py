"""The entries of the ledger and the chain that their hashes make.

    entry 1                entry 2                entry 3
    index     1            index     2            index     3
    previous  000...   +-- previous  ab1...   +-- previous  7f0...
    type, at, ...      |   type, at, ...      |   type, at, ...
    hash      ab1... --+   hash      7f0... --+   hash      c52...

`hash` is the SHA-256, in hexadecimal, of the RFC 8785 form of everything else in the entry: JSON in one form, so that
a hash or a signature can be checked by anybody, in any language. Only what the ledger and its receipts hold is taken:
texts, whole numbers that every reader represents exactly, true, false, null, lists, and objects. Fractions are refused;
how they are written is where implementations differ. Types of entries:

    signing-key   a key that signs receipts from here on, with its public half
    unlearned     one erasure: its receipt, the counts, and roots over the hidden names of the samples and of what was
                  named (see `openings`); earlier versions wrote keyed hashes of the names
    erased        the receipts whose samples are in no file any more
    restricted    subjects whose samples are kept and not learned from, as keyed hashes, and the counts
    released      the same of subjects whose samples are learned from again
    retained      the same of subjects whose samples are kept for some time only, and for how long
    carried-over  an entry of another chain, whole, after an operator went on without the entries before it
    accepted-missing-key    a key that an operator went on without
    log-begun     a log over all entries, in a data directory of an earlier version; see `log`
    state         what the model was at a version: the root of its samples, what it is made by; see `states`
    others        events, such as `restore` or `export`, with numbers and words of this program

Beside an entry of the type `unlearned`, and not hashed with it, are the keyed hashes by which a restore finds its names
again, and the leaves of its roots: `keyed`. In memory, in notes and in downloads they go with the entry. Beside one of
the type `state` is its `opening`, which goes with it in memory and in notes only.

A receipt says what became of one erasure. Each state of it is signed over the RFC 8785 form of everything in it but the
signature, `overdue` included. So a signature fits exactly what was answered, whenever that was: a receipt that becomes
overdue while it waits is another state, and is signed anew when it is read. `receipt_of` makes a receipt from the
ledger's entry; the two cannot differ.

Notes are what a journal record says to the ledger, whose database can be made from them again:

    {"entries": [...],                        new entries of the chain, whole
     "signatures": {"<index>": "..."},        of the receipts that entries of the type `unlearned` are about
     "idempotency": {...},                    how a request was answered that may come again
     "push": ["webhook"],                     who is to be told of the states in these entries
     "deliveries": {...},                     what became of states that somebody was to be told of
     "request": {...}}                        a request of OpenDSR

They hold keyed hashes, counts and references; no id, no subject, no value.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

from oubli.app.times import TimeError, parse_time

if TYPE_CHECKING:
    from oubli.app.ledger.key_files import HashingKey, SigningKey
    from oubli.app.ledger.keys import LedgerKeys

LARGEST_INTEGER = 2**53 - 1
_DEEPEST = 32
_HASH_DIGITS = 32
_TEXTS = frozenset({str})
FIRST_PREVIOUS = "0" * 64
SIGNING_KEY = "signing-key"
UNLEARNED = "unlearned"
ERASED = "erased"
RESTRICTED = "restricted"
RELEASED = "released"
RETAINED = "retained"
CARRIED_OVER = "carried-over"
ACCEPTED = "accepted-missing-erasures"
ACCEPTED_KEY = "accepted-missing-key"
LOG_BEGUN = "log-begun"
STATE = "state"
EXPORT = "export"  # a snapshot was handed out
RESTORE = "restore"  # another model has taken the place of the live one
REGROWN = "trees-grown-anew"
NODE_REMOVED = "node-removed"  # receipts say nothing of its disk any more
_BESIDE = frozenset({"hash", "keyed", "opening"})
EVENT_TYPE = re.compile(r"[a-z][a-z0-9-]{0,63}")

Entry = dict[str, Any]
By = Literal["ids", "subjects"]
ReceiptKind = Literal["deletion", "rectification", "expiry", "restore"]
Status = Literal["unlearned", "erased"]
StatusFilter = Literal["unlearned", "erased", "overdue"]
"""What lists of receipts can be asked for; `overdue` ones are not erased and should be."""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest entry of a ledger; index 0 when it has none."""

    index: int
    hash: str


EMPTY = Head(0, FIRST_PREVIOUS)


class ChainError(Exception):
    """An entry is not what was written, or not in its place.

    Parameters
    ----------
    index
        Which entry.
    rule
        What does not hold; without anything out of the entry.
    """

    def __init__(self, index: int, rule: str) -> None:
        super().__init__(f"entry {index} {rule}")
        self.index = index
        self.rule = rule


def make_entry(head: Head, kind: str, at: str, fields: Mapping[str, Any]) -> Entry:
    """Return the entry that follows the head.

    Parameters
    ----------
    head
        Of the chain so far.
    kind
        Its type.
    at
        When, in RFC 3339.
    fields
        What it says.
    """
    entry: Entry = {"index": head.index + 1, "previous": head.hash, "type": kind, "at": at, **fields}
    entry["hash"] = hashlib.sha256(canonical(entry)).hexdigest()
    return entry


def head_of(entry: Mapping[str, Any]) -> Head:
    """Return the head of a chain that ends with an entry."""
    return Head(entry["index"], entry["hash"])


def body_of(entry: Mapping[str, Any]) -> bytes:
    """Return what an entry's hash is made of.

    Raises
    ------
    CanonicalError
        When the entry holds what no entry may.
    """
    return canonical({name: value for name, value in entry.items() if name not in _BESIDE})


def check_entry(entry: Any, head: Head) -> bytes:
    """Check that an entry is whole and follows the head; return what its hash is made of.

    Raises
    ------
    ChainError
        When it is not.
    """
    index = head.index + 1
    body = check_whole(entry, index)
    if entry["index"] != index:
        raise ChainError(index, "is missing, or is not in its place")
    if entry["previous"] != head.hash:
        raise ChainError(index, "does not follow the one before: that one is another, or was changed")
    return body


def check_whole(entry: Any, index: int) -> bytes:
    """Check that an entry is one, and has its own hash; return what the hash is made of.

    Raises
    ------
    ChainError
        With the index given when it is not.
    """
    if not isinstance(entry, dict) or not {"index", "previous", "type", "at", "hash"}.issubset(entry):
        raise ChainError(index, "is no entry")
    texts = (entry["previous"], entry["type"], entry["at"], entry["hash"])
    if type(entry["index"]) is not int or not all(type(text) is str for text in texts):
        raise ChainError(index, "is no entry")
    try:
        body = body_of(entry)
    except CanonicalError:
        raise ChainError(index, "holds what no entry may hold") from None
    if hashlib.sha256(body).hexdigest() != entry["hash"]:
        raise ChainError(index, "was changed: its hash is not that of its content")
    return body


def moment_of(entry: Mapping[str, Any]) -> int:
    """Return when an entry was made, in milliseconds since 1970.

    Raises
    ------
    ChainError
        When it does not say so.
    """
    try:
        return parse_time(entry["at"])
    except TimeError:
        raise ChainError(entry["index"], "has no time") from None


def keyed_of(entry: Entry) -> Mapping[str, Any]:
    """Return the keyed hashes of an erasure's names: of its `samples`, and one of its `targets`.

    Raises
    ------
    ChainError
        When they are not there.
    """
    original = original_of(entry)
    found: Any = original if "targets_root" not in original else entry.get("keyed")
    if not isinstance(found, dict) or not isinstance(found.get("targets"), str):
        raise ChainError(entry["index"], "came without the keyed hashes that belong to it")
    return found


def original_of(entry: Entry) -> Entry:
    """Return the entry that was carried over, or the entry itself."""
    if entry["type"] != CARRIED_OVER:
        return entry
    original: Entry = entry["entry"]
    return original


# --- the one form of JSON


class CanonicalError(ValueError):
    """Something that has no canonical form here; the text names the rule and repeats nothing."""


def canonical(content: Any) -> bytes:
    """Return the RFC 8785 form.

    Raises
    ------
    CanonicalError
        When the content holds anything else than texts, integers below 2**53, booleans, null, lists and dicts.
    """
    try:
        # Where all keys are ASCII, the encoder's order is that of UTF-16 code units.
        if _is_flat(content) or _has_plain_keys(content, _DEEPEST):
            return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return orjson.dumps(_in_order(content))
    except TypeError:  # the encoder's own: half of a surrogate pair
        raise CanonicalError("a text is not valid Unicode") from None


def _is_flat(content: Any) -> bool:
    """Whether a value is seen at once to be an object of the usual kind: ASCII keys, single values, lists of texts."""
    if type(content) is not dict or not _TEXTS.issuperset(map(type, content)) or not "".join(content).isascii():
        return False
    for value in content.values():
        kind = type(value)
        if kind is int:
            if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
                return False
        elif kind is list:
            if not _TEXTS.issuperset(map(type, value)):
                return False
        elif kind is not str and kind is not bool and value is not None:
            return False
    return True


def _has_plain_keys(value: Any, depth: int) -> bool:
    """Check the types of everything in a value; return whether all keys of objects are ASCII."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise CanonicalError("an integer is larger than 2**53 - 1")
        return True
    if depth == 0:
        raise CanonicalError(f"lists and objects are nested deeper than {_DEEPEST} levels")
    is_plain = True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise CanonicalError("a key of an object is not a text")
            is_plain = _has_plain_keys(item, depth - 1) and key.isascii() and is_plain
        return is_plain
    if kind is list:
        for item in value:
            is_plain = _has_plain_keys(item, depth - 1) and is_plain
        return is_plain
    raise CanonicalError("only texts, integers, booleans, null, lists and objects can be signed")


def _in_order(value: Any) -> Any:
    """Return a copy whose objects have their keys in the order of UTF-16 code units."""
    if type(value) is dict:
        return {
            key: _in_order(value[key])
            for key in sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        }
    if type(value) is list:
        return [_in_order(item) for item in value]
    return value


# --- keys


def keyed_hash(key: HashingKey, content: bytes) -> str:
    """Return the first half of the HMAC-SHA256 in hexadecimal."""
    code = key.keyed.copy()
    code.update(content)
    return code.hexdigest()[:_HASH_DIGITS]


def sign(key: SigningKey, content: bytes) -> str:
    """Return the signature in base64; the same content always has the same. `ValueError` when the key was retired."""
    if key.private is None:
        raise ValueError("a retired key signs nothing")
    return base64.b64encode(key.private.sign(content)).decode("ascii")


# --- receipts


class Receipt(NamedTuple):
    """What became of one erasure. Times are RFC 3339 in UTC with milliseconds.

    Attributes
    ----------
    id
        A random UUID.
    ref
        The caller's case number, a UUID.
    kind
        What was asked for.
    status
        How far it is.
    guarantee
        Of the model that unlearned.
    by
        What was named, `ids` or `subjects`; None in receipts of earlier versions, as are `held` and `deadline`.
    held
        Whether anything was held of what was named.
    requested, absent
        How many ids or subjects were named, and of how many of them nothing was held.
    unlearned
        How many samples were unlearned.
    exported_snapshots
        Snapshots that were handed out while one of the samples was held.
    model_version
        After the erasure.
    received_at, unlearned_at, erased_at
        When.
    deadline
        Until when it has to be erased.
    overdue
        Whether it was erased too late, or is not erased although it should be.
    key_id
        Of the key that signed.
    ledger_index, ledger_head
        Index and hash of the entry of this state.
    signature
        Ed25519, in base64.
    """

    id: str
    ref: str | None
    kind: ReceiptKind
    status: Status
    guarantee: str
    by: By | None
    held: bool | None
    requested: int
    unlearned: int
    absent: int
    exported_snapshots: int
    model_version: int
    received_at: str
    unlearned_at: str
    deadline: str | None
    erased_at: str | None
    overdue: bool
    key_id: str
    ledger_index: int
    ledger_head: str
    signature: str

    def content(self) -> dict[str, Any]:
        """Return it as an object, in the order in which it is answered."""
        content = dict(zip(FIELDS, self, strict=True))
        return content if self.by is not None else {name: content[name] for name in FIRST_FIELDS}

    def signed_form(self) -> bytes:
        """Return what is signed."""
        content = self.content()
        del content["signature"]
        return canonical(content)

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Receipt:
        """Return the receipt with this content.

        Raises
        ------
        KeyError
            When a field is missing.
        """
        cells: dict[str, Any] = {name: content[name] for name in FIRST_FIELDS}
        cells |= {name: content.get(name) for name in _LATER_FIELDS}
        return cls(**cells)


FIELDS = Receipt._fields
_LATER_FIELDS = ("by", "held", "deadline")
FIRST_FIELDS = tuple(name for name in FIELDS if name not in _LATER_FIELDS)
"""What receipts of earlier versions hold, and nothing else: a signature fits exactly what was answered."""


def receipt_of(entry: Entry, signature: str = "") -> Receipt:
    """Return the receipt, in its first state, that an entry of the type `unlearned` is about."""
    return Receipt(
        entry["receipt"],
        entry["ref"],
        entry["kind"],
        "unlearned",
        entry["guarantee"],
        entry.get("by"),
        entry.get("held"),
        entry["requested"],
        entry["unlearned"],
        entry["absent"],
        entry["exported_snapshots"],
        entry["model_version"],
        entry["received_at"],
        entry["unlearned_at"],
        entry.get("deadline"),
        None,
        False,
        entry["key_id"],
        entry["index"],
        entry["hash"],
        signature,
    )


def erased_state(receipt: Receipt, entry: Entry) -> Receipt:
    """Return a receipt, not signed, as an entry of the type `erased` leaves it."""
    return receipt._replace(
        status="erased",
        erased_at=entry["erased_at"],
        overdue=_was_overdue(receipt, entry),
        key_id=entry["key_id"],
        ledger_index=entry["index"],
        ledger_head=entry["hash"],
        signature="",
    )


def state_now(receipt: Receipt, is_overdue: Callable[[str], bool], keys: LedgerKeys) -> Receipt:
    """Return a stored receipt as it is to be answered now: one that waits too long is overdue, and signed as such."""
    if receipt.status == "erased" or not is_overdue(receipt.id):
        return receipt
    return signed(receipt._replace(overdue=True), keys)


def _was_overdue(receipt: Receipt, entry: Entry) -> bool:
    """Whether an erasure was finished too late, as the entry says that finished it.

    Times cannot tell: they are of a clock that may have been set in between. Entries of earlier versions have nothing
    else.
    """
    if "overdue" in entry:
        return receipt.id in entry["overdue"]
    return parse_time(entry["erased_at"]) > parse_time(receipt.unlearned_at) + int(entry["deadline_ms"])


def signed(receipt: Receipt, keys: LedgerKeys) -> Receipt:
    """Return a receipt with its signature, by the key that it names.

    A key that was retired signs nothing any more: then the current one does, and the receipt names that.
    """
    key = keys.signer(receipt.key_id)
    if key.id != receipt.key_id:
        receipt = receipt._replace(key_id=key.id)
    return receipt._replace(signature=sign(key, receipt.signed_form()))


# --- notes


@dataclass(frozen=True, slots=True)
class IdempotencyRecord:
    """How a request was answered that may come again.

    Attributes
    ----------
    key, body
        Keyed hashes of the caller's key with the route, and of the body.
    expires_ms
        When it is forgotten.
    model_version, n_samples, n_new
        Of the answer.
    first_id
        The first id that was generated, hidden by what only the caller knows; None when none was. Of a restriction or
        a release: the index of its entry, hidden likewise.
    receipt
        Id of the receipt, of a deletion.
    """

    key: str
    body: str
    expires_ms: int
    model_version: int
    n_samples: int
    n_new: int
    first_id: int | None
    receipt: str | None


@dataclass(frozen=True, slots=True)
class DeliveryNotes:
    """What became of states that somebody was to be told of; see `deliveries`.

    Attributes
    ----------
    at_ms
        When it was noted, in milliseconds since 1970.
    push
        Who is to be told that erasures are overdue.
    overdue
        Their receipts.
    settled
        Target, subject and state of each delivery that arrived.
    dead
        Target and subject of those that are given up, and why.
    revived
        Subjects of those that are tried again.
    ended
        Requests that ask for a bundle, and `completed` or `cancelled`.
    """

    at_ms: int
    push: Sequence[str] = ()
    overdue: Sequence[str] = ()
    settled: Sequence[tuple[str, str, str]] = ()
    dead: Sequence[tuple[str, str, str]] = ()
    revived: Sequence[str] = ()
    ended: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class SubjectRequest:
    """A request of OpenDSR, without what identifies the person.

    Attributes
    ----------
    id
        That the controller gave it, a UUID.
    kind
        `erasure`, `access` or `portability`.
    regulation
        `gdpr` or `ccpa`.
    body
        Keyed hash of the body, by which it is known when it comes again.
    received_ms
        When it came, in milliseconds since 1970.
    callbacks
        URLs, all of them from the settings, that are told of its states.
    receipt
        Of the erasure; None for other requests.
    state
        Of other requests: `open`, `completed` or `cancelled`.
    """

    id: str
    kind: str
    regulation: str
    body: str
    received_ms: int
    callbacks: Sequence[str] = ()
    receipt: str | None = None
    state: str = "open"


@dataclass(frozen=True, slots=True)
class ReadNotes:
    """Notes as objects."""

    entries: list[Entry]
    signatures: dict[str, str]
    idempotency: IdempotencyRecord | None
    push: list[str]
    deliveries: DeliveryNotes | None
    request: SubjectRequest | None


def entry_notes(
    entries: Sequence[Entry], signatures: Mapping[str, str] | None = None, push: Sequence[str] = ()
) -> bytes:
    """Return the notes of new entries, with the signatures of their receipts by index, and who is told of them."""
    notes: dict[str, Any] = {"entries": entries}
    if signatures is not None:
        notes["signatures"] = signatures
    if push:
        notes["push"] = push
    return orjson.dumps(notes)


def with_idempotency(notes: bytes, record: IdempotencyRecord) -> bytes:
    """Return notes, or none, with the record of a request that may come again."""
    content = orjson.loads(notes) if notes else {}
    return orjson.dumps({**content, "idempotency": record})


def with_request(notes: bytes, request: SubjectRequest) -> bytes:
    """Return notes, or none, with a request of OpenDSR."""
    content = orjson.loads(notes) if notes else {}
    return orjson.dumps({**content, "request": request})


def delivery_notes(notes: DeliveryNotes) -> bytes:
    """Return notes of what became of deliveries."""
    return orjson.dumps({"deliveries": {name: value for name, value in asdict(notes).items() if value}})


def read_notes(notes: bytes) -> ReadNotes:
    """Return notes as objects."""
    content = orjson.loads(notes)
    record, deliveries, request = content.get("idempotency"), content.get("deliveries"), content.get("request")
    return ReadNotes(
        content.get("entries", []),
        content.get("signatures", {}),
        None if record is None else IdempotencyRecord(**record),
        content.get("push", []),
        None if deliveries is None else DeliveryNotes(**deliveries),
        None if request is None else SubjectRequest(**request),
    )


def tells_state_only(notes: bytes) -> bool:
    """Whether notes hold the entry of a state of the model, and nothing else."""
    content = orjson.loads(notes) if notes else {}
    return content.keys() == {"entries"} and [entry["type"] for entry in content["entries"]] == [STATE]
