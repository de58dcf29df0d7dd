"""Measure how a server's memory grows over erasures, scrubs, restores and fits.

    python -m benchmarks.bench_memory [--quick] [--kind forest] [--write-results]

The server holds Adult in a data directory of its own. Its resident memory is read from the system after each stage,
when the server is idle; ratios are to that at the start.
"""

from __future__ import annotations

import argparse
import http.client
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Row, at_most, shown, table, write_section
from benchmarks.serving.samples import ADULT
from benchmarks.serving.servers import Server, run_here, serving

TITLE = "Memory: what a server keeps"
TEXT = (
    "Resident memory of `oubli serve` on Adult in MiB: at the start, and then after erasures of single samples, "
    "scrubs, restores of the snapshot that was downloaded at the beginning, and fits, one after the other on the "
    "same server. The last figure is the ratio to the start."
)
HEAD = ("stage:", "MiB", "peak", "seconds", "in that at start")
_REST = 3.0  # seconds without a request before memory is read


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a server through all stages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--kind", default="forest")
    parser.add_argument("--write-results", action="store_true")
    options = parser.parse_args(arguments)
    times = (100, 2, 1, 1) if options.quick else (1000, 20, 5, 5)
    rows = measure(options.kind, times)
    text = table(HEAD, rows)
    print(f"{TEXT}\n\n{text}")
    if options.write_results:
        write_section("memory", TITLE, TEXT, text)


def measure(kind: str, times: tuple[int, int, int, int]) -> list[Row]:
    """Return a row for each stage: erasures, scrubs, restores and fits, so many of each."""
    n_erasures, n_scrubs, n_restores, n_fits = times
    run_here()
    with tempfile.TemporaryDirectory() as directory:
        command = ["oubli", "serve", "--data", str(ADULT), "--target", "income", "--port", "{port}"]
        command += ["--model", kind, "--data-dir", f"{directory}/data"]
        with serving("oubli", command) as server:
            ask(server, "POST", "/snapshot", {})
            file = ask(server, "GET", "/snapshot/file")
            start, rows = at_rest(server), []

            def stage(name: str, begun: float, mark: bool) -> None:
                seconds = time.perf_counter() - begun
                now = at_rest(server)
                cells = (name, shown(now), shown(memory(server, "VmHWM")), shown(seconds))
                rows.append(Row(cells, now / start, at_most(1.3) if mark else None))

            stage("start", time.perf_counter(), mark=False)
            begun = time.perf_counter()
            for name in range(n_erasures):
                ask(server, "DELETE", f"/samples/{name}")
            stage(f"{n_erasures:,} erasures", begun, mark=False)
            begun = time.perf_counter()
            for _ in range(n_scrubs):
                finish(server, ask(server, "POST", "/model/scrub", {}))
            stage(f"{n_scrubs} scrubs", begun, mark=False)
            begun = time.perf_counter()
            for _ in range(n_restores):
                ask(server, "PUT", "/snapshot/file", file)
            stage(f"{n_restores} restores", begun, mark=False)
            begun = time.perf_counter()
            for _ in range(n_fits):
                finish(server, ask(server, "POST", "/model/fit", {}))
            stage(f"{n_fits} fits", begun, mark=True)
            return rows


def at_rest(server: Server) -> float:
    """Resident memory in MiB when the server has nothing left to do."""
    server.wait_until_quiet()
    time.sleep(_REST)
    return memory(server, "VmRSS")


def memory(server: Server, name: str) -> float:
    """A figure of the process in MiB, from /proc."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) / 1024


def ask(server: Server, method: str, path: str, body: Any = None) -> Any:
    """Send a request and return the content: JSON, or bytes."""
    is_file = isinstance(body, bytes)
    content = body if is_file or body is None else json.dumps(body)
    headers = {"Content-Type": "application/octet-stream" if is_file else "application/json"}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    try:
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise RuntimeError(f"{method} {path} was answered with {answer.status}")
    return json.loads(data) if "json" in answer.headers["Content-Type"] else data


def finish(server: Server, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for a job and return it."""
    while job["status"] in ("queued", "running"):
        time.sleep(0.1)
        job = ask(server, "GET", f"/jobs/{job['id']}")
    if job["status"] != "succeeded":
        raise RuntimeError(f"a job of kind {job['kind']} failed")
    return job


if __name__ == "__main__":
    main()
