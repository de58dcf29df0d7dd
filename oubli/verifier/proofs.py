"""Proofs that an entry is in a log (c2sp.org/tlog-proof), and what they say of an erasure and of the names in it.

    c2sp.org/tlog-proof@v1
    extra <base64>            JSON: the entry, and of an erasure its receipt, its leaves and the entry that finished it
    index <number>            of the entry, from 0
    <base64>                  the path of hashes from the entry to the root
                              an empty line
    <checkpoint>              origin, size, root, signatures

An erasure's entry holds no names. It holds the root of a small tree whose leaves are hashes of names, each mixed with
an opening that only the requester of the erasure can make: without it no guess can be tested.

    leaf = SHA-256(0x00 | opening | "ids" or "subjects" | 0x00 | name)
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oubli.verifier.canonical import canonical
from oubli.verifier.checkpoints import Checkpoint, Policy, check_checkpoint, read_checkpoint
from oubli.verifier.merkle import HASH_BYTES, ProofError, check_inclusion, hash_leaf, root_of
from oubli.verifier.notes import FailedError, UncheckableError, decode, decode_or_fail, is_valid, read_decimal

By = Literal["ids", "subjects"]
_FIRST_LINE = "c2sp.org/tlog-proof@v1"
_LONGEST_PATH = 63
_KINDS: tuple[By, ...] = ("ids", "subjects")
# What an entry has of its own, and a key that depends on the state of the receipt.
_OF_ENTRIES = frozenset({"index", "previous", "type", "at", "key_id"})
# What an answer says besides the receipt.
_BESIDE = frozenset({"durable"})
_KEY_ID_BYTES = 8


@dataclass(frozen=True, slots=True)
class CheckedProof:
    """A proof that holds.

    Attributes
    ----------
    checkpoint
        Of the log that the entry is in.
    cosigned
        Names of the witnesses that have cosigned the checkpoint.
    entry
        What is in the log.
    receipt
        Of the erasure that the entry is about; None of another entry.
    found
        What the name is among: `targets`, which were named in the request, or `samples`, which were unlearned.
    """

    checkpoint: Checkpoint
    cosigned: list[str]
    entry: dict[str, Any]
    receipt: dict[str, Any] | None
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Parts:
    """A proof, not checked."""

    extra: dict[str, Any]
    index: int
    path: list[bytes]
    checkpoint: Checkpoint


def opening_of(secret: bytes, by: By, name: str) -> bytes:
    """Return the opening of one name, which is handed to the person.

    Parameters
    ----------
    secret
        The opening of the whole erasure, `GET /erasures/{id}/opening`.
    by, name
        What the request named: an id or a subject.
    """
    return hmac.digest(secret, by.encode("ascii") + b"\0" + name.encode("utf-8"), "sha256")


def check_proof(
    text: str,
    policy: Policy,
    *,
    name: str | None = None,
    opening: bytes | None = None,
    kept: Mapping[str, Any] | None = None,
) -> CheckedProof:
    """Check a proof of an entry, or of an erasure.

    Parameters
    ----------
    text
        The proof, as the server answered it.
    policy
        Whom to trust.
    name, opening
        An id or subject, and its opening: it must be among those that the erasure was about.
    kept
        A receipt that was kept: it must be of this erasure, and say what the log says.

    Raises
    ------
    FailedError
        When it does not hold.
    UncheckableError
        When it cannot be checked.
    """
    parts = _read(text)
    cosigned = check_checkpoint(parts.checkpoint, policy)
    entry = _check_entry(parts.extra.get("entry"), parts.index, parts.path, parts.checkpoint)
    receipt = None
    if "receipt" in parts.extra:
        receipt = _check_receipt(parts, entry, policy)
    if kept is not None:
        _check_kept(kept, original_of(entry), receipt, policy)
    found: tuple[str, ...] = ()
    erasure = original_of(entry)
    if "targets_root" in erasure and "target_leaves" in parts.extra:
        found = _check_names(parts.extra, erasure, name, opening)
    elif name is not None:
        raise UncheckableError(
            "the proof says nothing of names: it is not of an erasure, or the erasure is older than openings"
        )
    return CheckedProof(parts.checkpoint, cosigned, entry, receipt, found)


def _read(text: str) -> _Parts:
    head, separator, rest = text.partition("\n\n")
    lines = head.split("\n")
    if lines[0] != _FIRST_LINE or not separator:
        raise FailedError("format", f"a proof begins with the line '{_FIRST_LINE}', and has a checkpoint at its end")
    lines = lines[1:]
    if not lines or not lines[0].startswith("extra "):
        raise UncheckableError("the proof has no line 'extra': it is not of Oubli")
    try:
        extra = json.loads(decode_or_fail(lines[0].removeprefix("extra "), "the extra data"))
    except (ValueError, RecursionError):
        raise FailedError("format", "the extra data is not JSON") from None
    if not isinstance(extra, dict):
        raise FailedError("format", "the extra data is no object")
    if len(lines) < 2 or not lines[1].startswith("index "):
        raise FailedError("format", "the proof has no line 'index'")
    index = read_decimal(lines[1].removeprefix("index "), "the index")
    return _Parts(extra, index, _read_path(lines[2:]), read_checkpoint(rest))


def _read_path(lines: Any) -> list[bytes]:
    if not isinstance(lines, list) or len(lines) > _LONGEST_PATH or not all(isinstance(one, str) for one in lines):
        raise FailedError("format", "the path is none")
    path = [decode_or_fail(line, "a hash of the path") for line in lines]
    if any(len(one) != HASH_BYTES for one in path):
        raise FailedError("format", "a hash of the path has another length")
    return path


def _check_entry(body: Any, index: int, path: Sequence[bytes], checkpoint: Checkpoint) -> dict[str, Any]:
    """Check that an entry is in the log at an index; return it."""
    if not isinstance(body, str):
        raise FailedError("format", "the extra data has no entry")
    try:
        entry = json.loads(body)
        leaf = hash_leaf(body.encode("utf-8"))
    except (ValueError, RecursionError):
        raise FailedError("format", "the entry is not JSON") from None
    try:
        check_inclusion(leaf, index, checkpoint.size, path, checkpoint.root)
    except ProofError:
        raise FailedError(
            "inclusion", f"the path does not lead from the entry to the root of the log of {checkpoint.size} entries"
        ) from None
    # Two readers of JSON could understand another form differently.
    if not isinstance(entry, dict) or entry.get("index") != index + 1 or not _is_canonical(entry, body):
        raise FailedError("entry", f"the entry is not one of the ledger, or not number {index + 1}")
    return entry


def _is_canonical(entry: Any, body: str) -> bool:
    try:
        return canonical(entry) == body.encode("utf-8")
    except ValueError:
        return False


def _check_receipt(parts: _Parts, entry: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """Check that a receipt is signed and says what the entries say."""
    receipt = parts.extra["receipt"]
    if not isinstance(receipt, dict):
        raise FailedError("format", "the receipt is no object")
    last = original_of(entry)
    _check_against(receipt, last)
    if receipt.get("status") == "erased":
        finished = parts.extra.get("erased")
        if not isinstance(finished, dict) or type(finished.get("index")) is not int:
            raise FailedError("receipt", "the receipt says that it is erased, and no entry is given that says so")
        path = _read_path(finished.get("path"))
        last = original_of(_check_entry(finished.get("entry"), finished["index"], path, parts.checkpoint))
        _check_finished(receipt, last)
    if (receipt.get("ledger_index"), receipt.get("ledger_head")) != (last["index"], _hash_of(last)):
        raise FailedError("receipt", "the receipt names another entry than the one in the log")
    _check_signature(receipt, policy)
    return receipt


def _check_against(receipt: Mapping[str, Any], entry: Mapping[str, Any]) -> None:
    """Check that a receipt says what the entry of its erasure says."""
    if entry.get("type") != "unlearned" or receipt.get("id") != entry.get("receipt"):
        raise FailedError("receipt", "the receipt is of another erasure than the entry")
    wrong = [name for name in entry if name in receipt and name not in _OF_ENTRIES and entry[name] != receipt[name]]
    if wrong:
        raise FailedError("receipt", f"the log has another '{wrong[0]}' than the receipt")


def _check_finished(receipt: Mapping[str, Any], finished: Mapping[str, Any]) -> None:
    """Check that an entry says that the erasure of a receipt is finished, as the receipt does."""
    names = finished.get("receipts")
    if finished.get("type") != "erased" or not isinstance(names, list) or receipt["id"] not in names:
        raise FailedError("receipt", "the entry that is said to finish the erasure does not tell of it")
    if finished.get("erased_at") != receipt.get("erased_at"):
        raise FailedError("receipt", "the log has another 'erased_at' than the receipt")
    late = finished.get("overdue")
    if isinstance(late, list) and (receipt["id"] in late) != receipt.get("overdue"):
        raise FailedError("receipt", "the log has another 'overdue' than the receipt")


def _check_kept(kept: Mapping[str, Any], entry: dict[str, Any], receipt: dict[str, Any] | None, policy: Policy) -> None:
    """Check a receipt that was kept: it is signed, and the log has what it says."""
    _check_signature(kept, policy)
    _check_against(kept, entry)
    if kept.get("status") == "unlearned":
        same = (kept.get("ledger_index"), kept.get("ledger_head")) == (entry["index"], _hash_of(entry))
    else:
        names = ("status", "erased_at", "ledger_index", "ledger_head", "overdue")
        same = receipt is not None and all(kept.get(name) == receipt.get(name) for name in names)
    if not same:
        raise FailedError("receipt", "the receipt that was kept names another entry than the one in the log")


def _check_signature(receipt: Mapping[str, Any], policy: Policy) -> None:
    """Check that a key of a log has signed a receipt."""
    public = public_key(policy, str(receipt.get("key_id")))
    content = {name: value for name, value in receipt.items() if name != "signature" and name not in _BESIDE}
    try:
        signed = is_valid(public, decode(str(receipt.get("signature"))), canonical(content))
    except ValueError:
        signed = False
    if not signed:
        raise FailedError("receipt-signature", "the signature of the receipt is not that of its content")


def public_key(policy: Policy, key_id: str) -> bytes:
    """Return the key of a log that a receipt names.

    Raises
    ------
    FailedError
        When the policy does not trust it.
    """
    keys = {hashlib.sha256(key.public).digest()[:_KEY_ID_BYTES].hex(): key.public for key in policy.logs}
    if key_id not in keys:
        raise FailedError(
            "receipt-signature",
            "the receipt is signed by a key that is not in the policy: add a line 'log KEY' for it if you trust it",
        )
    return keys[key_id]


def original_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry that was carried over after an operator went on without those before it, or the entry itself."""
    if entry.get("type") != "carried-over":
        return entry
    original = entry.get("entry")
    if not isinstance(original, dict) or _hash_of(original) != original.get("hash"):
        raise FailedError("entry", "the entry that was carried over was changed")
    return original


