"""Streams of samples in their order, two classes each: real ones, and made ones that drift.

As in the paper ("Fully-Dynamic Decision Trees", section 5) a data set of several classes is made one of two: its
largest class against the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Values = npt.NDArray[np.float64]

N_MADE = 20_000
SEA_THRESHOLDS = (8.0, 9.0, 7.0, 9.5)


@dataclass(frozen=True)
class Stream:
    """Samples in the order in which they come."""

    name: str
    names: list[str]  # of the columns
    rows: list[list[Any]]  # numbers; categories as text
    labels: list[bool]
    categorical: list[int]

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.rows)

    def first(self, n: int | None) -> Stream:
        """The first n samples, all when omitted."""
        return Stream(self.name, self.names, self.rows[:n], self.labels[:n], self.categorical)


def _read(file: str, positive: str, categorical: tuple[str, ...] = ()) -> Callable[[str, Path], Stream]:
    def read(name: str, data: Path) -> Stream:
        text = dict.fromkeys((*categorical, "label"), str)
        frame = pd.read_csv(data / file, dtype=text, keep_default_na=False, na_values=[""])
        X = frame.drop(columns="label")
        columns = [X[column].tolist() for column in X]  # numbers and text of Python
        rows = [list(row) for row in zip(*columns, strict=True)]
        indices = [list(X).index(column) for column in categorical]
        return Stream(name, list(X), rows, (frame["label"] == positive).tolist(), indices)

    return read


def _made(name: str, X: Values, y: npt.NDArray[np.bool_]) -> Stream:
    X = X.astype(np.float32).astype(np.float64)
    return Stream(name, [f"x{j}" for j in range(X.shape[1])], X.tolist(), y.tolist(), [])


def sea(name: str = "SEA", _data: Path | None = None) -> Stream:
    """SEA concepts (Street, Kim, 2001): x0 + x1 <= a threshold that changes three times; x2 is noise, so are 10 %."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 10, (N_MADE, 3))
    thresholds = np.repeat(SEA_THRESHOLDS, N_MADE // len(SEA_THRESHOLDS))
    return _made(name, X, (X[:, 0] + X[:, 1] <= thresholds) ^ (rng.random(N_MADE) < 0.1))


def hyperplane(name: str = "hyperplane", _data: Path | None = None) -> Stream:
    """A rotating hyperplane (Hulten, Spencer, Domingos, 2001): ten columns, five moving weights; 5 % noise."""
    rng = np.random.default_rng(2)
    X = rng.random((N_MADE, 10))
    phases = rng.uniform(0, 2 * np.pi, 10)
    moving = np.arange(10) < 5
    times = np.linspace(0, 4 * np.pi, N_MADE)[:, np.newaxis]
    weights = np.where(moving, np.sin(times + phases), np.sin(phases))
    return _made(name, X, (((X - 0.5) * weights).sum(axis=1) > 0) ^ (rng.random(N_MADE) < 0.05))


STREAMS: dict[str, Callable[[str, Path], Stream]] = {
    "electricity": _read("electricity.csv.gz", "UP", ("day",)),
    "weather": _read("weather.csv.gz", "1"),
    "covtype": _read("covtype.csv.gz", "2"),
    "covtype, first 20,000": _read("covtype_first20k.csv.gz", "2"),
    "SEA": sea,
    "hyperplane": hyperplane,
}


def load_stream(name: str, data: Path, n_rows: int | None = None) -> Stream:
    """Read or make a stream, or its first rows only."""
    return STREAMS[name](name, data).first(n_rows)
