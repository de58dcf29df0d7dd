"""Measure what a person waits for first: the way from a clean clone to the first prediction, and each part of it.

    python -m benchmarks.bench_start [--only PART ...] [--write-results]

Each part starts from an empty kernel cache, or from one that the part before has filled. CPU seconds are those of all
processes of a part.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.results import Mark, Row, at_most, table, write_section
from benchmarks.serving.servers import free_port

ROOT = Path(__file__).resolve().parents[1]
TITLE = "From nothing to the first prediction"
TEXT = (
    "`make run` in a clean clone creates the environment, compiles what a fit and predictions use, trains a forest on "
    "the example data and answers a prediction; changes wait for the kernels that are compiled meanwhile. `pip` and "
    "`uv` install the same files. The other lines begin with packages installed. A server is ready for changes when "
    "`/readyz?for=changes` says so."
)
_EXAMPLE = ("--data", str(ROOT / "examples" / "adult.csv.gz"), "--target", "income")
_ROW = [39, "State-gov", 77516, "Bachelors", 13, "Never-married", "Adm-clerical", "Not-in-family", "White", "Male",
        2174, 0, 40, "United-States"]  # fmt: skip


class Times(NamedTuple):
    """Seconds until the first prediction, until changes are accepted, and of CPU; NaN where there is no such moment."""

    prediction: float
    changes: float
    cpu: float


def measured(command: Sequence[str], folder: Path, variables: dict[str, str], port: int | None) -> Times:
    """Run a command to its end, or until a server of it accepts changes; return how long that took."""
    before, started = _cpu(), time.monotonic()
    environment = {**os.environ, **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # who starts a server again has its bytecode
    with (folder / "output.txt").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    prediction = changes = float("nan")
    try:
        if port is None:
            if process.wait() != 0:
                sys.exit((folder / "output.txt").read_text())
            return Times(prediction, time.monotonic() - started, _cpu() - before)
        while process.poll() is None and math.isnan(prediction):
            prediction = time.monotonic() - started if _answers(port, "/predict", {"instances": [_ROW]}) else prediction
            time.sleep(0.05)
        while process.poll() is None and math.isnan(changes):
            changes = time.monotonic() - started if _answers(port, "/readyz?for=changes") else changes
            time.sleep(0.05)
        if process.poll() is not None:
            sys.exit((folder / "output.txt").read_text())
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 15)
        process.wait()
    return Times(prediction, changes, _cpu() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _answers(port: int, path: str, body: object = None) -> bool:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60):  # noqa: S310
            return True
    except OSError:
        return False


def clean_clone(uv: str) -> Times:
    """`make run` in a clone of this commit, with an empty cache."""
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name) / "oubli", free_port()
        subprocess.run([shutil.which("git") or "git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        variables = {"NUMBA_CACHE_DIR": str(Path(name) / "cache"), "PYTHONPATH": ""}
        return measured(["make", "run", f"UV={uv}", f"ARGS=--port {port}"], folder, variables, port)


def served(cache: Path) -> Times:
    """`oubli serve` on the example data with the default settings."""
    with tempfile.TemporaryDirectory() as name:
        port = free_port()
        command = [sys.executable, "-m", "oubli", "serve", "--port", str(port), *_EXAMPLE]
        return measured(command, Path(name), {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}, port)


def warmed_up(cache: Path, *kinds: str) -> Times:
    """`oubli warm-up` of some kinds, or of all."""
    command = [sys.executable, "-m", "oubli", "warm-up", *kinds]
    with tempfile.TemporaryDirectory() as name:
        return measured(command, Path(name), {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}, None)


class Part(NamedTuple):
    """What is measured: in words, how, and the marks of the three times."""

    words: str
    measure: Callable[[], Times]
    marks: tuple[Mark | None, Mark | None, Mark | None] = (None, None, None)


def parts(cache: Path) -> dict[str, Part]:
    """What is measured, by name."""
    uv = shutil.which("uv")
    found = {
        "pip": Part("clean clone, `make run` with pip", lambda: clean_clone(""), (at_most(75), None, None)),
        "cold": Part("`oubli serve`, empty cache", lambda: served(cache / "serve"), (None, None, at_most(80))),
        "warm": Part("`oubli serve`, warm cache", lambda: served(cache / "serve"), (at_most(3), None, None)),
        "all": Part("`oubli warm-up`, empty cache", lambda: warmed_up(cache / "all"), (None, at_most(360), None)),
        "again": Part("`oubli warm-up`, warm cache", lambda: warmed_up(cache / "all")),
    }
    if uv is not None:
        found["uv"] = Part("clean clone, `make run` with uv", lambda: clean_clone(uv), (at_most(75), None, None))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it when asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--only", nargs="+", metavar="PART", help="pip, uv, cold, warm, all, again; in this order")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    lines = []
    with tempfile.TemporaryDirectory() as name:
        for part, (words, measure, marks) in parts(Path(name)).items():
            if options.only and part not in options.only:
                continue
            times = measure()
            names = "first prediction", "all is done" if math.isnan(times.prediction) else "changes are accepted", "CPU"
            for what, figure, mark in zip(names, times, marks, strict=True):
                if not math.isnan(figure):
                    lines.append(Row((words, what), figure, mark))
    text = table(("from:", "to:", "seconds"), lines)
    print(text)
    if options.write_results:
        write_section("start", TITLE, TEXT, text)


if __name__ == "__main__":
    main()
