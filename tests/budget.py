"""Long tests within a budget of time: which come first changes with the date, and what did not run is said.

Hooks of pytest, for `tests/conftest.py`:

    --rotate         begin with another file each day, and run the first test of every file before the second of any
    --part I/N       every N-th file only, so that several processes share the work
    --seconds S      stop after S seconds; that is no failure, unless a test has failed
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("budget", "long tests within a budget of time")
    group.addoption("--rotate", action="store_true", help="begin with another file each day")
    group.addoption("--part", default="1/1", metavar="I/N", help="run every N-th file only, from the I-th on")
    group.addoption("--seconds", type=float, metavar="S", help="stop after so many seconds")


def rotated(files: Iterable[str], day: date) -> list[str]:
    """Files in their order, beginning with another one each day."""
    ordered = sorted(set(files))
    first = day.toordinal() % len(ordered) if ordered else 0
    return ordered[first:] + ordered[:first]


def part_of(files: list[str], part: str) -> list[str]:
    """The files of one of several processes: `2/3` is every third from the second on."""
    number, n_parts = map(int, part.split("/"))
    if not 1 <= number <= n_parts:
        raise pytest.UsageError(f"--part {part}: must be I/N with I from 1 to N")
    return files[number - 1 :: n_parts]


@pytest.hookimpl(trylast=True)  # what the marks deselect is gone then
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    rotate, part = config.getoption("--rotate"), config.getoption("--part")
    if not rotate and part == "1/1":
        return
    names = {_file_of(item) for item in items}
    files = part_of(rotated(names, datetime.now(UTC).date()) if rotate else sorted(names), part)
    place = {name: number for number, name in enumerate(files)}
    config.hook.pytest_deselected(items=[item for item in items if _file_of(item) not in place])
    kept = [item for item in items if _file_of(item) in place]
    if rotate:
        earlier: Counter[str] = Counter()  # tests of a file
        turn = {}
        for item in kept:
            name = _file_of(item)
            turn[item] = earlier[name], place[name]
            earlier[name] += 1
        kept.sort(key=turn.__getitem__)
    items[:] = kept


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


_PATIENCE = 30.0  # seconds from the interrupt to the end of the process, whatever it does


class Budget:
    """Interrupts the session when its time is over, and says what was not run.

    An interrupt may be swallowed by anyone who calls back from C, and may come while pytest is at its own work. So the
    process ends by itself, with the status that the tests have given until then.

    Parameters
    ----------
    config
        Of the session.
    seconds
        How long the tests may take.
    """

    def __init__(self, config: pytest.Config, seconds: float) -> None:
        self._config = config
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._seconds = seconds
        self._session: pytest.Session | None = None
        self._has_ended = threading.Event()
        self._waiting: dict[str, None] = {}
        self._n_failed = 0  # before the time was over
        self.is_over = False

    def _watch(self) -> None:
        if self._session is None or self._has_ended.wait(self._seconds):
            return
        self._n_failed = self._session.testsfailed
        self.is_over = True
        self._session.shouldstop = "the time is over"
        atexit.register(self._leave)
        # As Ctrl-C does, which also ends a system call that waits.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        time.sleep(_PATIENCE)
        self._leave()

    def _leave(self) -> None:
        """End the process here: what the interrupt has left behind is no failure of a test."""
        plugins = self._config.pluginmanager
        capture, reporter = plugins.getplugin("capturemanager"), plugins.getplugin("terminalreporter")
        if capture is not None:  # a test may still be running
            capture.suspend_global_capture(in_=True)
        if reporter is not None:
            reporter.section(f"{len(self._waiting)} tests were not run to their end in {self._seconds:.0f} s")
            for nodeid in list(self._waiting):
                reporter.write_line(nodeid)
            reporter.flush()
        os._exit(int(pytest.ExitCode.TESTS_FAILED if self._n_failed else pytest.ExitCode.OK))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._session = session
        self._waiting = dict.fromkeys(item.nodeid for item in session.items)
        self._thread.start()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" and not self.is_over:
            self._waiting.pop(report.nodeid, None)

    def pytest_sessionfinish(self) -> None:
        self._has_ended.set()


def pytest_configure(config: pytest.Config) -> None:
    seconds = config.getoption("--seconds")
    if seconds is not None:
        config.pluginmanager.register(Budget(config, seconds), "budget")
