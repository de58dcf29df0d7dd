"""The set of samples that a model has learned: proofs that a name is not in it, and its root from a list of all.

The set is a tree of 48 levels. A name has one place in it, which a key of the server's says; its way from the root down
is the 48 bits of its position. A proof shows the hashes along the way, up to the node at which it leaves the tree.

    two children  SHA-256(0x01 | left | right)        a left one alone   SHA-256(0x02 | child)
    leaf          SHA-256(0x00 | content)             a right one alone  SHA-256(0x03 | child)

    position      id       0, then 47 bits of HMAC-SHA256(key, "id" | 0x00 | id)
                  subject  1, then 47 bits of HMAC-SHA256(key, "subject" | 0x00 | subject)
    sample        c = SHA-256(nonce | JSON of features, id, label and subject, as RFC 8785 writes it)
    content       of an id: c; of a subject, and of names with one position: SHA-256(the c of all samples, in order)
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from oubli.verifier.canonical import canonical_sample
from oubli.verifier.errors import FailedError, UncheckableError
from oubli.verifier.merkle import EMPTY_ROOT, HASH_BYTES, ProofError
from oubli.verifier.notes import decode_or_fail
from oubli.verifier.policies import Policy
from oubli.verifier.proofs import By, check_proof

FORMAT = "oubli-absence-proof@v1"
DEPTH = 48
_HALF = 1 << DEPTH - 1
_NAMESPACES: dict[By, bytes] = {"ids": b"id", "subjects": b"subject"}
_COMMITMENT = b"oubli positions key commitment\0"
_HASH = re.compile(r"[0-9a-f]{64}")
_PLACE = re.compile(r"[0-9a-f]{12}")
_NONCE = re.compile(r"[0-9a-f]{32}")
_MOST = 2**53
_FIELDS = frozenset(
    {
        "format",
        "by",
        "name",
        "model_version",
        "n_samples",
        "root",
        "positions_key",
        "position",
        "end",
        "last",
        "depths",
        "siblings",
        "state",
    }
)
_OF_SAMPLES = ("features", "id", "label", "subject")


@dataclass(frozen=True, slots=True)
class CheckedAbsence:
    """A proof of absence that holds.

    Attributes
    ----------
    by, name
        What is not in the set: an id or a subject.
    model_version, n_samples, root
        The state of the model in which it is not, how many samples that has learned, and the root of their set.
    position
        Of the name, as the server says it.
    entry
        Of the ledger, which tells of that state; None when the root was given.
    """

    by: By
    name: str
    model_version: int
    n_samples: int
    root: bytes
    position: int
    entry: int | None


def is_absence_proof(text: str) -> bool:
    """Whether a text is the answer of `POST /samples/absence-proofs`, and not another kind of proof."""
    return text.lstrip().startswith("{")


def commitment_of(positions_key: bytes) -> str:
    """Return the hash of a key of positions that a server commits itself to."""
    return sha256(_COMMITMENT + positions_key).hexdigest()


def position_of(positions_key: bytes, by: By, name: str) -> int:
    """Return the position of a name."""
    code = hmac.digest(positions_key, _NAMESPACES[by] + b"\0" + name.encode("utf-8"), hashlib.sha256)
    return int.from_bytes(code[: DEPTH // 8], "big") % _HALF + (_HALF if by == "subjects" else 0)


def check_absence(
    text: str,
    policy: Policy,
    *,
    name: str | None = None,
    root: bytes | None = None,
    positions_key: bytes | None = None,
) -> CheckedAbsence:
    """Check a proof that a name is not in the set of samples of a model.

    Parameters
    ----------
    text
        The proof, as the server answered it.
    policy
        Whom to trust.
    name
        The id or subject that the proof must be about; None: whichever it names.
    root
        Of the set, from where it is trusted, whatever the log says; None: the state in the proof must be in the log.
    positions_key
        Of the server: the position must be that of the name. Without it the server's word is taken for that.

    Raises
    ------
    FailedError
        When it does not hold.
    UncheckableError
        When it cannot be checked.
    """
    proof = _read(text)
    if name is not None and name != proof["name"]:
        raise FailedError("name", "the proof is about another name")
    position, found_root = int(proof["position"], 16), bytes.fromhex(proof["root"])
    if positions_key is not None:
        if commitment_of(positions_key) != proof["positions_key"]:
            raise FailedError("position", "the proof was made with another key of positions")
        if position != position_of(positions_key, proof["by"], proof["name"]):
            raise FailedError("position", "the proof is about the position of another name")
    if position >> DEPTH - 1 != (proof["by"] == "subjects"):
        raise FailedError("position", "the position is not one of such names")
    last = None if proof["last"] is None else decode_or_fail(proof["last"], "the last hash")
    try:
        if check_way(found_root, position, proof["end"], last, _siblings(proof)):
            raise FailedError("absence", "the proof shows that the name is in the set")
    except ProofError:
        raise FailedError("absence", "the hashes do not lead from the end of the way to the root of the set") from None
    if root is not None and root != found_root:
        raise FailedError("state", "the proof is of another set than the one with this root")
    entry = None
    if proof["state"] is not None:
        try:
            entry = _check_state(proof, policy)
        except UncheckableError:
            if root is None:  # else it is trusted, whatever the log says
                raise
    elif root is None:
        raise UncheckableError(
            "the proof is over a root that nobody has signed: give the root of a state that you trust (--root)"
        )
    return CheckedAbsence(
        proof["by"], proof["name"], proof["model_version"], proof["n_samples"], found_root, position, entry
    )


def check_way(root: bytes, position: int, end: int, last: bytes | None, siblings: Mapping[int, bytes]) -> bool:
    """Check the way to a position; return whether the position is in the set.

    Parameters
    ----------
    root
        Of the set.
    position
        48 bits.
    end
        `DEPTH`: the position is in the set. A smaller depth: there the way leaves the tree.
    last
        Hash of the leaf, or of the other child where the way ends; None says that the set is empty.
    siblings
        By depth, the hashes of the other children on the way.

    Raises
    ------
    ProofError
        When the way does not lead to the root.
    """
    if last is None:
        if root != EMPTY_ROOT or siblings or end != 0:
            raise ProofError
        return False
    if not 0 <= end <= DEPTH or not all(0 <= depth < end for depth in siblings):
        raise ProofError
    if any(len(one) != HASH_BYTES for one in (last, *siblings.values())):
        raise ProofError
    found = last
    if end < DEPTH:  # a node with the other child alone
        found = _one(1 - _bit(position, end), last)
    for depth in reversed(range(end)):
        bit = _bit(position, depth)
        other = siblings.get(depth)
        if other is None:
            found = _one(bit, found)
        else:
            found = sha256(b"\x01" + (found + other if bit == 0 else other + found)).digest()
    if found != root:
        raise ProofError
    return end == DEPTH


def hash_of_sample(sample: Mapping[str, Any]) -> bytes:
    """Return the hash of a sample, as `GET /samples?openings=true` lists it.

    Raises
    ------
    FailedError
        When it is no such sample.
    """
    nonce = sample.get("nonce")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise FailedError("set", "a sample has no nonce: list them with openings=true")
    try:
        content = canonical_sample({name: sample[name] for name in _OF_SAMPLES})
    except (KeyError, ValueError, AttributeError, TypeError):
        raise FailedError("set", "a sample lacks its id, subject, features or label") from None
    return sha256(bytes.fromhex(nonce) + content).digest()


def set_root(samples: Iterable[Mapping[str, Any]], positions_key: bytes) -> bytes:
    """Return the root of the set of samples in a list of all that are held.

    Parameters
    ----------
    samples
        As `GET /samples?openings=true` lists them; those that are restricted are in no set, and are left out.
    positions_key
        The key of positions, as the same answer has it.

    Raises
    ------
    FailedError
        When the list is none of samples, or has an id twice.
    """
    contents: dict[int, list[bytes]] = {}
    by_subject: dict[str, list[bytes]] = {}
    known: set[str] = set()
    for sample in samples:
        if sample.get("restricted_at") is not None:
            continue
        one, name, subject = hash_of_sample(sample), sample["id"], sample["subject"]
        if not isinstance(name, str) or not isinstance(subject, str | None) or name in known:
            raise FailedError("set", "a sample has no id, or another has the same one")
        known.add(name)
        contents.setdefault(position_of(positions_key, "ids", name), []).append(one)
        if subject is not None:
            by_subject.setdefault(subject, []).append(one)
    leaves = {place: ones[0] if len(ones) == 1 else _together(ones) for place, ones in contents.items()}
    places: dict[int, list[bytes]] = {}
    for subject, ones in by_subject.items():
        places.setdefault(position_of(positions_key, "subjects", subject), []).extend(ones)
    leaves |= {place: _together(ones) for place, ones in places.items()}
    ordered = sorted((place, sha256(b"\x00" + content).digest()) for place, content in leaves.items())
    return _root(ordered, 0) if ordered else EMPTY_ROOT


def _root(leaves: list[tuple[int, bytes]], depth: int) -> bytes:
    """Return the hash of the node at a depth that some leaves, in order, are below."""
    (first, found), (last, _) = leaves[0], leaves[-1]
    branch = DEPTH - (first ^ last).bit_length()
    if branch < DEPTH:
        turn = (last >> DEPTH - 1 - branch) << DEPTH - 1 - branch  # the first position on the right
        low, high = 0, len(leaves)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if leaves[middle][0] < turn else (low, middle)
        found = sha256(b"\x01" + _root(leaves[:low], branch + 1) + _root(leaves[low:], branch + 1)).digest()
    for level in reversed(range(depth, branch)):
        found = _one(_bit(first, level), found)
    return found


def _together(hashes: list[bytes]) -> bytes:
    return sha256(b"".join(sorted(hashes))).digest()


def _read(text: str) -> dict[str, Any]:
    """Return the fields of a proof, each of its type."""
    try:
        proof = json.loads(text)
    except (ValueError, RecursionError):
        raise FailedError("format", "the proof is not JSON") from None
    if not isinstance(proof, dict) or proof.get("format") != FORMAT or proof.keys() != _FIELDS:
        raise FailedError("format", f"the proof is none of the format '{FORMAT}'")
    is_sound = (
        proof["by"] in ("ids", "subjects")
        and isinstance(proof["name"], str)
        and all(_is_number(proof[name], _MOST) for name in ("model_version", "n_samples"))
        and _is_number(proof["end"], DEPTH)
        and all(_is_text(proof[name], _HASH) for name in ("root", "positions_key"))
        and all(_is_text(proof[name], _PLACE) for name in ("position", "depths"))
        and isinstance(proof["siblings"], str)
        and isinstance(proof["last"], str | None)
        and isinstance(proof["state"], str | None)
    )
    if not is_sound:
        raise FailedError("format", "a field of the proof is of another type or length")
    return proof


def _is_number(value: Any, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_text(value: Any, pattern: re.Pattern[str]) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _siblings(proof: Mapping[str, Any]) -> dict[int, bytes]:
    """Return the siblings by depth: `depths` has a bit for each depth, the first one for the root."""
    raw, marked = decode_or_fail(proof["siblings"], "the list of hashes"), int(proof["depths"], 16)
    depths = [depth for depth in range(DEPTH) if _bit(marked, depth)]
    if len(raw) != HASH_BYTES * len(depths):
        raise FailedError("format", "there is not one hash for each depth")
    return {depth: raw[HASH_BYTES * i : HASH_BYTES * (i + 1)] for i, depth in enumerate(depths)}


def _check_state(proof: Mapping[str, Any], policy: Policy) -> int:
    """Check that the log has an entry of the state that the proof is of; return its index."""
    entry = check_proof(proof["state"], policy).entry
    told = {"type": "state", "set_root": proof["root"]}
    told |= {name: proof[name] for name in ("model_version", "n_samples", "positions_key")}
    wrong = [name for name, value in told.items() if entry.get(name) != value]
    if wrong:
        raise FailedError("state", f"the entry in the log has another '{wrong[0]}' than the proof")
    index: int = entry["index"]
    return index


def _one(bit: int, child: bytes) -> bytes:
    return sha256((b"\x02", b"\x03")[bit] + child).digest()


def _bit(position: int, depth: int) -> int:
    return position >> DEPTH - 1 - depth & 1
