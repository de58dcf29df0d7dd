"""How long a server takes to be ready again: after a stop, and after a kill with a long journal."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from benchmarks.results import Row, shown
from benchmarks.serving.client import load
from benchmarks.serving.samples import Samples, command
from benchmarks.serving.servers import serving
from benchmarks.timing import median

HEAD = (
    "samples",
    "mutations in the journal",
    "trained from the file, s",
    "ready after a stop, s",
    "ready after a kill, s",
)
# Nothing takes the journal away before the kill.
_KEEP = ("--erasure-deadline", "100000", "--snapshot-mutations", "10000000")
_CONNECTIONS = 16


def run(samples: Samples, n_samples: int, directory: Path, rounds: int, n_mutations: int) -> Row:
    """Measure; leaves a data directory that was stopped in order."""
    started = time.perf_counter()
    with serving("first", command(samples, "fast", directory, _KEEP)) as server:
        trained = time.perf_counter() - started
        server.process.terminate()
        server.process.wait()
    after_stop = [_seconds_until_ready(samples, directory) for _ in range(rounds)]
    killed = directory.with_name("killed")
    shutil.copytree(directory, killed)
    with serving("killed", command(samples, "fast", killed, _KEEP)) as server:
        half = range(n_mutations // 2)
        load(server.port, samples.deletions(half), _CONNECTIONS, len(half))
        load(server.port, samples.additions(half), _CONNECTIONS, len(half))
        server.process.kill()
        server.process.wait()
    after_kill = []
    for _ in range(rounds):
        copy = directory.with_name("copy")
        shutil.copytree(killed, copy)
        after_kill.append(_seconds_until_ready(samples, copy))
        shutil.rmtree(copy)
    shutil.rmtree(killed)
    cells = (f"{n_samples:,}", f"{n_mutations:,}", shown(trained), shown(median(after_stop)))
    return Row(cells, median(after_kill))


def _seconds_until_ready(samples: Samples, directory: Path) -> float:
    started = time.perf_counter()
    with serving("again", command(samples, "fast", directory, _KEEP)) as server:
        seconds = time.perf_counter() - started
        server.process.kill()
        server.process.wait()
    return seconds
