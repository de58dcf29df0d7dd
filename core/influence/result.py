"""What a question is answered."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oubli.core.array_types import Reals
from oubli.core.errors import InputError


@dataclass(frozen=True, eq=False)
class Influence:
    """How much each training sample helps on some rows.

    A positive score says that the sample helps: removing it raises the loss on the rows. For "leave-one-out" and
    "leaf-refit" it is by how much, loss without the sample minus loss with it. For "leaf-influence" it is minus the
    derivative of the loss by the sample's weight, in the structures of the trees and with their leaves refitted: by how
    much to first order, for a sample of weight 1.

    Attributes
    ----------
    ids : sequence of str, length n
    scores : float64[n], or float64[n, rows] with reduce=None
    method : str
    note : str
        What there is to know about these scores; empty when they are what the method says.
    """

    ids: Sequence[str]
    scores: Reals
    method: str
    note: str = ""

    def helpful(self, top: int = 10, row: int | None = None) -> list[tuple[str, float]]:
        """The samples that help most, with their scores, best first: only positive ones.

        row : which row is meant, with reduce=None.
        """
        return self._ranked(top, row, sign=1.0)

    def harmful(self, top: int = 10, row: int | None = None) -> list[tuple[str, float]]:
        """The samples that harm most, with their scores, worst first: only negative ones.

        row : which row is meant, with reduce=None.
        """
        return self._ranked(top, row, sign=-1.0)

    def _ranked(self, top: int, row: int | None, sign: float) -> list[tuple[str, float]]:
        if self.scores.ndim == 1:
            if row is not None:
                raise InputError("there is one score for all rows: leave `row` out, or ask with reduce=None")
            scores = self.scores
        else:
            if row is None:
                raise InputError("there is a score for each row: name one by `row`, or ask with reduce='mean'")
            n_rows = self.scores.shape[1]
            if not 0 <= row < n_rows:
                raise InputError(f"row={row} must be from 0 to {n_rows - 1}")
            scores = self.scores[:, row]
        order = np.argsort(-sign * scores, kind="stable")[: max(int(top), 0)]
        return [(self.ids[i], float(scores[i])) for i in order.tolist() if sign * scores[i] > 0]
