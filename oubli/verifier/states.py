"""States of a model in a log: the set of samples that it was a function of at a version, and what it was made by.

The entry of a state holds no digest, schema or key, only hashes of them. What they are hashes of is answered beside the
proof, and to nobody but auditors:

    positions_key_hash   SHA-256("oubli positions key commitment" | 0x00 | key that says where names are)
    schema_hash          SHA-256(schema, JSON in the form of RFC 8785)
    digest_hash          SHA-256(salt | digest of the model); null where the model is not a function of the set alone

The digest is itself SHA-256(header | LF | digest of the first tree | LF | digest of the second tree ...), each in
hexadecimal. So a list of the digests of all trees belongs to one digest only, and single trees can be compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oubli.verifier.canonical import canonical
from oubli.verifier.checkpoints import Checkpoint
from oubli.verifier.errors import FailedError, UncheckableError
from oubli.verifier.policies import Policy
from oubli.verifier.proofs import check_proof, original_of

EXACT = "exact"
_COMMITMENT = b"oubli positions key commitment\0"
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
        Of the model, made of its samples and parameters: what its digest is made of besides those of its trees.
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
    if key is None or _hash(_COMMITMENT + key) != entry.get("positions_key_hash"):
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
