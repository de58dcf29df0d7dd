"""Checkpoints (c2sp.org/tlog-checkpoint): the size and the root of a log, signed by it and cosigned by witnesses."""

from __future__ import annotations

from dataclasses import dataclass

from oubli.verifier.errors import FailedError, UncheckableError
from oubli.verifier.merkle import HASH_BYTES
from oubli.verifier.notes import Note, VerifierKey, decode_or_fail, is_signed, read_decimal, read_note
from oubli.verifier.policies import Policy


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The head of a log.

    Attributes
    ----------
    origin
        Which log.
    size
        How many entries it has.
    root
        Of its tree.
    note
        With its signatures, as it was read.
    """

    origin: str
    size: int
    root: bytes
    note: Note


def read_checkpoint(text: str) -> Checkpoint:
    """Return a checkpoint; no signature is checked.

    Raises
    ------
    FailedError
        When it is none.
    """
    note = read_note(text)
    lines = note.text.split("\n")[:-1]
    if len(lines) < 3 or not all(lines):
        raise FailedError("format", "a checkpoint has three lines: origin, size, root")
    size, root = read_decimal(lines[1], "the size in the checkpoint"), decode_or_fail(lines[2], "the root")
    if len(root) != HASH_BYTES:
        raise FailedError("format", "the root in the checkpoint is none")
    return Checkpoint(lines[0], size, root, note)


def check_signature(checkpoint: Checkpoint, keys: tuple[VerifierKey, ...]) -> VerifierKey:
    """Return the first of some keys of logs that has signed a checkpoint of its log.

    Raises
    ------
    FailedError
        When none has.
    """
    of_origin = [key for key in keys if key.name == checkpoint.origin]
    if not of_origin:
        raise FailedError("log", f"the log {checkpoint.origin} is none of those that the policy trusts")
    signed = [key for key in of_origin if is_signed(checkpoint.note, key)]
    if not signed:
        raise FailedError("log-signature", f"no key that the policy trusts has signed for the log {checkpoint.origin}")
    return signed[0]


def check_checkpoint(checkpoint: Checkpoint, policy: Policy) -> list[str]:
    """Check a checkpoint; return the names of the witnesses that have cosigned it.

    Raises
    ------
    FailedError
        When the log has not signed it, or too few witnesses have.
    UncheckableError
        When the policy names no log.
    """
    if not policy.logs:
        raise UncheckableError("the policy names no log: add a line 'log KEY'")
    check_signature(checkpoint, policy.logs)
    cosigned = [name for name, key in policy.witnesses.items() if is_signed(checkpoint.note, key)]
    if not policy.is_met(set(cosigned)):
        raise FailedError(
            "quorum", f"too few witnesses have cosigned the checkpoint: {', '.join(cosigned) or 'none of them'}"
        )
    return cosigned
