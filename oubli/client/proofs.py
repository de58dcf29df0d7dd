"""What the client returns of proofs: frozen dataclasses, each with its content as answered, for `oubli.verifier`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from oubli.client.errors import UnexpectedAnswerError
from oubli.client.results import Predictions, read, read_predictions


@dataclass(frozen=True, slots=True)
class ModelState:
    """What the model was at a version, as an entry of the ledger says it.

    Attributes
    ----------
    index, at
        Of the entry: its place in the ledger, and when it was made.
    model_version, n_samples
        Of the model, and how many samples it was a function of.
    set_root
        Over these samples, in hexadecimal.
    positions_key_hash
        Of the key by which samples have their places below the root.
    kind, guarantee
        Of the model.
    parameters
        JSON, with the seed.
    schema_hash
        SHA-256 of the schema.
    software
        Version of the server.
    digest_format, digest_hash
        Of a model that is exact: which digest it is, and SHA-256 of salt and digest.
    content
        All of it, as the server answered it.
    """

    index: int
    at: datetime
    model_version: int
    n_samples: int
    set_root: str
    positions_key_hash: str
    kind: str
    guarantee: str
    parameters: str
    schema_hash: str
    software: str
    digest_format: int | None
    digest_hash: str | None
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ProvedState:
    """A state with what an audit needs; `oubli.verifier.check_state` checks its `content`.

    Attributes
    ----------
    state
        As the ledger has it.
    proof
        That the entry is in the log (c2sp.org/tlog-proof).
    salt, digest
        Of the model. None once an erasure was finished after it, and where the model is not exact.
    tree_digests
        Of its trees, in their order. None unless they were asked for while the model was of this version, and where
        trees depend on each other.
    schema
        Of the samples; None in a ledger that was downloaded.
    positions_key
        None when it is another by now.
    content
        All of it, as the server answered it: the file that `oubli audit --state` reads.
    """

    state: ModelState
    proof: str
    salt: str | None = field(repr=False)
    digest: str | None = field(repr=False)
    schema: Mapping[str, Any] | None = field(repr=False)
    positions_key: str | None = field(repr=False)
    tree_digests: list[str] | None = field(default=None, repr=False)
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AbsenceProof:
    """That no sample that the model has learned has an id, or is of a subject.

    `oubli.verifier.check_absence` and `oubli proof check` check its `content`, which must be kept as it is.

    Attributes
    ----------
    by, name
        `ids` or `subjects`, and the name.
    model_version
        Of the state that it is about.
    way
        Hashes that lead to the root over the samples, base64.
    state
        Proof that the log tells of this root. None where nothing could be written or signed: then the proof is worth
        no more than the root that it is compared with.
    content
        All of it, as the server answered it.
    """

    by: Literal["ids", "subjects"]
    name: str
    model_version: int
    way: str = field(repr=False)
    state: str | None = field(repr=False)
    content: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class SignedPredictions:
    """Predictions with a receipt; the server keeps nothing of it.

    Attributes
    ----------
    predictions
        As `predict` returns them.
    set_root
        Over the samples that the model is a function of, in hexadecimal.
    key_id
        Of the key that has signed.
    content
        `instances` as they were sent, and `answer` as it came: what `oubli.verifier.check_prediction` and `oubli proof
        check` check, and a line of the file for `oubli audit --receipts`.
    """

    predictions: Predictions
    set_root: str
    key_id: str
    content: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Receipt:
    nonce: str
    set_root: str
    key_id: str
    signature: str


def read_state(content: Any) -> ModelState:
    """Return a state."""
    return read(ModelState, _with_itself(content))


def read_proved_state(content: Any) -> ProvedState:
    """Return a state with its proof."""
    if not isinstance(content, dict) or "state" not in content:
        return read(ProvedState, content)
    return read(ProvedState, {**content, "state": read_state(content["state"]), "content": content})


def read_absence(content: Any) -> AbsenceProof:
    """Return a proof of absence."""
    return read(AbsenceProof, _with_itself(content))


def read_signed(instances: Any, answer: Any, index: Any) -> SignedPredictions:
    """Return predictions with their receipt."""
    if not isinstance(answer, dict) or "receipt" not in answer:
        raise UnexpectedAnswerError("the answer has no receipt: the server is of an earlier version", 200)
    receipt, content = read(_Receipt, answer["receipt"]), {"instances": instances, "answer": answer}
    return SignedPredictions(read_predictions(answer, index), receipt.set_root, receipt.key_id, content)


def _with_itself(content: Any) -> Any:
    return {**content, "content": content} if isinstance(content, dict) else content
