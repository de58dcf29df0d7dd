"""Files to serve, the requests about their rows, and the command that serves them."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import higgs_like
from benchmarks.problems import FAST

ADULT = Path(__file__).resolve().parent.parent.parent / "examples" / "adult.csv.gz"
_N_REQUEST_ROWS = 20_000  # of which requests are made; rows of Python objects are large


@dataclass(frozen=True)
class Samples:
    """A file whose samples have their row numbers as ids, and some of its rows."""

    name: str
    path: Path
    target: str
    rows: list[list[Any]]
    labels: list[Any]

    def additions(self, indices: Iterable[int]) -> list[bytes]:
        """Requests that add rows again under the ids they had at the start."""
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

    def predictions(self, n: int = 1000) -> list[bytes]:
        """Requests for predictions of different rows."""
        return [post("/predict", {"instances": [row]}) for row in self.rows[:n]]


def post(target: str, content: Any) -> bytes:
    """Return a request as bytes."""
    body = json.dumps(content).encode()
    head = f"POST {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body


def higgs_csv(cache: Path, n_rows: int) -> Samples:
    """28 numbers a row; written as CSV when it is not there yet."""
    held = higgs_like.load(cache, n_rows, 1000)
    rows = [[float(value) for value in row] for row in held.X]
    labels = [int(label) for label in held.y]
    path = cache / f"higgs_like_{n_rows}.csv"
    if not path.exists():
        with path.open("w", encoding="ascii", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*(f"x{j}" for j in range(len(rows[0]))), "label"])
            writer.writerows([*row, label] for row, label in zip(rows, labels, strict=True))
    return Samples("higgs-like", path, "label", rows, labels)


def higgs_parquet(cache: Path, n_rows: int) -> Samples:
    """28 numbers a row; written as Parquet when it is not there yet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    held = higgs_like.load(cache, n_rows, 1000)
    path = cache / f"higgs_like_{n_rows}.parquet"
    if not path.exists():
        columns: dict[str, Any] = {f"x{j}": held.X[:, j] for j in range(held.X.shape[1])}
        unfinished = path.with_suffix(".tmp")
        pq.write_table(pa.table({**columns, "label": held.y.astype(np.int64)}), unfinished)
        unfinished.replace(path)
    rows = held.X[:_N_REQUEST_ROWS].astype(float).tolist()
    return Samples("higgs-like", path, "label", rows, [int(label) for label in held.y[:_N_REQUEST_ROWS]])


def adult() -> Samples:
    """The example of the project: numbers, text and missing values."""
    with gzip.open(ADULT, "rt", encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    target = header.index("income")
    labels = [line.pop(target) for line in lines]
    numeric = [all(line[j].lstrip("-").isdigit() for line in lines) for j in range(len(header) - 1)]
    rows = [
        [int(text) if is_number else text or None for text, is_number in zip(line, numeric, strict=True)]
        for line in lines
    ]
    return Samples("adult-native", ADULT, "income", rows, labels)


def command(samples: Samples, setting: str, directory: Path | None = None, more: Sequence[str] = ()) -> list[str]:
    """How a server is started; without a directory it keeps nothing."""
    parameters = FAST[samples.name] if setting == "fast" else {}
    flags = [part for name, value in parameters.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    place = ["--ephemeral"] if directory is None else ["--data-dir", str(directory)]
    source = ["--data", str(samples.path), "--target", samples.target, "--random-state", "0"]
    return ["oubli", "serve", "--port", "{port}", *source, *flags, *place, *more]
