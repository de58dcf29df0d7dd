"""The witnesses of the log: others who sign that it only ever grows (c2sp.org/tlog-witness).

    POST <url>/add-checkpoint     the size that the witness has seen, the proof from there, the new checkpoint
                                  200: its cosignature; 409: it has seen another size; 422: the log has contradicted
    GET  <url>/<log>/checkpoint   the last checkpoint that it has cosigned

What a witness says of itself counts for little: only a checkpoint that we have signed shows that something is missing.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from oubli.app.ledger.signed_notes import Checkpoint, WitnessKey, hash_lines, read_checkpoint, read_witness_key
from oubli.app.privacy.addresses import Endpoint, parse_endpoint
from oubli.app.privacy.sender import Sender

log = logging.getLogger("oubli.service")

_ATTEMPTS = 3  # the first tells the size that the witness has seen
_OK, _CONFLICT = 200, 409
_MOST_DIGITS = 15
_PAUSE = 30.0  # seconds for which a witness is not asked that has not answered


class RolledBackError(Exception):
    """A witness has a checkpoint that we have signed, and the ledger here is not the one that it was signed over.

    Parameters
    ----------
    size
        In that checkpoint.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


@dataclass(eq=False, repr=False)
class Witness:
    """One witness.

    Parameters
    ----------
    key
        That cosigns.
    endpoint
        Its address; the paths of the protocol are below.
    sender
        Sends requests.

    Attributes
    ----------
    size
        How many entries it has seen, as far as is known.
    failing
        Whether the last attempt has failed.
    """

    key: WitnessKey
    endpoint: Endpoint
    sender: Sender
    size: int = field(default=0, init=False)
    failing: bool = field(default=False, init=False)
    _ask_again_at: float = field(default=0.0, init=False)

    async def cosign(
        self,
        checkpoint: Checkpoint,
        consistency: Callable[[int, int], Awaitable[Sequence[bytes]]],
        holds: Callable[[Checkpoint], Awaitable[bool]],
    ) -> list[str]:
        """Return the cosignatures of a checkpoint; none when the witness does not give one.

        Parameters
        ----------
        checkpoint
            That is to be cosigned.
        consistency
            Returns the proof from one size of the log to another.
        holds
            Whether the ledger here is one that an earlier checkpoint was signed over by us; see `RolledBackError`.

        Raises
        ------
        RolledBackError
            When the witness has seen entries that we have signed and do not have.
        """
        if time.monotonic() < self._ask_again_at:
            return []
        for _ in range(_ATTEMPTS):
            self.size = min(self.size, checkpoint.size)
            proof = hash_lines(await consistency(self.size, checkpoint.size))
            body = "\n".join([f"old {self.size}", *proof, "", checkpoint.note]).encode()
            outcome = await self.sender.request("POST", self._place("add-checkpoint"), (), body)
            if outcome.status == _OK:
                found = self.key.cosignatures(checkpoint, outcome.body.decode("utf-8", "replace"))
                self.size = checkpoint.size
                self._tell(None if found else "its cosignature is not valid")
                return found
            if outcome.status is None:
                # Every checkpoint would wait for the end of an attempt.
                self._ask_again_at = time.monotonic() + _PAUSE
                self._tell(outcome.failure)
                return []
            told = outcome.body.strip()
            if outcome.status != _CONFLICT or not told.isdigit() or len(told) > _MOST_DIGITS:
                break
            self.size = int(told)
            if self.size > checkpoint.size:
                break
        await self._compare(checkpoint, holds)
        self._tell(f"it answered {outcome.status}")
        return []

    async def _compare(self, checkpoint: Checkpoint, holds: Callable[[Checkpoint], Awaitable[bool]]) -> None:
        """Look at what the witness has cosigned last: it counts when it is signed by us."""
        place = self._place(f"{hashlib.sha256(checkpoint.origin.encode()).hexdigest()}/checkpoint")
        outcome = await self.sender.request("GET", place)
        if outcome.status != _OK:
            return
        try:
            seen = read_checkpoint(outcome.body.decode("utf-8"))
        except ValueError:
            return
        if seen.origin == checkpoint.origin and not await holds(seen):
            raise RolledBackError(seen.size)

    def _place(self, path: str) -> Endpoint:
        return replace(self.endpoint, target=f"{self.endpoint.target.rstrip('/')}/{path}")

    def _tell(self, failure: str | None) -> None:
        if failure is not None and not self.failing:
            log.warning("the witness %s does not cosign: %s", self.key.name, failure)
        self.failing = failure is not None


def parse_witness(text: str, *, plain_http: bool) -> tuple[WitnessKey, Endpoint]:
    """Return key and address of a witness of the settings, `KEY URL`.

    Raises
    ------
    ValueError
        When it is not written so.
    """
    key, _, url = text.strip().partition(" ")
    try:
        return read_witness_key(key), parse_endpoint(url.strip(), plain_http=plain_http)
    except ValueError:
        raise ValueError(
            "must be the key of a witness, name+id+base64, a space and its URL, such as https://witness.example"
        ) from None
