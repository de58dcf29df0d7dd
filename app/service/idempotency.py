"""`Idempotency-Key`: a request that comes again gets the answer of the first, and changes nothing.

What is kept of a request is committed with its mutation and expires: keyed hashes of the key and the body, and
references. The ids of an answer are those of the repeated body; of generated ones the first is kept, hidden by what
only the caller's key tells.
"""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from oubli.app.errors import InvalidKeyError, RepeatedKeyError
from oubli.app.ledger.entries import IdempotencyRecord
from oubli.app.ledger.ledger import Ledger, LedgerWorker

KEPT_MS = 86_400_000
LONGEST = 255
_KEYS = uuid.UUID("6f75626c-692d-4a6f-8273-2d6279206b65")  # the name space of keyed requests


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A key that came with a request.

    Attributes
    ----------
    key, body
        Keyed hashes of the key with the route, and of the body.
    mask
        Hides the first generated id.
    earlier
        How the request was answered before; None when it is new.
    """

    key: str
    body: str
    mask: int
    earlier: IdempotencyRecord | None = None

    def as_uuid(self) -> str:
        """Return an id that is the same whenever the request comes."""
        return str(uuid.uuid5(_KEYS, self.key))

    def record(
        self,
        *,
        now_ms: int,
        model_version: int,
        n_samples: int,
        n_new: int = 0,
        first_id: int | None = None,
        receipt: str | None = None,
    ) -> IdempotencyRecord:
        """Return what to keep of the answer."""
        return IdempotencyRecord(
            key=self.key,
            body=self.body,
            expires_ms=now_ms + KEPT_MS,
            model_version=model_version,
            n_samples=n_samples,
            n_new=n_new,
            first_id=None if first_id is None else first_id ^ self.mask,
            receipt=receipt,
        )


@dataclass(eq=False, repr=False)
class IdempotencyKeys:
    """The keys of requests, one request of a key at a time.

    Parameters
    ----------
    ledger
        Hashes.
    database
        Reads what was kept.
    now_ms
        The time, in milliseconds since 1970.
    """

    _ledger: Ledger
    _database: LedgerWorker
    _now_ms: Callable[[], int]
    _in_flight: dict[str, asyncio.Lock] = field(default_factory=dict, init=False)

    @asynccontextmanager
    async def use(self, text: str | None, route: str, body: bytes | str) -> AsyncIterator[IdempotencyKey | None]:
        """Have the key of a request for as long as it takes; None when it has none.

        Parameters
        ----------
        text
            The key.
        route
            What it is for.
        body
            Of the request, or its SHA-256 in hexadecimal digits.

        Raises
        ------
        InvalidKeyError, RepeatedKeyError
            When the key is too long, or was used with another body.
        """
        if text is None:
            yield None
            return
        if not 0 < len(text) <= LONGEST:
            raise InvalidKeyError(f"must have 1 to {LONGEST} characters")
        key = self._ledger.hash_text(f"{route}\0{text}")
        lock = self._in_flight.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                yield await self._look_up(key, text, route, body)
        finally:
            if not lock.locked():
                self._in_flight.pop(key, None)

    async def _look_up(self, key: str, text: str, route: str, body: bytes | str) -> IdempotencyKey:
        now = self._now_ms()
        earlier = await self._database.read(lambda store: store.idempotent(key, now))
        digest = body if isinstance(body, str) else hashlib.sha256(body).hexdigest()
        hashed = self._ledger.hash_text(f"{route}\0{digest}")
        if earlier is not None and earlier.body != hashed:
            raise RepeatedKeyError
        mask = int(self._ledger.hash_text(f"ids\0{route}\0{text}")[:13], 16)  # 52 bits: below all JSON numbers
        return IdempotencyKey(key, hashed, mask, earlier)
