"""A client for servers of Oubli. `pip install 'oubli-server[client]'` brings what it needs; it needs no model library.

`Client` waits and `AsyncClient` awaits; both are made from the same operations. `errors` has the tree of exceptions.
"""

import typing as _typing

from oubli.api.erasures import DeadLetter, NothingErased, Receipt
from oubli.api.ledger import AbsenceProof, LedgerEntry, ModelState, ProvedState, PublicKey
from oubli.api.model import Feature, Job, Label, Model, Restored, Schema, Snapshot
from oubli.api.predictions import Influence
from oubli.api.samples import Added, Bundle, ExportedSample, HeldSample, Influential, Restriction
from oubli.api.server import Access, AccessKey, Cluster, ClusterNode, Leader, Readiness
from oubli.client.errors import (
    AccessError,
    BusyError,
    ClientError,
    ConflictError,
    DataError,
    EmptyModelError,
    EphemeralError,
    ErasedLatelyError,
    IdConflictError,
    InputProblem,
    InvalidInputError,
    JobFailedError,
    NoAnswerError,
    NotFoundError,
    NotLeaderError,
    ProblemError,
    ReceiptError,
    RestrictedError,
    ServerError,
    TimedOutError,
    TooLargeError,
    UnavailableError,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from oubli.client.messages import Answer, Request
from oubli.client.results import ListedDeletion, Predictions, SignedPredictions, Without
from oubli.client.session import Retries
from oubli.client.tables import IndexWarning

if _typing.TYPE_CHECKING:
    from oubli.client.client import AsyncClient, Client

__all__ = [
    "AbsenceProof",
    "Access",
    "AccessError",
    "AccessKey",
    "Added",
    "Answer",
    "AsyncClient",
    "Bundle",
    "BusyError",
    "Client",
    "ClientError",
    "Cluster",
    "ClusterNode",
    "ConflictError",
    "DataError",
    "DeadLetter",
    "EmptyModelError",
    "EphemeralError",
    "ErasedLatelyError",
    "ExportedSample",
    "Feature",
    "HeldSample",
    "IdConflictError",
    "IndexWarning",
    "Influence",
    "Influential",
    "InputProblem",
    "InvalidInputError",
    "Job",
    "JobFailedError",
    "Label",
    "Leader",
    "LedgerEntry",
    "ListedDeletion",
    "Model",
    "ModelState",
    "NoAnswerError",
    "NotFoundError",
    "NotLeaderError",
    "NothingErased",
    "Predictions",
    "ProblemError",
    "ProvedState",
    "PublicKey",
    "Readiness",
    "Receipt",
    "ReceiptError",
    "Request",
    "Restored",
    "RestrictedError",
    "Restriction",
    "Retries",
    "Schema",
    "ServerError",
    "SignedPredictions",
    "Snapshot",
    "TimedOutError",
    "TooLargeError",
    "UnavailableError",
    "UnexpectedAnswerError",
    "WaitTimeoutError",
    "Without",
]


def __getattr__(name: str) -> _typing.Any:
    """Import the clients when they are asked for: `oubli.client.load` needs nothing of the extra."""
    if name not in ("AsyncClient", "Client"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from oubli.client import client

    return getattr(client, name)
