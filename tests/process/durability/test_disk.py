"""The model of a disk itself: what lasts and what does not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.process.durability.disk import Disk
from tests.process.durability.tracing import Call, read_trace


def hexadecimal(text: str) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "old").write_text("old")
    return directory


class Trace:
    """System calls, written as strace writes them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.lines: list[str] = []

    def call(self, text: str, result: int = 0) -> None:
        self.lines.append(f"17  {text} = {result}")

    def open(self, name: str, descriptor: int, flags: str = "O_RDWR|O_CREAT|O_CLOEXEC") -> None:
        self.call(f"openat(AT_FDCWD, {hexadecimal(str(self._directory / name))}, {flags}, 0644)", descriptor)

    def write(self, descriptor: int, text: str) -> None:
        self.call(f"write({descriptor}, {hexadecimal(text)}, {len(text)})", len(text))

    def calls(self, tmp_path: Path) -> list[Call]:
        path = tmp_path / "trace"
        path.write_text("\n".join(self.lines) + "\n")
        return read_trace(path)


def left(directory: Path, trace: Trace, tmp_path: Path, lucky: random.Random | None = None) -> dict[str, str]:
    disk = Disk(directory)
    disk.apply(trace.calls(tmp_path))
    target = tmp_path / f"left{random.getrandbits(64)}"
    disk.write_to(target, lucky)
    return {path.name: path.read_text() for path in target.iterdir()}


def test_what_is_flushed_with_its_name_lasts(directory, tmp_path):
    trace = Trace(directory)
    trace.open("new", 5)
    trace.write(5, "one")
    trace.call("fsync(5)")
    assert left(directory, trace, tmp_path) == {"old": "old"}
    trace.open(".", 6, "O_RDONLY|O_CLOEXEC")
    trace.call("fsync(6)")
    trace.write(5, "two")
    assert left(directory, trace, tmp_path) == {"old": "old", "new": "one"}
    trace.call("fdatasync(5)")
    assert left(directory, trace, tmp_path) == {"old": "old", "new": "onetwo"}


def test_renames_and_removals_last_with_their_directory(directory, tmp_path):
    trace = Trace(directory)
    trace.open("temporary", 5)
    trace.write(5, "new")
    trace.call("fsync(5)")
    names = [hexadecimal(str(directory / name)) for name in ("temporary", "old", "gone")]
    trace.call(f"rename({names[0]}, {names[1]})")
    assert left(directory, trace, tmp_path) == {"old": "old"}
    trace.open(".", 6, "O_RDONLY|O_CLOEXEC")
    trace.call("fsync(6)")
    assert left(directory, trace, tmp_path) == {"old": "new"}
    trace.call(f"unlink({names[1]})")
    assert left(directory, trace, tmp_path) == {"old": "new"}
    trace.call("fsync(6)")
    assert left(directory, trace, tmp_path) == {}


def test_places_and_lengths(directory, tmp_path):
    trace = Trace(directory)
    trace.open("old", 5, "O_RDWR|O_CLOEXEC")
    trace.call(f"pwrite64(5, {hexadecimal('XY')}, 2, 5)", 2)
    trace.call("ftruncate(5, 6)")
    trace.call("fdatasync(5)")
    assert left(directory, trace, tmp_path) == {"old": "old\0\0X"}
    trace.open("old", 7, "O_WRONLY|O_TRUNC|O_CLOEXEC")
    trace.call("lseek(7, 2, SEEK_SET)", 2)
    trace.write(7, "Z")
    trace.call("fsync(7)")
    assert left(directory, trace, tmp_path) == {"old": "\0\0Z"}


def test_copies_inside_the_kernel(directory, tmp_path):
    trace = Trace(directory)
    trace.open("old", 5, "O_RDWR|O_CLOEXEC")
    trace.call(f"pwrite64(5, {hexadecimal('more')}, 4, 3)", 4)
    trace.open("old", 6, "O_WRONLY|O_CLOEXEC")
    trace.open("copy", 7)
    trace.call("sendfile(7, 5, [0] => [4], 4)", 4)
    trace.call("sendfile(7, 5, [4] => [7], 100)", 3)
    trace.call("fsync(7)")
    trace.open(".", 8, "O_RDONLY|O_CLOEXEC")
    trace.call("fsync(8)")
    assert left(directory, trace, tmp_path) == {"old": "old", "copy": "oldmore"}


def test_with_luck_some_of_the_rest_is_there(directory, tmp_path):
    trace = Trace(directory)
    trace.open("old", 5, "O_RDWR|O_CLOEXEC")
    trace.call(f"pwrite64(5, {hexadecimal('A')}, 1, 0)", 1)
    trace.call(f"pwrite64(5, {hexadecimal('B')}, 1, 1)", 1)
    found = {left(directory, trace, tmp_path, random.Random(seed))["old"] for seed in range(40)}
    assert found == {"old", "Ald", "oBd", "ABd"}


def test_calls_that_were_interrupted_in_the_trace_are_put_together(tmp_path):
    path = tmp_path / "trace"
    path.write_text(
        "17  fdatasync(5 <unfinished ...>\n"
        f"18  write(9, {hexadecimal('hello')}, 5) = 5\n"
        "17  <... fdatasync resumed>) = 0\n"
        "18  fsync(6 <unfinished ...>\n"
        '17  unlink("\\x61") = -1 ENOENT (No such file or directory)\n'
        "17  +++ killed by SIGKILL +++\n"
    )
    flush, write, unlink = read_trace(path)
    assert (flush.name, flush.begin, flush.end, flush.numbers()) == ("fdatasync", 0, 2, [5])
    assert (write.begin, write.end, write.data()) == (1, 1, b"hello")
    assert unlink.result == -1
    assert unlink.texts() == [b"a"]


def test_a_descriptor_that_goes_from_one_file_to_another_is_followed(directory, tmp_path):
    """The number is given back by one thread and taken by another before either call has returned."""
    trace = Trace(directory)
    trace.open("old", 5, "O_RDWR|O_CLOEXEC")
    name = hexadecimal(str(directory / "new"))
    trace.lines += [
        f"18  openat(AT_FDCWD, {name}, O_RDWR|O_CREAT|O_CLOEXEC, 0600 <unfinished ...>",
        "17  close(5 <unfinished ...>",
        "18  <... openat resumed>) = 5",
        "17  <... close resumed>) = 0",
    ]
    trace.write(5, "whole")
    trace.call("fsync(5)")
    trace.open(".", 6, "O_RDONLY|O_CLOEXEC")
    trace.call("fsync(6)")
    assert left(directory, trace, tmp_path) == {"old": "old", "new": "whole"}
