"""Checks proofs of a server's log without the server: what is trusted is a policy file, and nothing else.

    errors       FailedError: a proof does not hold, with the rule; UncheckableError: nothing was checked
    merkle       trees of RFC 6962 and RFC 9162: roots, inclusion, consistency
    notes        signed notes, keys and cosignatures of C2SP
    policies     which logs are trusted, and how many witnesses must have cosigned
    checkpoints  the signed head of a log
    proofs       that an entry is in a log; that an erasure is; that a name was among those erased
    ledgers      a downloaded ledger against a checkpoint that was kept
    states       that a state of a model is in a log, with what it has hashes of
    predictions  which model has answered what to which rows
    sets         that a name is not in the set of samples; the root of that set from a list of all samples

It shares no module with the code that signs, so that a mistake there is not repeated here. It needs `cryptography` for
Ed25519, and nothing else that Python does not bring. Formats: https://c2sp.org/signed-note, `tlog-checkpoint`,
`tlog-cosignature`, `tlog-policy` and `tlog-proof`.
"""

from oubli.verifier.checkpoints import Checkpoint, check_checkpoint, read_checkpoint
from oubli.verifier.errors import FailedError, UncheckableError
from oubli.verifier.ledgers import check_since
from oubli.verifier.policies import Policy, read_policy
from oubli.verifier.predictions import CheckedPrediction, check_prediction, same_answer
from oubli.verifier.proofs import CheckedProof, check_proof, opening_of
from oubli.verifier.sets import CheckedAbsence, check_absence, is_absence_proof, set_root
from oubli.verifier.states import CheckedState, check_state, check_trees

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
