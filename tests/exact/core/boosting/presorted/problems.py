"""Samples and engines for the tests of boosting on presorted columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from oubli.core.boosting.incremental.parameters import IncrementalSettings, read_settings
from oubli.core.boosting.presorted.engine import PresortedTrees
from oubli.core.boosting.presorted.serialise import FIELDS
from oubli.core.samples.arrays import Data, Problem

Slots = npt.NDArray[np.int64]

DEFAULTS: dict[str, Any] = {
    "n_estimators": 4,
    "learning_rate": 0.3,
    "max_depth": 3,
    "l2_regularization": 0.0,
    "min_child_weight": 0.0,
    "split_sampling": 1.0,
    "max_bins": 255,
    "quantization": None,
    "early_stopping": None,
    "validation_fraction": 0.1,
    "random_state": 0,
}


def settings_of(**parameters: Any) -> IncrementalSettings:
    """Settings; what is left out is plain."""
    return read_settings({**DEFAULTS, **parameters})


@dataclass
class Pool:
    """Samples by slot, some of which are held."""

    data: Data
    y: npt.NDArray[np.float64]
    n_codes: int  # classes there are; 0 in a regression

    def problem(self, slots: Slots) -> Problem:
        """The samples as an engine reads them when those of `slots` are held."""
        ranks = np.full(max(self.n_codes, 1), -1, np.int32)
        classes = np.unique(self.data.targets[slots])
        ranks[classes] = np.arange(len(classes), dtype=np.int32)
        counts = np.bincount(self.data.targets[slots], minlength=len(ranks))
        n_classes, y = (len(classes), np.zeros(0)) if self.n_codes else (0, self.y)
        held = np.isin(np.arange(len(self.data.cells)), slots)
        return Problem(self.data, ranks, n_classes, y, held, len(slots), counts)

    def engine(self, settings: IncrementalSettings) -> PresortedTrees:
        """An engine without samples."""
        cells = self.data.cells
        return PresortedTrees(settings, cells.shape[1], cells.dtype, self.data.categorical, self.n_codes > 0)

    def grown(self, settings: IncrementalSettings, slots: Slots) -> PresortedTrees:
        """An engine grown on the samples of `slots`."""
        engine = self.engine(settings)
        engine.fit(self.problem(slots), slots)
        return engine

    def exchange(self, engine: PresortedTrees, held: Slots, slots: Slots) -> None:
        """Go from holding `held` to holding `slots`, by one call if one will do."""
        comes, goes = np.setdiff1d(slots, held), np.setdiff1d(held, slots)
        before, after = self.problem(held), self.problem(slots)
        if not np.array_equal(before.ranks, after.ranks) or (len(comes) and len(goes)):
            engine.fit(after, slots)
        elif len(comes):
            engine.add(after, comes)
        elif len(goes):
            engine.delete(after, goes)


def numeric_pool(X: Any, y: Any, *, n_codes: int = 0, dtype: Any = np.float32) -> Pool:
    """Samples with numbers only."""
    cells = np.array(X, dtype)
    n, d = cells.shape
    targets = np.array(y, np.int64) if n_codes else np.zeros(n, np.int64)
    hashes = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    data = Data(cells, targets, hashes, np.zeros(0, np.uint64), np.zeros(d, np.bool_))
    return Pool(data, np.array(y, np.float64), n_codes)


def random_pool(rng: np.random.Generator, n: int, n_codes: int, dtype: Any = np.float32) -> Pool:
    """Samples with ties, missing values and categories, two of which have the same hash."""
    d = int(rng.integers(1, 5))
    categorical = rng.random(d) < 0.3
    hashes = rng.integers(0, 2**63, 400).astype(np.uint64)
    hashes[3] = hashes[1]
    cells = np.empty((n, d), dtype)
    for column in range(d):
        levels = int(rng.choice([2, 6, 40, 400]))
        cells[:, column] = rng.integers(0, levels, n)
        if not categorical[column]:
            cells[:, column] = (cells[:, column] - levels // 2) / 8
        cells[rng.random(n) < rng.choice([0.0, 0.1, 0.5]), column] = np.nan
    signal = np.nan_to_num(cells[:, 0]) % 7
    targets = (signal + rng.integers(0, 3, n)).astype(np.int64) % max(n_codes, 1)
    y = (signal + rng.normal(size=n)).astype(np.float64) * 10.0 ** rng.integers(-3, 4)
    ids = rng.integers(0, 2**63, n).astype(np.uint64)
    return Pool(Data(cells, targets, ids, hashes, categorical), np.round(y, 1), n_codes)


def are_same(engine: PresortedTrees, other: PresortedTrees) -> bool:
    """Whether two engines predict the same, bit for bit, and count the same gains."""
    a, b = engine.trees, other.trees
    return (
        len(a.nodes) == len(b.nodes)
        and all(a.nodes[field].tobytes() == b.nodes[field].tobytes() for field in FIELDS)
        and np.array_equal(a.roots, b.roots)
        and a.base.tobytes() == b.base.tobytes()
        and a.unit == b.unit
        and engine.gains().tobytes() == other.gains().tobytes()
    )
