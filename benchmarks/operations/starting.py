"""The time from starting the process until the server is ready, with compiled kernels in their cache."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problems import FAST
from benchmarks.results import Mark, Row, at_most
from benchmarks.serving.samples import ADULT
from benchmarks.timing import median

TITLE = "Start to ready"
TEXT = (
    "Wall seconds from the start of `oubli serve` until `/readyz` answers 200, with compiled kernels in their cache "
    "and the rest of the machine idle: median and slowest of the rounds. *Adult, trained*: the server trains on "
    "`examples/adult.csv.gz` with the defaults and writes its first snapshot, each time. *Recovered*: it recovers "
    "higgs-like rows, with the parameters of `fast`, from the data directory of an orderly stop."
)
HEAD = ("start:", "rows", "snapshot MB", "rounds", "slowest s", "median s")
ADULT_SECONDS = at_most(3)
RECOVERY_SECONDS = at_most(5)
N_FULL = 500_000
_PATIENCE = 900.0  # seconds, for the first start, which compiles and trains
_POLL = 0.005


def adult_row(rounds: int) -> Row:
    """Train on Adult and serve, each time into an empty data directory."""
    seconds = []
    n_bytes = 0
    for _ in range(rounds + 1):  # the first fills the kernel cache
        with tempfile.TemporaryDirectory() as folder:
            seconds.append(start_and_stop(["--data", str(ADULT), "--target", "income"], Path(folder)))
            n_bytes = snapshot_bytes(Path(folder))
    return _row("Adult, trained", 32_561, n_bytes, seconds[1:], ADULT_SECONDS)


def recovery_row(X: Any, y: Any, rounds: int) -> Row:
    """Serve what a data directory holds."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "samples.parquet"
        write_table(table, X, y)
        flags = ["--data", str(table), "--target", "label"]
        for name, value in FAST["higgs-like"].items():
            flags += [f"--{name.replace('_', '-')}", str(value)]
        seconds = [start_and_stop(flags, Path(folder)) for _ in range(rounds + 2)]  # trains, recovers once to warm up
        n_bytes = snapshot_bytes(Path(folder))
    mark = RECOVERY_SECONDS if len(y) >= N_FULL else None
    return _row("recovered", len(y), n_bytes, seconds[2:], mark)


def write_table(path: Path, X: Any, y: Any) -> None:
    """Write rows as Parquet, columns x0, x1, ... and label."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {f"x{i}": np.ascontiguousarray(X[:, i]) for i in range(X.shape[1])}
    pq.write_table(pa.table({**columns, "label": y}), path)


def snapshot_bytes(folder: Path) -> int:
    """Size of the newest snapshot in the data directory of a folder."""
    return sorted((folder / "oubli-data").glob("snapshot-*"))[-1].stat().st_size


def start_and_stop(flags: Sequence[str], folder: Path) -> float:
    """Seconds until the server is ready, which is stopped in order then.

    Raises
    ------
    RuntimeError
        When it ends before, with what it said.
    """
    port = _free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUBLI_")}
    command = [sys.executable, "-m", "oubli", "serve", "--port", str(port), *flags]
    command += ["--data-dir", str(folder / "oubli-data")]
    with (folder / "output.txt").open("w+", encoding="utf-8") as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment)
        try:
            while not _is_ready(port):
                if process.poll() is not None or time.perf_counter() - started > _PATIENCE:
                    output.seek(0)
                    raise RuntimeError(f"the server did not become ready: {output.read()}")
                time.sleep(_POLL)
            seconds = time.perf_counter() - started
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    return seconds


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _row(start: str, n_rows: int, n_bytes: int, seconds: list[float], mark: Mark | None) -> Row:
    cells = (start, f"{n_rows:,}", f"{n_bytes / 1e6:.1f}", str(len(seconds)), f"{max(seconds):.2f}")
    return Row(cells, median(seconds), mark)
