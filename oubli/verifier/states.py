"""States of a model in a log: the set of samples that it was a function of at a version, and what it was made by.

The entry of a state holds no digest, schema or key, only hashes of them. What they are hashes of is answered beside the
proof, to auditors only:

    positions_key_hash   SHA-256("oubli positions key commitment" | 0x00 | key that says where names are)
    schema_hash          SHA-256(schema, JSON in the form of RFC 8785)
    digest_hash          SHA-256(salt | digest of the model); null where the model is not a function of the set alone

The digest is itself SHA-256(header | LF | digest of the first tree | LF | digest of the second tree ...), each in
hexadecimal. So a list of the digests of all trees belongs to one digest only, and single trees can be compared.

Receipts of predictions: which model has answered what to which rows.

    message     oubli.prediction/v1
                model version, root over the samples that the model is a function of
                SHA-256(nonce | rows), SHA-256(nonce | answer), in hexadecimal, a line each
    rows        `instances` as they were sent
    answer      an object of `predictions`, and of a classifier `classes` and `probabilities`

Rows and answer are JSON with sorted keys and nothing between its signs. Numbers have the fewest digits that read back
as the same number, as Python writes them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oubli.verifier.canonical import canonical
from oubli.verifier.checkpoints import Checkpoint, Policy
from oubli.verifier.notes import FailedError, UncheckableError, decode, is_valid
from oubli.verifier.proofs import check_proof, original_of, public_key
from oubli.verifier.sets import commitment_of

EXACT = "exact"
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CheckedState:
    """A state that is in a log.

    Attributes
    ----------
    checkpoint, cosigned
        Of the log, and the names of the witnesses that have cosigned it.
    entry
        What is in the log.
    parameters
        That the model was made by.
    schema
        Of the samples.
    positions_key
        By which the samples have their places in the set.
    digest
        Of the model, in hexadecimal; None where its salt was erased, or the model is not exact.
    tree_digests
        What the server says that the trees have, unchecked but for its form; None where it does not say it.
    """

    checkpoint: Checkpoint
    cosigned: list[str]
    entry: dict[str, Any]
    parameters: dict[str, Any]
    schema: dict[str, Any]
    positions_key: bytes
    digest: str | None
    tree_digests: list[str] | None = None

    @property
    def model_version(self) -> int:
        """Of the model."""
        return int(self.entry["model_version"])

    @property
    def set_root(self) -> str:
        """Over the samples, in hexadecimal."""
        return str(self.entry["set_root"])

    @property
    def is_exact(self) -> bool:
        """Whether the model is a function of the samples, so that a fit of them has its digest."""
        return bool(self.entry["guarantee"] == EXACT)


def check_state(content: Mapping[str, Any], policy: Policy) -> CheckedState:
    """Check that a state is in a log, and that what came beside it belongs to it.

    Parameters
    ----------
    content
        As `GET /model/states/{index}` answered it.
    policy
        Whom to trust.

    Raises
    ------
    FailedError
        When it does not hold.
    UncheckableError
        When something that is needed is not there.
    """
    proof = content.get("proof")
    if not isinstance(proof, str):
        raise FailedError("format", "the state comes without a proof")
    checked = check_proof(proof, policy)
    entry = original_of(checked.entry)
    if entry.get("type") != "state":
        raise FailedError("state", "the proof is of another entry than one of a state")
    schema, parameters = _schema_of(content, entry), _parameters_of(entry)
    key = _key_of(content, entry)
    digest, tree_digests = _digest_of(content, entry), _tree_digests_of(content)
    return CheckedState(checked.checkpoint, checked.cosigned, entry, parameters, schema, key, digest, tree_digests)


def check_trees(state: CheckedState, header: str, n_trees: int, grown: Mapping[int, str]) -> None:
    """Check that a state has the digests of all its trees, and that some trees that were grown afresh have theirs.

    Parameters
    ----------
    state
        With a digest and the digests of trees.
    header
        Of the model, from its samples and parameters: the part of its digest besides those of its trees.
    n_trees
        How many trees the model has, by its parameters.
    grown
        Digests of trees, by their numbers.

    Raises
    ------
    FailedError
        When it does not hold.
    """
    told = state.tree_digests or []
    if len(told) != n_trees or _hash("\n".join([header, *told]).encode("ascii")) != state.digest:
        raise FailedError(
            "tree-digests",
            "the digest of the model is not made of these digests of trees, with these samples and parameters",
        )
    for tree, digest in grown.items():
        if told[tree] != digest:
            raise FailedError(
                "digest", f"tree {tree} is another than training on these samples with these parameters gives"
            )


def _schema_of(content: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    schema = content.get("schema")
    if not isinstance(schema, dict):
        raise UncheckableError("the state comes without the schema of its samples: ask for a new state")
    try:
        known = _hash(canonical(schema))
    except ValueError:
        known = None
    if known != entry.get("schema_hash"):
        raise FailedError("state", "the schema is another than the one that the log has the hash of")
    return schema


def _parameters_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    try:
        parameters = json.loads(str(entry.get("parameters")))
    except (ValueError, RecursionError):
        parameters = None
    if not isinstance(parameters, dict) or type(entry.get("model_version")) is not int:
        raise FailedError("state", "the entry does not say what a state says")
    return parameters


def _key_of(content: Mapping[str, Any], entry: Mapping[str, Any]) -> bytes:
    encoded = content.get("positions_key")
    if encoded is None:
        raise UncheckableError("the key is gone by which the samples had their places: ask for a new state")
    key = _raw(encoded)
    if key is None or commitment_of(key) != entry.get("positions_key_hash"):
        raise FailedError("positions-key", "the places of samples are said to be made by another key than the log's")
    return key


def _digest_of(content: Mapping[str, Any], entry: Mapping[str, Any]) -> str | None:
    """Return the digest; None where there is none."""
    if entry.get("guarantee") != EXACT or content.get("salt") is None:
        return None
    salt, digest = _raw(content["salt"]), _raw(content.get("digest"))
    if salt is None or digest is None or _hash(salt + digest) != entry.get("digest_hash"):
        raise FailedError("salted-digest", "the digest is another than the one that the log has the salted hash of")
    return digest.hex()


def _tree_digests_of(content: Mapping[str, Any]) -> list[str] | None:
    told = content.get("tree_digests")
    if told is None:
        return None
    # With other characters in them, two lists could make one text.
    if not isinstance(told, list) or not all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in told):
        raise FailedError("tree-digests", "the digests of the trees are no digests")
    return told


def _raw(text: object) -> bytes | None:
    try:
        return bytes.fromhex(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_FIRST_LINE = "oubli.prediction/v1"
_ANSWERED = ("classes", "predictions", "probabilities")
_LARGEST_INTEGER = 2**64  # what servers read as another number from here on


@dataclass(frozen=True, slots=True)
class CheckedPrediction:
    """A receipt of a prediction that is signed.

    Attributes
    ----------
    model_version
        Of the model that has answered.
    set_root
        Over the samples that it is a function of, in hexadecimal.
    instances
        What was asked.
    answer
        What was answered.
    """

    model_version: int
    set_root: str
    instances: list[Any]
    answer: dict[str, Any]


def check_prediction(content: Mapping[str, Any], policy: Policy) -> CheckedPrediction:
    """Check the receipt of a prediction.

    Parameters
    ----------
    content
        `instances` as they were sent to `POST /predict`, and `answer` as it came.
    policy
        Whom to trust: the key of a log has signed it.

    Raises
    ------
    FailedError
        When it does not hold.
    """
    instances, answer = content.get("instances"), content.get("answer")
    receipt = answer.get("receipt") if isinstance(answer, dict) else None
    if not isinstance(instances, list) or not isinstance(answer, dict) or not isinstance(receipt, dict):
        raise FailedError("format", "a receipt of a prediction has 'instances', and 'answer' with its 'receipt'")
    version, root = answer.get("model_version"), receipt.get("set_root")
    public = public_key(policy, str(receipt.get("key_id")))
    answered = {name: answer[name] for name in _ANSWERED if name in answer}
    try:
        nonce, signature = bytes.fromhex(str(receipt.get("nonce"))), decode(str(receipt.get("signature")))
        message = message_of(version, root, nonce, instances, answered)
        signed = is_valid(public, signature, message)
    except (ValueError, OverflowError, RecursionError):
        signed = False
    if not signed or type(version) is not int or not isinstance(root, str):
        raise FailedError(
            "prediction-signature", "the signature is not that of these rows, this answer, this version and this root"
        )
    return CheckedPrediction(version, root, instances, answered)


def message_of(version: object, root: object, nonce: bytes, instances: list[Any], answer: Mapping[str, Any]) -> bytes:
    """Return what is signed."""
    hashes = [hashlib.sha256(nonce + _written(part)).hexdigest() for part in (instances, dict(answer))]
    return "".join(f"{line}\n" for line in (_FIRST_LINE, version, root, *hashes)).encode()


def same_answer(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two answers are the same to the last bit."""
    return _written(dict(one)) == _written(dict(other))


def _written(value: Any) -> bytes:
    return json.dumps(_read(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _read(value: Any) -> Any:
    """Return a value as servers read it: integers of more than 64 bits are fractions to them."""
    if isinstance(value, dict):
        return {name: _read(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_read(one) for one in value]
    if type(value) is int and not -_LARGEST_INTEGER // 2 <= value < _LARGEST_INTEGER:
        return float(value)
    return value
