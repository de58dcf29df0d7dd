"""A pytest plugin that explains the death of a test worker.

Workers write the stacks of all threads into a file of their own when they die; the process that started them reads it,
with the wait status of the worker, and prints both at the end of the run.
"""

import faulthandler
import os
import shutil
import subprocess
import tempfile
from typing import IO, Any

import pytest

from tests.deaths import FOLDER, describe, folder

_MOST_LINES = 200  # of a stack that are printed
_LINES_OF: pytest.StashKey[list[str]] = pytest.StashKey()
_MADE: pytest.StashKey[str] = pytest.StashKey()
_FILE: pytest.StashKey[IO[str]] = pytest.StashKey()


@pytest.hookimpl(trylast=True)  # after pytest's own plugin, which sends stacks to stderr
def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LINES_OF] = []
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        if FOLDER not in os.environ:
            config.stash[_MADE] = os.environ[FOLDER] = tempfile.mkdtemp(prefix="test-records-")
        return
    file = (folder() / f"{worker}.txt").open("w", encoding="utf-8")
    config.stash[_FILE] = file
    faulthandler.enable(file, all_threads=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Note how a worker has ended that should not have ended."""
    if not error:
        return
    status = _status_of(node)
    lines = node.config.stash[_LINES_OF]
    lines.append(f"worker {node.gateway.id} {describe(status)}")
    lines.extend(_written_by(node.gateway.id).splitlines()[:_MOST_LINES])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_LINES_OF, [])
    if lines:
        terminalreporter.section("workers that died")
        for line in lines:
            terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER") is None and not config.stash.get(_LINES_OF, []):
        made = config.stash.get(_MADE, None)
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


def _status_of(node: Any) -> int | None:
    """Return the wait status of a worker's process."""
    try:
        status: int | None = node.gateway._io.popen.wait(timeout=10)
    except (AttributeError, subprocess.TimeoutExpired):  # another sort of worker, or one that hangs
        return None
    return status


def _written_by(worker: str) -> str:
    path = folder() / f"{worker}.txt"
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    return text or "it has written no stack: it was killed from outside, or could not write any more"
