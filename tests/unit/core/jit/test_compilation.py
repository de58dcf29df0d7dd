"""Other processes compile what some work calls, and each kernel once."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import config, types

from oubli.core import IncrementalBoostingClassifier, warmup
from oubli.core.errors import InputError
from oubli.core.jit import compilation, policy
from oubli.core.jit.compilation import Compilation, Lines
from oubli.core.warmup import warm_up
from tests.tiers import ordinary
from tests.unit.core.jit.counted import double

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
WARM = os.environ["NUMBA_CACHE_DIR"]  # see tests/conftest.py
WORK = "tests.unit.core.jit.counted:work"


@pytest.fixture(autouse=True)
def notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and where processes note what they compile."""
    notes = tmp_path / "notes"
    notes.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("NOTES", str(notes))
    return notes


def compiled(notes: Path) -> Counter[str]:
    return Counter(line.split()[0] for line in notes.read_text().splitlines())


ALL = {"double": 2, "quadruple": 1}


@pytest.mark.parametrize("n_compilers", ordinary([1, 2], 2))
def test_what_the_work_calls_is_compiled_once(monkeypatch: pytest.MonkeyPatch, notes: Path, n_compilers: int) -> None:
    monkeypatch.setattr(compilation, "_affordable", lambda: n_compilers)
    told: list[tuple[int, int]] = []
    with Compilation(WORK, [["3"]]) as going_on:
        assert going_on.wait(1) == 0
        assert going_on.n_steps >= 1
        assert compiled(notes)["double"] >= 1
        assert going_on.wait(report=lambda *numbers: told.append(numbers)) == 0
        assert going_on.is_over
    assert compiled(notes) == ALL
    if n_compilers > 1:
        assert (going_on.n_steps, told[-1]) == (2, (3, 3))
        assert len({line.split()[1] for line in notes.read_text().splitlines()}) <= 2
    with Compilation(WORK, [["4"], ["5"]]) as again:
        assert again.wait() == 0
    assert compiled(notes) == ALL


def test_two_programs_at_a_time_compile_nothing_twice(notes: Path) -> None:
    script = "from tests.unit.core.jit.counted import work; work('3', lambda n: None)"
    programs = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(3)]
    assert [program.wait() for program in programs] == [0, 0, 0]
    assert compiled(notes) == ALL


LATE = """
import subprocess, sys
from oubli.core.jit import policy
from tests.unit.core.jit.counted import double
take = policy.claims.take
def after_another_process(*claim):
    subprocess.run([sys.executable, "-c", "from tests.unit.core.jit.counted import double; double(3)"], check=True)
    return take(*claim)
policy.claims.take = after_another_process
double(3)
"""


def test_a_kernel_that_another_process_kept_just_before_the_claim_is_not_compiled_again(notes: Path) -> None:
    subprocess.run([sys.executable, "-c", LATE], check=True)
    assert compiled(notes) == {"double": 1}


