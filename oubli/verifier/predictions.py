"""Receipts of predictions: which model has answered what to which rows.

    message     oubli.prediction/v1
                model version, root over the samples that the model is a function of
                SHA-256(nonce | rows), SHA-256(nonce | answer), in hexadecimal, a line each
    rows        `instances` as they were sent
    answer      an object of `predictions`, and of a classifier `classes` and `probabilities`

Rows and answer are JSON with sorted keys and nothing between its signs. Numbers have the fewest digits that read back
as the same number, as Python writes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oubli.verifier.errors import FailedError
from oubli.verifier.notes import decode, is_valid
from oubli.verifier.policies import Policy
from oubli.verifier.proofs import public_key

_FIRST_LINE = "oubli.prediction/v1"
_ANSWERED = ("classes", "predictions", "probabilities")
_LARGEST_INTEGER = 2**64  # what servers read as another number from here on


@dataclass(frozen=True, slots=True)
class CheckedPrediction:
    """A receipt of a prediction that is signed.

    Attributes
    ----------
    model_version
        Of the model that has answered.
    set_root
        Over the samples that it is a function of, in hexadecimal.
    instances
        What was asked.
    answer
        What was answered.
    """

    model_version: int
    set_root: str
    instances: list[Any]
    answer: dict[str, Any]


def check_prediction(content: Mapping[str, Any], policy: Policy) -> CheckedPrediction:
    """Check the receipt of a prediction.

    Parameters
    ----------
    content
        `instances` as they were sent to `POST /predict`, and `answer` as it came.
    policy
        Whom to trust: the key of a log has signed it.

    Raises
    ------
    FailedError
        When it does not hold.
    """
    instances, answer = content.get("instances"), content.get("answer")
    receipt = answer.get("receipt") if isinstance(answer, dict) else None
    if not isinstance(instances, list) or not isinstance(answer, dict) or not isinstance(receipt, dict):
        raise FailedError("format", "a receipt of a prediction has 'instances', and 'answer' with its 'receipt'")
    version, root = answer.get("model_version"), receipt.get("set_root")
    public = public_key(policy, str(receipt.get("key_id")))
    answered = {name: answer[name] for name in _ANSWERED if name in answer}
    try:
        nonce, signature = bytes.fromhex(str(receipt.get("nonce"))), decode(str(receipt.get("signature")))
        message = message_of(version, root, nonce, instances, answered)
        signed = is_valid(public, signature, message)
    except (ValueError, OverflowError, RecursionError):
        signed = False
    if not signed or type(version) is not int or not isinstance(root, str):
        raise FailedError(
            "prediction-signature", "the signature is not that of these rows, this answer, this version and this root"
        )
    return CheckedPrediction(version, root, instances, answered)


def message_of(version: object, root: object, nonce: bytes, instances: list[Any], answer: Mapping[str, Any]) -> bytes:
    """Return what is signed."""
    hashes = [hashlib.sha256(nonce + _written(part)).hexdigest() for part in (instances, dict(answer))]
    return "".join(f"{line}\n" for line in (_FIRST_LINE, version, root, *hashes)).encode()


def same_answer(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two answers are the same to the last bit."""
    return _written(dict(one)) == _written(dict(other))


def _written(value: Any) -> bytes:
    return json.dumps(_read(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def _read(value: Any) -> Any:
    """Return a value as servers read it: integers of more than 64 bits are fractions to them."""
    if isinstance(value, dict):
        return {name: _read(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_read(one) for one in value]
    if type(value) is int and not -_LARGEST_INTEGER // 2 <= value < _LARGEST_INTEGER:
        return float(value)
    return value
