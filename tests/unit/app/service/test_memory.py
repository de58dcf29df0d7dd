"""The allocator, free memory and core dumps, tried in processes of their own."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import ROOT, serving, spawned

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel")


def run(script: str, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


FREED = """
import ctypes
from oubli.app.service.memory import set_up_allocator
{}
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
library.free(library.malloc(8 << 20))  # freed once, maps are for larger ones only unless that was fixed
one, fence = library.malloc(4 << 20), library.malloc(64)
with open("/proc/self/maps") as maps:
    heap = [line.split()[0].split("-") for line in maps if "[heap]" in line]
print(any(int(a, 16) <= one < int(b, 16) for a, b in heap))
"""


@linux
def test_large_arrays_stay_maps_of_their_own() -> None:
    assert run(FREED.format("")) == "True\n"  # what is to be prevented
    assert run(FREED.format("set_up_allocator()")) == "False\n"


SMALL = '{"task": "classification", "label": {"type": "string"}, "columns": [{"name": "a", "type": "numeric"}]}'


@linux
def test_a_server_writes_no_core_file(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(SMALL)
    arguments = ("--schema", "schema.json", "--ephemeral", "--n-estimators", "2")
    with serving(*arguments, cwd=tmp_path, start=spawned) as server:
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_CORE)
        assert limits == (0, 0)
