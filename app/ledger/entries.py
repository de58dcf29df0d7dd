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
overdue while it waits is another state, and is signed again when it is read. `Receipt.begun` makes a receipt from the
ledger's entry; the two cannot differ.

Notes are what a journal record says to the ledger, whose database can be made from them again:

    {"entries": [...],                        new entries of the chain, whole
     "signatures": {"<index>": "..."},        of the receipts that entries of the type `unlearned` are about
     "idempotency": {...},                    how a request was answered that may come again
     "push": ["webhook"],                     who is to be told of the states in these entries
     "deliveries": {...},                     what became of deliveries of states
     "request": {...},                        a request of OpenDSR
     "erased": [...]}                         marks of the names that erasures were about; see `Ledger.marks`

They hold keyed hashes, counts and references; no id, no subject, no value.

Names of an erasure as its entry tells them: the root of a small tree over hidden leaves.

    opening of an erasure   HMAC(hashing key, "opening" | receipt)     made again as long as the key exists
    opening of a name       HMAC(opening of the erasure, by | name)    handed to the person
    leaf                    SHA-256(0x00 | opening of the name | by | name)
    root                    of all leaves in order, as RFC 6962 defines it

The opening of one name finds its leaf, and no other. Without one no guess can be tested.

States of the model as the ledger tells them: what it was at a version, for an audit.

    entry        version, root over the samples held, what the model is made by, SHA-256(salt | digest)
    beside it    salt and digest, until the next erasure is finished; the schema, of which the entry has the hash

A digest is a function of all samples: with the others, guesses about one that was erased since can be tested. So no
entry holds it, and the salt is erased with the first erasure that is finished after the state. Whether the state was
told before or after is seen by its version: versions never go back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import orjson

from oubli.app.ledger.keys import HashingKey, LedgerKeys, SigningKey
from oubli.app.times import TimeError, parse_time

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256().digest()
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
BEGIN = "begin"  # a model is there that was not before
EXPORT = "export"  # a snapshot was handed out
RESTORE = "restore"  # another model has taken the place of the live one
REGROWN = "trees-grown-anew"
NODE_REMOVED = "node-removed"  # receipts say nothing of its disk any more
_BESIDE = frozenset({"hash", "keyed", "opening"})
# Of entries with a form of their own; events have other types.
RESERVED_TYPES = frozenset({SIGNING_KEY, UNLEARNED, ERASED, RESTRICTED, RELEASED, RETAINED, CARRIED_OVER, STATE})
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

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Head:
        """Return the head of a chain that ends with an entry."""
        return cls(entry["index"], entry["hash"])


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


def body_of(entry: Mapping[str, Any]) -> bytes:
    """Return the bytes that an entry's hash is of.

    Raises
    ------
    CanonicalError
        When the entry holds what no entry may.
    """
    return canonical({name: value for name, value in entry.items() if name not in _BESIDE})


def check_entry(entry: Any, head: Head) -> bytes:
    """Check that an entry is whole and follows the head; return the bytes that its hash is of.

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
        raise ChainError(index, "does not follow the entry before it: one of the two was changed")
    return body


def check_whole(entry: Any, index: int) -> bytes:
    """Check that an entry is one, and has its own hash; return the bytes that the hash is of.

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
        raise ChainError(index, "has content that no entry may have") from None
    if hashlib.sha256(body).hexdigest() != entry["hash"]:
        raise ChainError(index, "was changed: its hash does not match its content")
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
        if _is_flat(content):
            return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
        return orjson.dumps(_in_order(content, _DEEPEST))
    except TypeError:  # the encoder's own: half of a surrogate pair
        raise CanonicalError("a text is not valid Unicode") from None


def _is_flat(content: Any) -> bool:
    """Whether a value is seen at once to be an object of the usual kind: ASCII keys, single values, lists of texts.

    The encoder sorts keys by their bytes, which is the order of UTF-16 code units where all keys are ASCII.
    """
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


