"""Messages about the audit ledger: entries, public keys, states of the model, and proofs."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from typing_extensions import TypeAliasType

from oubli.api.base import Answer, By, Hash, Kept, Name, NextCursor, Request, Secret, Uuid, Version, later, one_of


class LedgerEntry(Kept):
    """An entry of the audit ledger. Its other fields depend on its type.

    `hash` is the SHA-256 of the RFC 8785 form of everything else in it. An entry contains no personal data: ids and
    subjects are one root over hidden names, or keyed hashes in entries of earlier versions.
    """

    model_config = ConfigDict(extra="allow")

    index: Annotated[int, Field(ge=1)] = Field(description="Its position, from 1.")
    previous: Hash = Field(description="`hash` of the entry before; zeros in the first.")
    type: str = Field(description="`signing-key`, `unlearned`, `erased`, or an event such as `restore` and `export`.")
    at: datetime
    hash: Hash


class KeyedHashes(Answer):
    """Hashes of the names of an erasure, under a key that the server keeps."""

    samples: list[str]
    targets: str = Field(description="Hash of all names of the request.")
    target_leaves: str = Field(description="The leaves below `targets_root` of the entry, base64.")
    sample_leaves: str | None = Field(
        None,
        description="The leaves below `samples_root`, base64; left out if they are the same.",
    )
    subjects: list[str] | None = Field(
        None,
        description="Hashes of the named subjects that were held; left out if ids were named or nothing was held.",
    )
    subject_samples: list[int] | None = Field(None, description="Number of samples of each of these subjects.")


class LedgerAnswer(Answer):
    """A page of the ledger, in order."""

    entries: list[LedgerEntry]
    keyed: dict[str, KeyedHashes] = later(
        {},
        description="By index: keyed hashes of entries of the type `unlearned`; they are not part of the hashed entry.",
    )
    next: NextCursor = later(None)
    checkpoint: str | None = later(
        None,
        description="Signed head of the log, on the last page: it shows that no entry is missing at the end. See "
        "`/log/checkpoint`.",
    )


class PublicKey(Answer):
    """A key that signs receipts."""

    key_id: str = Field(description="The first digits of the key's SHA-256.")
    algorithm: Annotated[str, one_of("Ed25519")] = later("Ed25519")
    public_key: str = Field(description="32 bytes, in base64.")
    status: Annotated[str, one_of("current", "retired")] = later("current")
    created_at: datetime | None = later(None)
    retired_at: datetime | None = later(None, description="Receipts that were signed before this time stay valid.")
    log_key: str | None = later(
        None,
        description="The key in the form of policies and witnesses: `log` and this text is a line of a policy.",
    )


class KeysAnswer(Answer):
    """The public keys, the current one first."""

    keys: list[PublicKey]


class ConsistencyAnswer(Answer):
    """Proof that the log has only grown."""

    from_: Annotated[int, Field(alias="from", ge=0)]
    to: Annotated[int, Field(ge=0)]
    proof: list[str] = Field(description="Hashes, base64.")


class OpeningAnswer(Answer):
    """The opening of an erasure, from which openings of single names are derived."""

    receipt: Uuid
    opening: Secret


class ModelState(Kept):
    """The state of the model at a version, as an entry of the ledger. It contains no personal data."""

    index: Annotated[int, Field(ge=1)] = Field(description="Position of the entry in the ledger.")
    previous: Hash
    type: Literal["state"]
    at: datetime
    model_version: Version
    n_samples: Annotated[int, Field(ge=0)] = Field(description="Number of samples that the model has learned.")
    set_root: Hash = Field(description="Root over these samples; it depends only on them.")
    positions_key_hash: Hash = Field(
        description="Hash of the key that determines the places of samples below the root."
    )
    kind: str
    guarantee: str
    parameters: str = Field(description="JSON, with the seed.")
    schema_hash: Hash = Field(description="SHA-256 of the schema, JSON in the form of RFC 8785.")
    software: str = Field(description="Version of the server.")
    digest_format: int | None
    digest_hash: Hash | None = Field(description="SHA-256 of salt and digest; null if the model is not exact.")
    hash: Hash


class StatesAnswer(Answer):
    """A page of states, the oldest first."""

    states: list[ModelState]
    next: NextCursor = later(None)


class ProvedState(Kept):
    """A state with the data for an audit; `oubli.verifier.check_state` and `oubli audit --state` check it."""

    state: ModelState
    proof: str = Field(description="Proof that the entry is in the log (c2sp.org/tlog-proof).")
    salt: Secret | None = Field(
        repr=False,
        description="Null, like `digest`, after the next finished erasure, and if the model is not exact.",
    )
    digest: Hash | None = Field(repr=False)
    tree_digests: list[Hash] | None = later(
        None,
        shown=False,
        description="Of the trees, in their order: the parts of `digest`, with all else that decides a prediction. "
        "Null unless they were asked for while the model was of this version, and where trees depend on each other.",
    )
    schema_: dict[str, Any] | None = Field(
        alias="schema",
        repr=False,
        description="Schema of the samples; null in a downloaded ledger.",
    )
    positions_key: Secret | None = Field(repr=False, description="Null if the key has changed since.")

    @property
    def schema(self) -> dict[str, Any] | None:  # type: ignore[override]
        """Schema of the samples; None in a ledger that was downloaded."""
        return self.schema_


class AbsentIdRequest(Request):
    """An id whose absence to prove."""

    id: Name


class AbsentSubjectRequest(Request):
    """A subject whose absence to prove."""

    subject: Name


AbsenceRequest = TypeAliasType("AbsenceRequest", AbsentIdRequest | AbsentSubjectRequest)


class AbsenceProof(Kept):
    """A path through the tree over all samples, up to where it leaves the tree: no sample has the id or subject.

    `oubli.verifier.check_absence` and `oubli proof check` check it.
    """

    format: Annotated[str, one_of("oubli-absence-proof@v1")] = later("oubli-absence-proof@v1")
    by: By
    name: str
    model_version: Version = Field(description="Version of the state that the proof is about.")
    way: str = Field(
        repr=False,
        description="Base64 of the position of the name (6 bytes), a bit for each depth with another child on the way "
        "(6 bytes; at the last the way leaves the tree), and the hashes of these children, from the root down. They "
        "lead to the root.",
    )
    state: str | None = Field(
        repr=False,
        description="Proof that the log contains this state with the root; null if it does not.",
    )
