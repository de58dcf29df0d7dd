"""Measure requests of the Open Inference Protocol (V2) beside MLServer.

    python -m benchmarks.bench_v2 [--quick] [--rounds 5] [--environment DIR] [--write-results]

Both servers have Adult as 14 numbers and 100 trees: MLServer with `mlserver-sklearn` scikit-learn's ExtraTrees, ours a
forest with its defaults. They are processes on one core, the client is on another and sends both the same bytes, in
turn. MLServer has an environment of its own, which the script makes the first time. Figures are medians of the rounds,
ratios are formed within a round.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import higgs_like
from benchmarks.results import Row, at_least, at_most, shown, table, write_report
from benchmarks.serving import mlserver_peer
from benchmarks.serving.client import Load, load
from benchmarks.serving.samples import Samples, adult, post
from benchmarks.serving.servers import Server, run_here, serving
from benchmarks.timing import median

PACKAGES = ("mlserver==1.7.1", "mlserver-sklearn==1.7.1")
TARGET = "/v2/models/adult/infer"
CONNECTIONS = (1, 16)
ROWS = (1, 100)  # of a request
READY_SECONDS = 120

TITLE = "The Open Inference Protocol beside MLServer"
TEXT = (
    "`POST /v2/models/adult/infer` in JSON with rows of Adult as 14 numbers; the same bytes to both servers, different "
    "rows each time. MLServer {version} serves ExtraTrees(100) of scikit-learn in the process that answers "
    "(`parallel_workers` 0) and answers labels; ours answers labels, probabilities and classes. p99 in milliseconds."
)
HEAD = ("figure:", "rows", "connections", "ours", "MLServer", "ratio")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    rounds: int
    n_ours: int  # requests of one measurement with one row
    n_peer: int


def as_numbers(samples: Samples) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and labels as numbers: a text is its position among those of its column, a missing one is one too."""
    columns = []
    for column in zip(*samples.rows, strict=True):
        if any(isinstance(value, str) for value in column):
            texts = {text: i for i, text in enumerate(sorted({value or "" for value in column}))}
            columns.append([float(texts[value or ""]) for value in column])
        else:
            columns.append([float(value) for value in column])
    classes = sorted(set(samples.labels))
    return np.array(columns).T, np.array([classes.index(label) for label in samples.labels])


def environment_python(folder: Path) -> Path:
    """Return the interpreter of MLServer's environment, which is made and filled when it is not there."""
    python = folder / ".venv" / "bin" / "python"
    filled = folder / "installed"
    if not filled.exists():
        venv.create(folder / ".venv", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        filled.write_text("\n".join(PACKAGES), encoding="utf-8")
    return python


def write_data(folder: Path, X: np.ndarray, y: np.ndarray) -> None:
    """Write the same rows for both: as arrays, and as CSV."""
    np.savez(folder / "adult.npz", X=X, y=y)
    with (folder / "adult.csv").open("w", encoding="ascii", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{j}" for j in range(X.shape[1])), "income"])
        writer.writerows([*map(int, row), int(label)] for row, label in zip(X, y, strict=True))


def requests_of(X: np.ndarray, n_rows: int, n: int = 500) -> list[bytes]:
    """Return requests for predictions of different rows."""
    found = []
    for i in range(n):
        rows = np.take(X, range(i * n_rows, (i + 1) * n_rows), axis=0, mode="wrap")
        tensor = {"name": "x", "datatype": "FP64", "shape": list(rows.shape), "data": rows.ravel().tolist()}
        found.append(post(TARGET, {"inputs": [tensor]}))
    return found


def wait_until_ready(server: Server) -> None:
    """Wait until the model is there: MLServer answers before it has loaded it."""
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            connection.request("GET", "/v2/models/adult/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.2)
    raise TimeoutError(f"{server.name} has not loaded its model")


def measure(ours: Server, peer: Server, X: np.ndarray, sizes: Sizes) -> list[Row]:
    """Return the rows of the table."""
    table_rows = []
    for n_rows in ROWS:
        requests = requests_of(X, n_rows)
        share = 1 if n_rows == 1 else 4  # fewer of those that take longer
        for n in CONNECTIONS:
            pairs: list[tuple[Load, Load]] = []
            for _ in range(sizes.rounds):
                first = load(ours.port, requests, n, sizes.n_ours // share)
                beside = load(peer.port, requests, n, max(n, sizes.n_peer // share))
                second = load(ours.port, requests, n, sizes.n_ours // share)
                mean = Load(*((getattr(first, f) + getattr(second, f)) / 2 for f in ("rate", "p50", "p99")))
                pairs.append((mean, beside))
            marks = (at_least(10), at_most(0.1)) if n_rows == 1 else (None, None)
            for name, field, scale, mark in (
                ("requests a second", "rate", 1, marks[0]),
                ("p99", "p99", 1e3, marks[1]),
            ):
                mine, other = ([getattr(pair[side], field) for pair in pairs] for side in (0, 1))
                cells = (name, str(n_rows), str(n), shown(scale * median(mine)), shown(scale * median(other)))
                table_rows.append(Row(cells, median(np.array(mine) / np.array(other)), mark))
    return sorted(table_rows, key=lambda row: row.cells[0], reverse=True)


def run(folder: Path, sizes: Sizes) -> dict[str, tuple[str, str, str]]:
    """Measure; return title, text and table of the section by its name."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python = environment_python(folder)
    X, y = as_numbers(adult())
    write_data(folder, X, y)
    script = Path(mlserver_peer.__file__).resolve()
    subprocess.run([python, script, "fit", folder / "adult.npz", folder / "model"], check=True)
    trees = ["--n-estimators", str(mlserver_peer.N_TREES), "--random-state", "0"]
    data = ["--data", str(folder / "adult.csv"), "--target", "income", "--ephemeral", "--model-name", "adult"]
    with ExitStack() as stack:
        ours = stack.enter_context(serving("ours", ["oubli", "serve", "--port", "{port}", *data, *trees]))
        command = ["python", str(script), "serve", str(folder / "model"), "{port}"]
        peer = stack.enter_context(serving("MLServer", command, folder=folder))
        run_here()
        for server in (ours, peer):
            wait_until_ready(server)
        ours.wait_until_quiet()
        rows = measure(ours, peer, X, sizes)
    text = f"{TEXT.format(version=PACKAGES[0].partition('==')[2])} Median of {sizes.rounds} rounds."
    return {"http-v2": (TITLE, text, table(HEAD, rows))}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--environment", type=Path, default=higgs_like.CACHE / "mlserver", help="folder of MLServer's environment"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one round of few requests: whether it works")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    if sys.version_info >= (3, 13):
        print("MLServer has no version for this Python: run this with 3.11 or 3.12")
        return
    sizes = Sizes(1, 400, 40) if options.quick else Sizes(options.rounds, 8_000, 800)
    write_report(run(options.environment, sizes), write=options.write_results)


if __name__ == "__main__":
    main()
