"""The set of samples that a model has learned: proofs that a name is not in it, and its root from a list of all.

The set is a tree of 48 levels. A name has one place in it, which a key of the server's says; its way from the root down
is the 48 bits of its position. A proof shows the hashes along the way, up to the node at which it leaves the tree:

    way           position    6 bytes
                  depths      6 bytes, a bit for each depth at which there is another child, the first one for the root;
                              the last of them is that at which the way leaves the tree
                  hashes      32 bytes for each of these children, from the root down

The root is what they lead to. So a proof of absence cannot be of a name that is in the set.

    two children  SHA-256(0x01 | left | right)        a left one alone   SHA-256(0x02 | child)
    leaf          SHA-256(0x00 | content)             a right one alone  SHA-256(0x03 | child)

    position      id       0, then 47 bits of HMAC-SHA256(key, "id" | 0x00 | id)
                  subject  1, then 47 bits of HMAC-SHA256(key, "subject" | 0x00 | subject)
    sample        c = SHA-256(nonce | JSON of features, id, label, subject and, unless it is 1, weight, as RFC 8785
                  writes it)
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
from oubli.verifier.checkpoints import Policy
from oubli.verifier.merkle import EMPTY_ROOT, HASH_BYTES
from oubli.verifier.notes import FailedError, UncheckableError, decode_or_fail
from oubli.verifier.proofs import By, check_proof

FORMAT = "oubli-absence-proof@v1"
DEPTH = 48
_HALF = 1 << DEPTH - 1
_POSITION_BYTES = DEPTH // 8
_HEAD = 2 * _POSITION_BYTES
_NAMESPACES: dict[By, bytes] = {"ids": b"id", "subjects": b"subject"}
_COMMITMENT = b"oubli positions key commitment\0"
_NONCE = re.compile(r"[0-9a-f]{32}")
_MOST = 2**53
_FIELDS = frozenset({"format", "by", "name", "model_version", "way", "state"})
# Nodes are hashed by copies of these: beginning a hash takes longer than copying one that has begun.
_TWO = sha256(b"\x01")
_ONE = (sha256(b"\x02"), sha256(b"\x03"))  # by the bit of the child
_OF_SAMPLES = ("features", "id", "label", "subject")


@dataclass(frozen=True, slots=True)
class CheckedAbsence:
    """A proof of absence that holds.

    Attributes
    ----------
    by, name
        What is not in the set: an id or a subject.
    model_version
        Of the model, in the state in which it is not in the set.
    root
        Of the set.
    position
        Of the name, as the server says it.
    entry, n_samples
        Index of the log's entry of that state, and its number of samples; None when the root was given.
    """

    by: By
    name: str
    model_version: int
    root: bytes
    position: int
    entry: int | None
    n_samples: int | None


def is_absence_proof(text: str) -> bool:
    """Whether a text is the answer of `POST /samples/absence-proofs`, and not another kind of proof."""
    return text.lstrip().startswith("{")


def commitment_of(positions_key: bytes) -> str:
    """Return the hash of a key of positions that a server commits itself to."""
    return sha256(_COMMITMENT + positions_key).hexdigest()


def position_of(positions_key: bytes, by: By, name: str) -> int:
    """Return the position of a name."""
    code = hmac.digest(positions_key, _NAMESPACES[by] + b"\0" + name.encode("utf-8"), hashlib.sha256)
    return int.from_bytes(code[:_POSITION_BYTES], "big") % _HALF + (_HALF if by == "subjects" else 0)


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
    position, others = _way_of(proof["way"])
    if positions_key is not None and position != position_of(positions_key, proof["by"], proof["name"]):
        raise FailedError("position", "the proof is about the position of another name, or was made with another key")
    if position >> DEPTH - 1 != (proof["by"] == "subjects"):
        raise FailedError("position", "the position is not one of such names")
    found_root = root_of_way(position, others)
    if root is not None and root != found_root:
        raise FailedError("absence", "the hashes do not lead from the end of the way to this root")
    told: tuple[int, int] | tuple[None, None] = (None, None)
    if proof["state"] is not None:
        try:
            told = _check_state(proof, found_root, positions_key, policy)
        except UncheckableError:
            if root is None:  # else it is trusted, whatever the log says
                raise
    elif root is None:
        raise UncheckableError(
            "the proof is over a root without a signature: give the root of a state that you trust (--root)"
        )
    return CheckedAbsence(proof["by"], proof["name"], proof["model_version"], found_root, position, *told)


def root_of_way(position: int, others: Mapping[int, bytes]) -> bytes:
    """Return the root of a set in which a position is not.

    Parameters
    ----------
    position
        48 bits.
    others
        By depth, the hashes of the other children on its way. Below the last of them nothing is on its way.
    """
    if not others:
        return EMPTY_ROOT
    end = max(others)
    found = _one(1 - _bit(position, end), others[end])
    for depth in reversed(range(end)):
        bit, other = _bit(position, depth), others.get(depth)
        if other is None:
            found = _one(bit, found)
        else:
            found = _two(found, other) if bit == 0 else _two(other, found)
    return found


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
        told = {name: sample[name] for name in _OF_SAMPLES}
        weight = sample.get("weight", 1)
        if type(weight) not in (int, float):
            raise FailedError("set", "a sample has a weight that is no number")
        content = canonical_sample(told if weight == 1 else {**told, "weight": weight})
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
    return _root(ordered)


def _root(leaves: list[tuple[int, bytes]]) -> bytes:
    """Return the root of leaves, positions ascending."""
    if not leaves:
        return EMPTY_ROOT
    waiting: list[tuple[int, bytes]] = []  # nodes that have their left child's hash, downwards, with their depths
    last, found, depth = *leaves[0], DEPTH  # the hash of the node at a depth on the way to the last leaf
    for position, leaf in leaves[1:]:
        branch = DEPTH - (last ^ position).bit_length()
        found, depth = _closed(waiting, branch, last, found, depth)
        waiting.append((branch, _lifted(found, last, depth, branch + 1)))
        last, found, depth = position, leaf, DEPTH
    found, depth = _closed(waiting, -1, last, found, depth)
    return _lifted(found, last, depth, 0)


def _closed(
    waiting: list[tuple[int, bytes]], branch: int, position: int, found: bytes, depth: int
) -> tuple[bytes, int]:
    """Give the nodes below a depth their right children; return the hash of the uppermost, and its depth."""
    while waiting and waiting[-1][0] > branch:
        above, left = waiting.pop()
        found = _two(left, _lifted(found, position, depth, above + 1))
        depth = above
    return found, depth


def _lifted(found: bytes, position: int, depth: int, top: int) -> bytes:
    """Return the hash of the node at `top` on the way to a position, from that at `depth`: each has one child."""
    one, ahead = _ONE, position >> DEPTH - depth
    for _ in range(depth - top):
        node = one[ahead & 1].copy()
        node.update(found)
        found = node.digest()
        ahead >>= 1
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
        and type(proof["model_version"]) is int
        and 0 <= proof["model_version"] <= _MOST
        and isinstance(proof["way"], str)
        and isinstance(proof["state"], str | None)
    )
    if not is_sound:
        raise FailedError("format", "a field of the proof is of another type or length")
    return proof


def _way_of(text: str) -> tuple[int, dict[int, bytes]]:
    """Return the position and, by depth, the hashes of the other children on its way."""
    raw = decode_or_fail(text, "the way")
    position, marked, hashes = raw[:_POSITION_BYTES], raw[_POSITION_BYTES:_HEAD], raw[_HEAD:]
    depths = [depth for depth in range(DEPTH) if _bit(int.from_bytes(marked, "big"), depth)]
    if len(raw) < _HEAD or len(hashes) != HASH_BYTES * len(depths):
        raise FailedError("format", "the way has not one hash for each depth")
    others = {depth: hashes[HASH_BYTES * i : HASH_BYTES * (i + 1)] for i, depth in enumerate(depths)}
    return int.from_bytes(position, "big"), others


def _check_state(proof: Mapping[str, Any], root: bytes, positions_key: bytes | None, policy: Policy) -> tuple[int, int]:
    """Check that the log has an entry of the state that the proof is of; return its index, and how many samples."""
    entry = check_proof(proof["state"], policy).entry
    n_samples = entry.get("n_samples")
    if entry.get("type") != "state" or entry.get("model_version") != proof["model_version"]:
        raise FailedError("state", "the entry in the log is not that of the state that the proof is of")
    if type(n_samples) is not int:
        raise FailedError("state", "the entry does not say what a state says")
    if entry.get("set_root") != root.hex():
        raise FailedError("absence", "the hashes do not lead from the end of the way to the root in the log")
    if positions_key is not None and commitment_of(positions_key) != entry.get("positions_key_hash"):
        raise FailedError("position", "the log tells of another key of positions than this one")
    return entry["index"], n_samples


def _two(left: bytes, right: bytes) -> bytes:
    node = _TWO.copy()
    node.update(left + right)
    return node.digest()


def _one(bit: int, child: bytes) -> bytes:
    node = _ONE[bit].copy()
    node.update(child)
    return node.digest()


def _bit(position: int, depth: int) -> int:
    return position >> DEPTH - 1 - depth & 1
