"""The shapes of answers about states of the model."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from oubli.app.http.schemas.shapes import Hash, NextCursor, Shape, Version

Secret = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="32 bytes in hexadecimal.")]


class StateEntry(Shape):
    """What the model was at a version, as the ledger has it. There is no personal data in it."""

    index: Annotated[int, Field(ge=1)]
    previous: Hash
    type: Literal["state"]
    at: datetime
    model_version: Version
    n_samples: Annotated[int, Field(ge=0)]
    """How many the model was a function of."""
    set_root: Hash
    """Over these samples; it is a function of them alone."""
    positions_key_hash: Hash
    """Of the key by which samples have their places below the root."""
    kind: str
    guarantee: str
    parameters: str
    """JSON, with the seed."""
    schema_hash: Hash
    """SHA-256 of the schema, JSON in the form of RFC 8785."""
    software: str
    """Version of the server."""
    digest_format: int | None
    digest_hash: Hash | None
    """SHA-256 of salt and digest; null where the model is not exact."""
    hash: Hash


class StatesAnswer(Shape):
    """A page of states, the oldest first."""

    states: list[StateEntry]
    next: NextCursor


class StateAnswer(Shape):
    """A state with what an audit needs."""

    state: StateEntry
    proof: str
    """That the entry is in the log (c2sp.org/tlog-proof)."""
    salt: Secret | None
    """Null, as `digest`, once an erasure was finished after it, and where the model is not exact."""
    digest: Hash | None
    tree_digests: list[Hash] | None
    """Of the trees, in their order: what `digest` is made of, with all else that decides a prediction. Null unless they
    were asked for while the model was of this version, and where trees depend on each other."""
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")]
    """Of the samples; null in a ledger that was downloaded."""
    positions_key: Secret | None
    """Null when it is another by now."""
