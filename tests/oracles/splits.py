"""Splits at a threshold or a category, as the oracles of single trees and of boosting have them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Split:
    """A test: `x <= threshold`, or, where a category is given, `hash(x) == category`; what passes it goes left."""

    feature: int
    threshold: float | None = None
    missing_left: bool = False
    category: int | None = None

    def goes_left(self, cells: Sequence[Any]) -> bool:
        """The side of a row: floats (None: missing), hashes of categories."""
        x = cells[self.feature]
        if self.category is not None:
            return bool(x == self.category)
        if x is None:
            return self.missing_left
        assert self.threshold is not None
        return bool(x <= self.threshold)


def midpoint(low: float, high: float, kind: type[Any]) -> float:
    """The middle of two neighbouring values, rounded to the type of the cells; `low` where that comes to `high`."""
    middle = float(kind(low / 2 + high / 2)) + 0.0
    return middle if low <= middle < high else low


def sides(splits: Sequence[Split], rows: Sequence[Sequence[Any]]) -> np.ndarray[Any, Any]:
    """Whether each row goes left at each split, by `Split.goes_left` on whole columns: bool[splits, rows]."""
    result = np.zeros((len(splits), len(rows)), np.bool_)
    for feature in {split.feature for split in splits}:
        here = [i for i, split in enumerate(splits) if split.feature == feature]
        cells = [row[feature] for row in rows]
        if splits[here[0]].category is not None:
            wanted = np.array([splits[i].category for i in here], np.uint64)
            result[here] = np.array(cells, np.uint64) == wanted[:, np.newaxis]
        else:
            x = np.array([np.nan if value is None else value for value in cells], np.float64)
            thresholds = np.array([splits[i].threshold for i in here], np.float64)
            missing_left = np.array([splits[i].missing_left for i in here])
            # A comparison with NaN is never true.
            result[here] = (x <= thresholds[:, np.newaxis]) | (np.isnan(x) & missing_left[:, np.newaxis])
    return result
