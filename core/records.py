"""A sample on its way into the store, and on its way out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from core.targets import Label


@dataclass(frozen=True, slots=True)
class HeldSample:
    """One sample as it is held.

    Attributes
    ----------
    id : str
        Its id.
    features : list
        In the order of the schema: float for numeric columns, bool for boolean ones, text for
        categorical ones, None where missing.
    label : str, int, float or bool
        Its label, of the schema's type.
    subject : str or None
        Whom it belongs to.
    """

    id: str
    features: list[float | str | bool | None]
    label: Label
    subject: str | None


@dataclass(slots=True)
class Prepared:
    """Rows that have passed every check and only wait to be committed.

    Attributes
    ----------
    n : int
        Number of rows.
    cells : float32/64[n, d]
        Encoded features; NaN in categorical columns.
    texts : dict of int to list
        By categorical column: each row's category, None when missing.
    labels : list or float64[n]
        Canonical labels, or targets of a regression.
    ids : list of str or None
        None when ids are to be generated; `SampleStore.commit` fills them in.
    """

    n: int
    cells: npt.NDArray[Any]
    texts: dict[int, list[str | None]]
    labels: list[Label] | npt.NDArray[np.float64]
    ids: list[str] | None

    def take(self, rows: Sequence[int]) -> "Prepared":
        """Return some of the rows, in the order given."""
        rows = list(rows)
        labels = self.labels
        return Prepared(
            n=len(rows),
            cells=self.cells[rows],
            texts={column: [values[row] for row in rows] for column, values in self.texts.items()},
            labels=[labels[row] for row in rows] if isinstance(labels, list) else labels[rows],
            ids=None if self.ids is None else [self.ids[row] for row in rows],
        )
