"""Servers with a data directory, on data of any size, and the requests that change what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import higgs_like
from benchmarks.problems import FAST

TARGET = "label"
_N_REQUEST_ROWS = 20_000  # of which requests are made; rows of Python objects are large


@dataclass(frozen=True)
class Samples:
    """A file to serve, whose samples have their row numbers as ids, and some of its rows."""

    path: Path
    rows: list[list[float]]
    labels: list[int]

    def additions(self, indices: Iterable[int]) -> list[bytes]:
        """Requests that add rows back under the ids they have from the start."""
        return [
            post(
                "/samples",
                {"samples": [{"id": str(i), "features": self.rows[i], "label": self.labels[i], "readd": True}]},
            )
            for i in indices
        ]

    @staticmethod
    def deletions(indices: Iterable[int]) -> list[bytes]:
        """Requests that delete rows."""
        return [b"DELETE /samples/%d HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % i for i in indices]

    def predictions(self, n: int) -> list[bytes]:
        """Requests for predictions of different rows."""
        return [post("/predict", {"instances": [row]}) for row in self.rows[:n]]


def post(target: str, content: Any) -> bytes:
    """Return a request as bytes."""
    body = json.dumps(content).encode()
    head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body


def higgs(cache: Path, n_rows: int) -> Samples:
    """28 numbers a row; written as Parquet when it is not there yet."""
    held = higgs_like.load(cache, n_rows, 1000)
    path = cache / f"higgs_like_{n_rows}.parquet"
    if not path.exists():
        columns: dict[str, Any] = {f"x{j}": held.X[:, j] for j in range(held.X.shape[1])}
        unfinished = path.with_suffix(".tmp")
        pq.write_table(pa.table({**columns, TARGET: held.y.astype(np.int64)}), unfinished)
        unfinished.replace(path)
    rows = held.X[:_N_REQUEST_ROWS].astype(float).tolist()
    return Samples(path, rows, [int(label) for label in held.y[:_N_REQUEST_ROWS]])


def command(samples: Samples, setting: str, directory: Path | None, more: Sequence[str] = ()) -> list[str]:
    """How a server is started; without a directory it keeps nothing."""
    parameters = FAST["higgs-like"] if setting == "fast" else {}
    flags = [part for name, value in parameters.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    place = ["--ephemeral"] if directory is None else ["--data-dir", str(directory)]
    source = ["--data", str(samples.path), "--target", TARGET, "--random-state", "0"]
    return ["oubli", "serve", "--port", "{port}", *source, *flags, *place, *more]
