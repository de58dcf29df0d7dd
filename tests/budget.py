"""Long tests within a budget of time: which come first changes with the date; a table tells what ran and what did not.

Hooks of pytest, for `tests/conftest.py`:

    --rotate         begin with another file each day, and run the first case of every test before the second of any
    --part I/N       every N-th file only, so that several processes share the work
    --seconds S      stop after S seconds; that is no failure, unless a test has failed
    --record=FILE    write into a file what there is to run, and what has run

`python -m tests.budget FILE ...` prints the table of such files. Those of a tier have one name up to the first dot.
"""

import atexit
import json
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("budget", "long tests within a budget of time")
    group.addoption("--rotate", action="store_true", help="begin with another file each day")
    group.addoption("--part", default="1/1", metavar="I/N", help="run every N-th file only, from the I-th on")
    group.addoption("--seconds", type=float, metavar="S", help="stop after so many seconds")
    group.addoption("--record", type=Path, metavar="FILE", help="write what there is to run, and what has run")


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
    names = {_file_of(item.nodeid) for item in items}
    files = part_of(rotated(names, datetime.now(UTC).date()) if rotate else sorted(names), part)
    place = {name: number for number, name in enumerate(files)}
    config.hook.pytest_deselected(items=[item for item in items if _file_of(item.nodeid) not in place])
    kept = [item for item in items if _file_of(item.nodeid) in place]
    if rotate:
        earlier: Counter[str] = Counter()  # cases of a test
        turn = {}
        for item in kept:
            test = item.nodeid.partition("[")[0]
            turn[item] = earlier[test], place[_file_of(item.nodeid)]
            earlier[test] += 1
        kept.sort(key=turn.__getitem__)
    items[:] = kept


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


_PATIENCE = 30.0  # seconds from the interrupt to the end of the process, whatever it does


class Budget:
    """Interrupts the session when its time is over.

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
        self._n_failed = 0  # before the time was over

    def _watch(self) -> None:
        if self._session is None or self._has_ended.wait(self._seconds):
            return
        self._n_failed = self._session.testsfailed
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
            reporter.section(f"the {self._seconds:.0f} s are over")
            reporter.flush()
        os._exit(int(pytest.ExitCode.TESTS_FAILED if self._n_failed else pytest.ExitCode.OK))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._session = session
        self._thread.start()

    def pytest_sessionfinish(self) -> None:
        self._has_ended.set()


class Recorder:
    """Writes a line for each test that is to run, and one when it has run, so that nothing is lost with the process."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._seconds: Counter[str] = Counter()

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            self._write(waits=item.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.when == "teardown":
            self._write(ran=report.nodeid, seconds=self._seconds.pop(report.nodeid))


def pytest_configure(config: pytest.Config) -> None:
    seconds, record = config.getoption("--seconds"), config.getoption("--record")
    if seconds is not None:
        config.pluginmanager.register(Budget(config, seconds), "budget")
    if record is not None and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Recorder(record), "record")


def table(paths: Iterable[Path]) -> Iterator[str]:
    """The lines of a table: what ran of each tier, and the files of which not all tests ran."""
    yield f"{'':10}{'files':>8}{'tests':>8}{'seconds':>9}   did not run"
    tiers: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        tiers[path.name.partition(".")[0]].append(path)
    unfinished: list[str] = []
    for tier, records in tiers.items():
        lines = [json.loads(line) for path in records for line in path.read_text(encoding="utf-8").splitlines()]
        ran = {line["ran"]: line["seconds"] for line in lines if "ran" in line}
        files = Counter(_file_of(nodeid) for nodeid in ran)
        waiting = Counter(_file_of(line["waits"]) for line in lines if "waits" in line and line["waits"] not in ran)
        text = f"{waiting.total()} tests of {len(waiting)} files" if waiting else "-"
        yield f"{tier:10}{len(files):>8}{len(ran):>8}{sum(ran.values()):>9.0f}   {text}"
        unfinished += [f"  {name}: {n} of {n + files[name]}" for name, n in sorted(waiting.items())]
    if unfinished:
        yield "Tests that did not run, or not to their end, by file:"
        yield from unfinished


if __name__ == "__main__":
    sys.stdout.write("\n".join(table(map(Path, sys.argv[1:]))) + "\n")