def _hash_of(entry: dict[str, Any]) -> str:
    return hashlib.sha256(canonical({name: one for name, one in entry.items() if name != "hash"})).hexdigest()


def _check_names(
    extra: Mapping[str, Any], entry: Mapping[str, Any], name: str | None, opening: bytes | None
) -> tuple[str, ...]:
    """Check the leaves of an erasure, and that a name is among them; return which of the two lists it is in."""
    lists = {"targets": _leaves(extra.get("target_leaves"))}
    lists["samples"] = _leaves(extra["sample_leaves"]) if "sample_leaves" in extra else lists["targets"]
    for what, leaves in lists.items():
        if root_of(leaves).hex() != entry.get(f"{what}_root"):
            raise FailedError("opening", f"the hashes of the {what} are others than those that the log has the root of")
    if name is None:
        return ()
    if opening is None:
        raise UncheckableError("a name needs its opening: give --opening")
    known = {_leaf_of(opening, by, name) for by in _KINDS}
    found = tuple(what for what, leaves in lists.items() if not known.isdisjoint(leaves))
    if not found:
        raise FailedError("opening", "the erasure was not about this name, or the opening is that of another name")
    return found


def _leaf_of(opening: bytes, by: By, name: str) -> bytes:
    return hash_leaf(opening + by.encode("ascii") + b"\0" + name.encode("utf-8"))


def _leaves(encoded: Any) -> list[bytes]:
    raw = decode_or_fail(str(encoded), "the list of hashes of names")
    leaves = [raw[start : start + HASH_BYTES] for start in range(0, len(raw), HASH_BYTES)]
    if len(raw) % HASH_BYTES or leaves != sorted(set(leaves)):
        raise FailedError("opening", "the hashes of names are not whole, in order and different")
    return leaves