def _in_order(value: Any, depth: int) -> Any:
    """Check the types in a value; return a copy whose objects have their keys in the order of UTF-16 code units."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        if not -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            raise CanonicalError("an integer is larger than 2**53 - 1")
        return value
    if depth == 0:
        raise CanonicalError(f"lists and objects are nested deeper than {_DEEPEST} levels")
    if kind is list:
        return [_in_order(item, depth - 1) for item in value]
    if kind is not dict:
        raise CanonicalError("only texts, integers, booleans, null, lists and objects can be signed")
    if not _TEXTS.issuperset(map(type, value)):
        raise CanonicalError("a key of an object is not a text")
    keys = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return {key: _in_order(value[key], depth - 1) for key in keys}


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
    disclosure, disclosure_limits
        Its mode of disclosure, and what that does not hide; None in receipts of earlier versions.
    by
        What was named, `ids` or `subjects`; None in receipts of still earlier versions, as are `held` and `deadline`.
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
    disclosure: str | None
    disclosure_limits: str | None
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
        if self.disclosure is not None:
            return content
        return {name: content[name] for name in (FIRST_FIELDS if self.by is None else SECOND_FIELDS)}

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
        if not content.keys() >= _REQUIRED:
            raise KeyError
        return cls._make(map(content.get, FIELDS))

    @classmethod
    def begun(cls, entry: Entry, signature: str = "") -> Receipt:
        """Return the receipt, in its first state, that an entry of the type `unlearned` is about."""
        return cls(
            entry["receipt"],
            entry["ref"],
            entry["kind"],
            "unlearned",
            entry["guarantee"],
            entry.get("disclosure"),
            entry.get("disclosure_limits"),
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

    def erased_by(self, entry: Entry) -> Receipt:
        """Return the receipt, not signed, as an entry of the type `erased` leaves it."""
        return self._replace(
            status="erased",
            erased_at=entry["erased_at"],
            overdue=self._was_overdue(entry),
            key_id=entry["key_id"],
            ledger_index=entry["index"],
            ledger_head=entry["hash"],
            signature="",
        )

    def now(self, is_overdue: Callable[[str], bool], keys: LedgerKeys) -> Receipt:
        """Return a stored receipt as it is to be answered: one that waits too long is overdue, and signed as such."""
        if self.status == "erased" or not is_overdue(self.id):
            return self
        return self._replace(overdue=True).signed(keys)

    def signed(self, keys: LedgerKeys) -> Receipt:
        """Return the receipt with its signature, by the key that it names.

        A key that was retired signs nothing any more: then the current one does, and the receipt names that.
        """
        key = keys.signer(self.key_id)
        receipt = self if key.id == self.key_id else self._replace(key_id=key.id)
        return receipt._replace(signature=sign(key, receipt.signed_form()))

    def _was_overdue(self, entry: Entry) -> bool:
        """Whether the erasure was finished too late, as the entry says that finished it.

        Times do not show it: they are of a clock that may have been set in between. Entries of earlier versions have
        nothing else.
        """
        if "overdue" in entry:
            return self.id in entry["overdue"]
        return parse_time(entry["erased_at"]) > parse_time(self.unlearned_at) + int(entry["deadline_ms"])


FIELDS = Receipt._fields
SECOND_FIELDS = tuple(name for name in FIELDS if name not in ("disclosure", "disclosure_limits"))
FIRST_FIELDS = tuple(name for name in SECOND_FIELDS if name not in ("by", "held", "deadline"))
"""What receipts of earlier versions hold, and nothing else: a signature fits exactly what was answered."""
_REQUIRED = frozenset(FIRST_FIELDS)
DISCLOSURE_LIMITS = {
    "standard": "Anyone who asks the model before and after this erasure may find out whom it was about: see "
    "docs/explanation/disclosure.md.",
    "low": "Answers for the erased rows do not show whom this erasure was about, but answers for rows near them, means "
    "of these over versions, classes that disappear, explanations and trees may: see docs/explanation/disclosure.md.",
}
"""What each mode of disclosure does not hide. Entries hold the text: it may change without breaking a signature."""


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
    names
        Short keyed hashes of the ids and subjects in the body; see `Ledger.marks`.
    """

    key: str
    body: str
    expires_ms: int
    model_version: int
    n_samples: int
    n_new: int
    first_id: int | None
    receipt: str | None
    names: Sequence[str] = ()

    def spent(self) -> IdempotencyRecord:
        """Return the record without anything of body and answer: no request with the key is answered any more."""
        return IdempotencyRecord(self.key, self.key, self.expires_ms, 0, 0, 0, None, None)

    @property
    def is_spent(self) -> bool:
        """Whether something that the body held was erased since."""
        return self.body == self.key


