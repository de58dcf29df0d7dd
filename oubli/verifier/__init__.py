"""Checks proofs of a server's log without the server: what is trusted is a policy file, and nothing else.

    canonical    JSON in the form of RFC 8785
    merkle       trees of RFC 6962 and RFC 9162: roots, inclusion, consistency
    notes        signed notes, keys and cosignatures of C2SP; FailedError and UncheckableError
    checkpoints  the signed head of a log; the policy that says which logs and how many witnesses are trusted;
                 a downloaded ledger against a checkpoint that was kept
    proofs       an entry is in a log; an erasure is; a name was among those erased
    states       a state of a model is in a log, with what the log has hashes of; signed predictions
    sets         a name is not in the set of samples; the root of that set from a list of all samples

What a server signs is made by other code, so that a mistake there is not repeated here. A server only reads signed
notes of witnesses with `notes`. This package needs `cryptography` for
Ed25519, and nothing else that Python does not bring. Formats: https://c2sp.org/signed-note, `tlog-checkpoint`,
`tlog-cosignature`, `tlog-policy` and `tlog-proof`.
"""

from oubli.verifier.checkpoints import Checkpoint, Policy, check_checkpoint, check_since, read_checkpoint, read_policy
from oubli.verifier.notes import FailedError, UncheckableError
from oubli.verifier.proofs import CheckedProof, check_proof, opening_of
from oubli.verifier.sets import CheckedAbsence, check_absence, is_absence_proof, set_root
from oubli.verifier.states import (
    CheckedPrediction,
    CheckedState,
    check_prediction,
    check_state,
    check_trees,
    same_answer,
)

__all__ = [
    "CheckedAbsence",
    "CheckedPrediction",
    "CheckedProof",
    "CheckedState",
    "Checkpoint",
    "FailedError",
    "Policy",
    "UncheckableError",
    "check_absence",
    "check_checkpoint",
    "check_prediction",
    "check_proof",
    "check_since",
    "check_state",
    "check_trees",
    "is_absence_proof",
    "opening_of",
    "read_checkpoint",
    "read_policy",
    "same_answer",
    "set_root",
]
