"""Random bytes beside samples: a hash of a sample that begins with them confirms no guesses about it.

    slot      0     1     2     3
    rows    16 B  zeros  16 B  16 B       zeros: none

Whoever wants them gives them. A library without them has no row, and pays for none. Nothing is kept of a sample that
has gone.
"""

from collections.abc import Sequence

import numpy as np

from oubli.core.array_types import Array, Bools, Ints
from oubli.core.errors import ensure

NONCE_BYTES = 16
_FEW = 8  # NumPy takes longer to begin than so many copies


class NonceIndex:
    """Nonces by slot.

    Attributes
    ----------
    rows : uint8[as many slots as there has been need for, 16]
    """

    def __init__(self) -> None:
        self.rows: Array = np.zeros((0, NONCE_BYTES), np.uint8)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.rows.nbytes

    def get(self, slot: int) -> bytes | None:
        """Return the nonce of the sample in a slot; None when it has none."""
        if slot >= len(self.rows):
            return None
        nonce = self.rows[slot].tobytes()
        return nonce if any(nonce) else None

    def note(self, slots: Sequence[int] | Ints, nonces: bytes) -> None:
        """Give the samples in slots, of which there is one at least, nonces: 16 bytes each, one behind the other."""
        if len(slots) > _FEW:
            self.reserve(int(np.max(slots)) + 1)
            self.rows[slots] = np.frombuffer(nonces, np.uint8).reshape(-1, NONCE_BYTES)
            return
        self.reserve(int(max(slots)) + 1)
        flat, size = memoryview(self.rows.data).cast("B"), NONCE_BYTES
        for row, slot in enumerate(slots):
            flat[size * slot : size * slot + size] = nonces[size * row : size * row + size]

    def forget(self, slots: Sequence[int]) -> None:
        """Overwrite the nonces of the samples in slots."""
        rows, n = self.rows, len(self.rows)
        for slot in slots:
            if slot < n:
                rows[slot] = 0

    def slots(self) -> Ints:
        """Return the slots of samples with a nonce, ascending."""
        return np.flatnonzero(self.rows.any(axis=1))

    def copy(self) -> "NonceIndex":
        """Return an independent copy."""
        other = NonceIndex()
        other.rows = self.rows.copy()
        return other

    def check_invariants(self, held: Bools) -> None:
        """Check against the slots in use, bool[capacity]; AssertionError names what is broken."""
        slots = self.slots()
        ensure(not len(slots) or (slots[-1] < len(held) and held[slots].all()), "a free slot has a nonce")

    def reserve(self, n_slots: int) -> None:
        """Make room for so many slots."""
        n = len(self.rows)
        if n_slots > n:
            old, self.rows = self.rows, np.pad(self.rows, ((0, max(n_slots - n, n)), (0, 0)))
            old[...] = 0  # freed memory must not keep them