@dataclass(frozen=True, slots=True)
class DeliveryNotes:
    """What became of deliveries; see `deliveries`.

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
        URLs from the settings to which its states are delivered.
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
    erased: list[str]


def entry_notes(
    entries: Sequence[Entry],
    signatures: Mapping[str, str] | None = None,
    push: Sequence[str] = (),
    erased: Sequence[str] = (),
) -> bytes:
    """Return the notes of new entries: signatures of their receipts by index, whom to tell, what was erased."""
    notes: dict[str, Any] = {"entries": entries}
    if signatures is not None:
        notes["signatures"] = signatures
    if push:
        notes["push"] = push
    if erased:
        notes["erased"] = erased
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
        content.get("erased", []),
    )


def tells_only(notes: bytes, kinds: Collection[str]) -> bool:
    """Whether notes hold entries of some types, and nothing else."""
    content = orjson.loads(notes) if notes else {}
    return content.keys() == {"entries"} and all(entry["type"] in kinds for entry in content["entries"])


# --- names and hashes


def hash_leaf(content: bytes) -> bytes:
    """Return the hash of a leaf of a tree (RFC 6962)."""
    return hashlib.sha256(b"\x00" + content).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node with two children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def opening_of(key: HashingKey, receipt_id: str) -> bytes:
    """Return the opening of an erasure."""
    code = key.keyed.copy()
    code.update(b"opening\0" + receipt_id.encode("ascii"))
    return code.digest()


def leaves_of(opening: bytes, by: By, names: Iterable[str]) -> list[bytes]:
    """Return the leaves of some names, in order."""
    start = by.encode("ascii") + b"\0"
    hidden = (start + text.encode("utf-8") for text in names)
    leaves = [hash_leaf(hmac.new(opening, name, "sha256").digest() + name) for name in hidden]
    return sorted(set(leaves)) if len(leaves) > 1 else leaves


def root_of(leaves: list[bytes]) -> str:
    """Return the root of a tree, in hexadecimal."""
    if not leaves:
        return EMPTY_ROOT.hex()
    level = leaves
    while len(level) > 1:
        # The last one of an odd number goes up as it is: the same tree as that of RFC 6962.
        pairs = [hash_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = [*pairs, *level[2 * len(pairs) :]]
    return level[0].hex()


def as_text(leaves: list[bytes]) -> str:
    """Return leaves as one text in base64."""
    return base64.b64encode(b"".join(leaves)).decode("ascii")


_MARK_DIGITS = 16  # of a mark: two names that share one cost a repeated request its answer, and nothing else


def hash_sample(key: HashingKey, sample_id: str) -> str:
    """Return the keyed hash of a sample's id."""
    return keyed_hash(key, b"sample\0" + sample_id.encode("utf-8"))


def hash_subject(key: HashingKey, subject: str) -> str:
    """Return the keyed hash of a subject."""
    return hash_targets(key, [subject], "subjects")


def marks_of(key: HashingKey, names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the short keyed hashes of ids and subjects; see `Ledger.marks`."""
    hashes = (hash_sample(key, name) if kind == "id" else hash_subject(key, name) for kind, name in names)
    return [known[:_MARK_DIGITS] for known in hashes]


def hash_targets(key: HashingKey, names: Iterable[str], by: By) -> str:
    """Return the keyed hash of a set of ids or subjects; neither order nor repetition matters."""
    parts = [by.encode("ascii"), b"\0"]
    for name in sorted({name.encode("utf-8") for name in names}):
        parts += (len(name).to_bytes(4, "big"), name)
    return keyed_hash(key, b"".join(parts))
