"""The allocator, free memory and core dumps, tried in processes of their own."""

import resource
import sys
from pathlib import Path

import pytest

from tests.serving import output_of, serving, small_table, spawned

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel")


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
    for calls, in_heap in (("", "True\n"), ("set_up_allocator()", "False\n")):  # the first is to be prevented
        assert output_of(sys.executable, "-c", FREED.format(calls)) == in_heap


@linux
def test_a_server_writes_no_core_file(tmp_path: Path) -> None:
    with serving(*small_table(tmp_path), "--ephemeral", cwd=tmp_path, start=spawned) as server:
        assert resource.prlimit(server.process.pid, resource.RLIMIT_CORE) == (0, 0)