ELSEWHERE = """
import llvmlite.binding as llvm

llvm.get_host_cpu_name = lambda: "znver99"
features = llvm.get_host_cpu_features()
features["avx512f"] = not features.get("avx512f", False)
llvm.get_host_cpu_features = lambda: features
from tests.unit.core.jit.counted import work
work("3", lambda n: None)
"""


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a processor of this architecture")
def test_kernels_for_a_named_processor_are_of_use_on_another_machine(notes: Path) -> None:
    """As in the image; see docker/processor.sh."""
    here = ELSEWHERE.partition("features[")[0] + ELSEWHERE.partition("lambda: features")[2]
    n = []
    for named in ({"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}, {}):
        for script in (here, ELSEWHERE):
            subprocess.run([sys.executable, "-c", script], env={**os.environ, **named}, check=True)
            n.append(compiled(notes).total())
    assert n == [3, 3, 6, 9]


def test_a_kernel_whose_process_was_killed_is_compiled_by_who_waits(tmp_path: Path) -> None:
    directory = tmp_path / "kernels"
    directory.mkdir()
    script = (
        "import sys, time; from pathlib import Path; from oubli.core.jit import policy\n"
        f"policy.claims.take(Path({str(directory)!r}), b'key'); print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        threading.Timer(0.3, other.send_signal, [signal.SIGKILL]).start()
        policy.claims.take(directory, b"key")
        assert other.poll() is not None  # it has waited, and has the claim now
    policy.claims.take(directory, b"another key")
    for key in (b"key", b"another key"):
        policy.claims.give_back(key)


def test_nobody_waits_for_a_kernel_that_does_not_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = policy.text_of((types.none,))  # nothing times two
    monkeypatch.setattr(sys, "stdin", [f"tests.unit.core.jit.counted:double {wrong}\n"])
    taken = []
    take = policy.claims.take
    monkeypatch.setattr(policy.claims, "take", lambda *one: (taken.append(one), take(*one))[1])
    compilation.main([])
    [(directory, key)] = taken
    script = (
        "from pathlib import Path; from oubli.core.jit import policy\n"
        f"policy.claims.take(Path({str(directory)!r}), {key!r})"
    )
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)


def test_processes_that_are_killed_say_so_and_none_is_left() -> None:
    with Compilation("time:sleep", [["no number"]]) as going_on:
        assert going_on.wait() != 0
    with Compilation(WORK, [["3"]]) as going_on:
        pass
    assert going_on.wait() == -signal.SIGKILL


def test_few_processes_compile_where_memory_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "usable_cores", lambda: 3)
    files: dict[str, str] = {}
    monkeypatch.setattr(Path, "read_text", lambda path: files[path.name])
    for free, limit, n in ((2**30, "max", 3), (2**30, str(900 * 2**20), 2), (2**19, "max", 1), (0, "0", 1)):
        files.update({"meminfo": f"MemTotal: 9 kB\nMemAvailable:  {free} kB\n"})
        files.update({"memory.max": limit, "memory.current": "1000"})
        assert compilation._affordable() == n


def test_a_process_that_misses_a_kernel_of_ours_has_the_cache_filled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_wanted", {})
    monkeypatch.setattr(policy, "_filled", set())
    filled: list[str] = []

    def call(x: Any) -> None:
        policy.fill_with(filled.append, "one model")
        policy.fill_with(filled.append, "another")
        assert double(x) == 2 * x

    call(np.float32(2))  # no kernel of the package
    assert filled == []
    monkeypatch.setattr(double._cache, "_is_ours", True)
    with policy.compiling_here():
        call(np.int16(2))
    assert filled == []
    call(np.int8(2))
    assert sorted(filled) == ["another", "one model"]
    call(np.uint8(2))
    assert len(filled) == 2


@pytest.mark.parametrize("is_writable", [True, False])
def test_what_other_processes_leave_is_compiled_when_called(monkeypatch: pytest.MonkeyPatch, is_writable: bool) -> None:
    """A model says what to compile; when nothing can be kept, or no process can be started, nothing is done ahead."""
    done: list[Any] = []

    def begin(*_: Any) -> Any:
        done.append("processes")
        raise OSError

    monkeypatch.setattr(policy, "_wanted", {})
    monkeypatch.setattr(policy, "_filled", set())
    monkeypatch.setattr(warmup, "is_writable", lambda: is_writable)
    monkeypatch.setattr(warmup, "Compilation", begin)

    def do(usage: Any) -> None:
        if getattr(policy._here, "only_kept", False):
            raise policy.NotKeptError("a kernel")
        done.append(usage)

    monkeypatch.setenv("NUMBA_CACHE_DIR", WARM)
    monkeypatch.setattr(warmup, "do", do)
    monkeypatch.setattr(warmup, "_running", {})
    IncrementalBoostingClassifier(n_estimators=1, quantization=None).fit(np.eye(4), [0, 1, 0, 1])
    policy._fill()
    assert done == (["processes"] if is_writable else []), "a thread that helps would wait for Numba's lock forever"


def test_only_kinds_that_there_are_can_be_warmed_up() -> None:
    with pytest.raises(InputError, match="there is no kind 'bush': choose among forest, tree, "):
        warm_up("tree", "bush")


def test_progress_in_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    lines: list[str] = []
    write = Lines(lines.append)
    for seconds, *told in ((0, "a", 0, 0), (3, "a", 4, 9), (9, "a", 1234, 5000), (1, "b", 0, 0), (10, "b", 7, 0)):
        now[0] += seconds
        write(*told)  # type: ignore[arg-type]
    assert lines == ["a ...", "a: 1,234 of 5,000", "b ...", "b: 7"]
