"""Processes that compile at the same time and keep what they compiled in the same directory."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core.caching import IndexDataCacheFile

from core._cache import write_in_turn

pytest.importorskip("fcntl")

# Keeps what stands for compiled code of many types, one after the other, as Numba does.
WRITER = """
import sys
from numba.core.caching import IndexDataCacheFile
from core._cache import write_in_turn

write_in_turn()
file = IndexDataCacheFile(sys.argv[1], "kernel", "stamp")
sys.stdin.readline()
for i in range(100):
    key = (sys.argv[2], i)
    file.save(key, key)
"""

READER = """
import sys
from numba.core.caching import IndexDataCacheFile

file = IndexDataCacheFile(sys.argv[1], "kernel", "stamp")
for writer in sys.argv[2:]:
    for i in range(100):
        assert file.load((writer, i)) == (writer, i), (writer, i)
"""


def test_each_type_gets_its_own_code(tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name], stdin=subprocess.PIPE, text=True)
        for name in names
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    subprocess.run([sys.executable, "-c", READER, str(tmp_path), *names], check=True)


def test_without_locks_it_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    write_in_turn()
    monkeypatch.setattr("core._cache.fcntl.flock", refuse)
    file = IndexDataCacheFile(str(tmp_path), "kernel", "stamp")
    file.save("key", "code")
    assert file.load("key") == "code"
