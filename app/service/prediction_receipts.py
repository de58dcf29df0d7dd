"""Signed receipts of predictions: which model has answered what to which rows. They are made on request, and not kept.

    message     oubli.prediction/v1
                model version, root over the samples that the model is a function of
                SHA-256(nonce | rows), SHA-256(nonce | answer), in hexadecimal, a line each

Rows and answer are hashed as JSON with sorted keys; a state of the version in the ledger has the same root. Whoever has
rows, answer and receipt can show it to others; the nonce keeps everybody else from testing guesses.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from oubli.app.service.results import PredictionReceipt

if TYPE_CHECKING:
    from oubli.app.ledger.ledger import Ledger
    from oubli.app.service.lock import ModelLock
    from oubli.app.service.results import Predicted
    from oubli.app.service.sample_set import SampleSet
    from oubli.app.threads import Threads

_FIRST_LINE = "oubli.prediction/v1"
_NONCE_BYTES = 16
_ATTEMPTS = 3
_FEW = 500  # rows that are hashed on the event loop
_as_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


@dataclass(eq=False, repr=False)
class PredictionSigner:
    """Signs predictions.

    Parameters
    ----------
    sets
        Knows the root over the samples.
    ledger
        Has the key.
    lock, threads
        Who may change the model, and the threads.
    require_leading
        Raises `NotLeaderError` where another node signs.
    """

    _sets: SampleSet
    _ledger: Ledger
    _lock: ModelLock
    _threads: Threads
    _require_leading: Callable[[], object]

    async def predict(self, predict: Callable[[], Awaitable[Predicted]]) -> tuple[Predicted, str]:
        """Return predictions, and in hexadecimal the root over the samples at their version.

        Where changes come so often that the two do not meet, they are made in the turn of one.
        """
        self._require_leading()
        for _ in range(_ATTEMPTS):
            found = await self._sets.root()
            predicted = await predict()
            if predicted.model_version == found.model_version:
                return predicted, found.root.hex()
        async with self._lock.mutation():
            return await predict(), (await self._sets.root()).root.hex()

    async def sign(
        self, version: int, root: str, instances: Sequence[Any], answer: Mapping[str, Any]
    ) -> PredictionReceipt:
        """Return the receipt of an answer.

        Parameters
        ----------
        version, root
            Of the model that has answered.
        instances
            As they were sent.
        answer
            `predictions`, and of a classifier `classes` and `probabilities`, as lists.
        """
        make = partial(self._sign, version, root, instances, answer)
        return make() if len(instances) <= _FEW else await self._threads.read(make)

    def _sign(self, version: int, root: str, instances: Sequence[Any], answer: Mapping[str, Any]) -> PredictionReceipt:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hashes = (sha256(nonce + _as_json(part).encode("utf-8")).hexdigest() for part in (instances, answer))
        message = "\n".join([_FIRST_LINE, str(version), root, *hashes, ""])
        return PredictionReceipt(nonce.hex(), root, *self._ledger.sign(message.encode("ascii")))
