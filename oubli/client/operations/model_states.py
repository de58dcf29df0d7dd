"""States of the model in the log, and proofs about the set of samples that it has learned."""

from __future__ import annotations

from oubli.client.errors import DataError
from oubli.client.messages import Emit, Emits, Flow
from oubli.client.operations.requests import object_of, posting, reading
from oubli.client.proofs import AbsenceProof, ModelState, ProvedState, read_absence, read_proved_state, read_state
from oubli.client.session import Session


def tell_state(session: Session) -> Flow[ModelState]:
    """Have the server write into its ledger what the model is now; return the entry, which is written once a version.

    Raises
    ------
    ConflictError
        When samples were erased meanwhile: ask again.
    UnavailableError
        When nothing can be written.
    """
    return read_state((yield from session.ask(posting("/model/states", is_safe=True))))


def states(session: Session, *, page_size: int | None = None) -> Emits[ModelState]:
    """Iterate over the states that the ledger tells of, the oldest first. Pages are asked for as they are needed.

    Parameters
    ----------
    page_size : int, optional
        States an answer.
    """
    cursor: str | None = None
    while True:
        content = object_of((yield from session.ask(reading("/model/states", cursor=cursor, limit=page_size))))
        for one in content.get("states", []):
            yield Emit(read_state(one))
        cursor = content.get("next")
        if cursor is None:
            return


def state(session: Session, state: ModelState | int, *, trees: bool = False) -> Flow[ProvedState]:
    """Return a state with its proof, and with what an audit needs (scope `audit`).

    Parameters
    ----------
    state : ModelState or int
        The state, or the index of its entry.
    trees : bool, default False
        Also have the digests of the trees computed, for an audit of single trees; only while the model is of this
        version.

    Raises
    ------
    NotFoundError
        When there is none.
    """
    index = state if isinstance(state, int) else state.index
    asked = reading(f"/model/states/{index}", trees="true" if trees else None)
    return read_proved_state((yield from session.ask(asked)))


def prove_absence(
    session: Session, sample_id: str | int | None = None, *, subject: str | int | None = None
) -> Flow[AbsenceProof]:
    """Return a proof that no sample that the model has learned has an id, or is of a subject.

    Parameters
    ----------
    sample_id, subject : str or int
        Either an id or a subject. It is sent in the body, and never in an address.

    Raises
    ------
    ConflictError
        When it is held, restricted samples included: then there is nothing to prove.
    DataError
        When both or neither are given.
    """
    if (sample_id is None) == (subject is None):
        raise DataError("give either an id or a subject")
    named = {"id": sample_id} if subject is None else {"subject": subject}
    return read_absence((yield from session.ask(posting("/samples/absence-proofs", named, is_safe=True))))
