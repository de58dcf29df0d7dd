"""What the verifier raises."""

from typing import Literal

Rule = Literal[
    "format",
    "log",
    "log-signature",
    "quorum",
    "inclusion",
    "consistency",
    "entry",
    "receipt",
    "receipt-signature",
    "opening",
    "truncated",
    "rewritten",
    "state",
    "positions-key",
    "salted-digest",
    "version",
    "set-root",
    "digest",
    "tree-digests",
    "prediction-signature",
    "prediction",
    "name",
    "absence",
    "position",
    "set",
]
"""What a proof must keep to; `docs/how-to/proofs.md` and `docs/how-to/audit.md` explain each."""


class FailedError(Exception):
    """A proof does not hold.

    Parameters
    ----------
    rule
        The rule that is broken.
    text
        How, for a person.
    """

    def __init__(self, rule: Rule, text: str) -> None:
        super().__init__(text)
        self.rule = rule


class UncheckableError(Exception):
    """Nothing was checked: something is missing, or the policy is none. The text says what to do."""
