"""A kill inside SQLite's own commits and checkpoints: at the n-th system call of a sort, which never happens then."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.process.durability.model_of_truth import Truth
from tests.process.durability.steps import FLAGS, History
from tests.process.durability.tracing import kill_traced, why_not
from tests.serving import Running, serving

CALLS = ("fdatasync", "fsync", "pwrite64", "ftruncate", "rename", "unlink")

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@contextmanager
def killed_at(folder: Path, call: str, number: int) -> Iterator[Running | None]:
    """Run a server that is killed when one of its threads makes a call for the n-th time; None if at its start."""
    # Without --seccomp-bpf, which would swallow the signal.
    options = ("-f", "-e", f"trace={call}", "-e", f"inject={call}:signal=SIGKILL:when={number}")
    command = ("strace", *options, "-o", os.devnull, sys.executable, "-m", "oubli")
    with ExitStack() as stack:
        server: Running | None
        try:
            server = stack.enter_context(serving(*FLAGS, cwd=folder, command=command))
        except AssertionError as ended:
            if "the server ended with -9" not in str(ended):
                raise
            server = None
        yield server
        if server is not None and server.process.poll() is None:
            kill_traced(server)  # strace does not pass on a request to stop


def survive(source: Path, truth: Truth, folder: Path, call: str, number: int) -> tuple[bool, int]:
    """Be killed, come back, compare; whether the call was ever made so often, and how many requests were checked."""
    shutil.copytree(source, folder)
    history = History(truth)
    with killed_at(folder, call, number) as server:
        lived = server is not None and history.happen(server)
    n_requests = len(history.operations)
    with serving(*FLAGS, cwd=folder) as server:
        differences = history.check(server)
        assert not differences, f"killed at {call} {number}: {differences}"
    shutil.rmtree(folder)
    return not lived, n_requests


def survive_all(
    source: Path, truth: Truth, tmp_path: Path, calls: Iterable[str], numbers: Iterable[int]
) -> tuple[int, int]:
    """Be killed at some sorts of calls, at those of the numbers that are reached."""
    n_kills = n_requests = 0
    for call in calls:
        for number in numbers:
            reached, n = survive(source, truth.copy(), tmp_path / f"{call}{number}", call, number)
            if not reached:
                break
            n_kills += 1
            n_requests += n
    return n_kills, n_requests


def test_killed_inside_system_calls(begun, truth, tmp_path, tell):
    n_kills, n_requests = survive_all(begun, truth, tmp_path, ("fdatasync",), (9,))
    tell(f"killed inside system calls: {n_kills} kills survived, {n_requests:,} operations checked")
    assert n_kills == 1


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
def test_killed_inside_many_system_calls(begun, truth, tmp_path, tell, call):
    numbers = [*range(1, 13), 15, 20, 30, 50, 80, 130, 210, 340, 550, 890]
    n_kills, n_requests = survive_all(begun, truth, tmp_path, (call,), numbers)
    tell(f"killed inside {call}: {n_kills} kills survived, {n_requests:,} operations checked")
    assert n_kills > 0
