"""Measure predictions in bulk: rows a second over HTTP beside `predict_proba` in process, and the server's memory.

    python -m benchmarks.bench_bulk [--rows 1000000] [--quick] [--write-results]

The rows are Adult, over and over. A server with the defaults is on one core; the client, and before it the model in
this process, is on the other. The body is made before the clock starts. Memory is the highest while a body is answered,
above that before the first.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from benchmarks.bench_memory import memory
from benchmarks.results import Row, at_least, at_most, shown, table, write_section
from benchmarks.serving.duplex import exchange
from benchmarks.serving.samples import ADULT
from benchmarks.serving.servers import Server, run_here, serving
from oubli.app.datasets.columns import Frame
from oubli.app.datasets.loading import Table, load_table
from oubli.app.http.formats import csv_line
from oubli.app.settings import Settings
from oubli.core import DynamicForestClassifier

TITLE = "Predictions in bulk"
TEXT = (
    "Rows of Adult in one `POST /predict`, the answer in the format of the body, beside `predict_proba` of the same "
    "rows in process, both with the default settings. Memory of the server in MiB: at rest before the first body, and "
    "how much more at the highest while a body is answered."
)
HEAD = ("what:", "rows", "seconds", "rows a second", "MiB before", "MiB more", "share of in process")
TYPES = {
    "Arrow": "application/vnd.apache.arrow.stream",
    "CSV": "text/csv",
    "NDJSON": "application/x-ndjson",
}
_BATCH = 5000  # rows that a client writes at once
MARKED = ("Arrow", "CSV")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all formats."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the rows")
    parser.add_argument("--formats", nargs="+", choices=sorted(TYPES), default=sorted(TYPES))
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    n_rows = options.rows // 50 if options.quick else options.rows
    text = table(HEAD, measure(n_rows, options.formats))
    print(f"{TEXT}\n\n{text}")
    if options.write_results:
        write_section("http-bulk", TITLE, TEXT, text)


def measure(n_rows: int, formats: Sequence[str]) -> list[Row]:
    """Return a row for the model in process, and two for each format: its speed, and the memory."""
    run_here()
    data = load_table(Settings(data=ADULT, target="income", ephemeral=True))
    in_process = predict_here(data, n_rows)
    cells = ("predict_proba in process", f"{n_rows:,}", shown(n_rows / in_process), shown(in_process), "", "")
    rows = [Row(cells, 1.0)]
    command = ["oubli", "serve", "--data", str(ADULT), "--target", "income", "--port", "{port}", "--ephemeral"]
    with serving("oubli", command) as server:
        server.wait_until_quiet()
        before = memory(server, "VmRSS")
        for name in formats:
            seconds, highest = predict_there(server, TYPES[name], WRITTEN[name](data), len(data), n_rows)
            rate = n_rows / seconds
            cells = (name, f"{n_rows:,}", shown(seconds), shown(rate), shown(before), shown(highest - before))
            rows.append(Row(cells, rate / in_process, at_least(0.5) if name in MARKED else None))
            if name in MARKED:
                rows.append(Row((f"{name}, MiB more", *[""] * 5), highest - before, at_most(100)))
    return rows


def predict_here(data: Table, n_rows: int) -> float:
    """Return how many rows a second the model predicts in this process."""
    model = DynamicForestClassifier().fit(data.X, data.y, schema=data.schema)
    model.resolve()
    model.predict_proba(_first(data, 1000))
    started, done = time.perf_counter(), 0
    while done < n_rows:
        n = min(len(data), n_rows - done)
        model.predict_proba(_first(data, n))
        done += n
    return n_rows / (time.perf_counter() - started)


def predict_there(
    server: Server, media_type: str, body: tuple[bytes, list[bytes], bytes], n_in_body: int, n_rows: int
) -> tuple[float, float]:
    """Return the seconds until a server has answered all rows, and its highest memory meanwhile."""
    highest = [memory(server, "VmRSS")]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            highest[0] = max(highest[0], memory(server, "VmRSS"))

    begin, pieces, end = body

    def sent() -> Iterator[bytes]:
        yield begin
        for batch in range(n_rows // _BATCH):
            yield pieces[batch % (n_in_body // _BATCH)]
        yield end

    watching = threading.Thread(target=watch)
    watching.start()
    started = time.perf_counter()
    n_bytes = 0
    try:
        with exchange(server.port, "/predict", sent(), media_type, media_type) as answer:
            while piece := answer.read1(2**20):
                n_bytes += len(piece)
        seconds = time.perf_counter() - started
    finally:
        is_over.set()
        watching.join()
    if n_bytes < 10 * n_rows:
        raise RuntimeError("the server has not answered all rows")
    return seconds, highest[0]


def _arrow(data: Table) -> tuple[bytes, list[bytes], bytes]:
    from oubli.app.datasets.streams import ArrowWriter

    columns = {name: data.X[name] for name in data.X.columns}
    batches = pa.table({name: pa.array(values.tolist()) for name, values in columns.items()}).to_batches(_BATCH)
    writer = ArrowWriter(batches[0].schema)
    begin = writer.write(batches[0].slice(0, 0))
    return begin, [writer.write(batch) for batch in batches if len(batch) == _BATCH], writer.close()


def _csv(data: Table) -> tuple[bytes, list[bytes], bytes]:
    lines = [csv_line(row).encode() for row in _rows(data)]
    return csv_line(data.X.columns).encode(), _joined(lines), b""


def _ndjson(data: Table) -> tuple[bytes, list[bytes], bytes]:
    import orjson

    return b"", _joined([orjson.dumps(list(row)) + b"\n" for row in _rows(data)]), b""


WRITTEN: dict[str, Callable[[Table], tuple[bytes, list[bytes], bytes]]] = {
    "Arrow": _arrow,
    "CSV": _csv,
    "NDJSON": _ndjson,
}


def _rows(data: Table) -> Iterator[tuple[Any, ...]]:
    columns = [[_plain(cell) for cell in data.X[name].tolist()] for name in data.X.columns]
    return zip(*columns, strict=True)


def _plain(cell: Any) -> Any:
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _joined(lines: list[bytes]) -> list[bytes]:
    return [b"".join(lines[start : start + _BATCH]) for start in range(0, len(lines) - _BATCH + 1, _BATCH)]


def _first(data: Table, n: int) -> Frame:
    return Frame({name: data.X[name][:n] for name in data.X.columns})


if __name__ == "__main__":
    main()
