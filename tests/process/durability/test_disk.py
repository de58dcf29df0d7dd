"""The model of a disk itself: what lasts and what does not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.process.durability.disk import Disk
from tests.process.durability.tracing import hexadecimal, read_trace


class Traced:
    """A directory with a file `old`, and system calls on it, written as strace writes them."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "data"
        self.directory.mkdir()
        (self.directory / "old").write_text("old")
        self.lines: list[str] = []

    def call(self, text: str, result: int = 0) -> None:
        self.lines.append(f"17  {text} = {result}")

    def open(self, name: str, descriptor: int, flags: str = "O_RDWR|O_CREAT|O_CLOEXEC") -> None:
        self.call(f"openat(AT_FDCWD, {self.name(name)}, {flags}, 0644)", descriptor)

    def name(self, name: str) -> str:
        return hexadecimal(str(self.directory / name))

    def write(self, descriptor: int, text: str, at: int | None = None) -> None:
        how, place = ("write", "") if at is None else ("pwrite64", f", {at}")
        self.call(f"{how}({descriptor}, {hexadecimal(text)}, {len(text)}{place})", len(text))

    def flush_directory(self) -> None:
        self.open(".", 99, "O_RDONLY|O_CLOEXEC")
        self.call("fsync(99)")

    def left(self, lucky: random.Random | None = None) -> dict[str, str]:
        """The files after a power loss."""
        path = self.directory.parent / f"trace{random.getrandbits(64)}"
        path.write_text("\n".join(self.lines) + "\n")
        disk = Disk(self.directory)
        disk.apply(read_trace(path))
        target = path.with_suffix(".left")
        disk.write_to(target, lucky)
        return {path.name: path.read_text() for path in target.iterdir()}


@pytest.fixture
def traced(tmp_path: Path) -> Traced:
    return Traced(tmp_path)


def test_what_is_flushed_with_its_name_lasts(traced):
    traced.open("new", 5)
    traced.write(5, "one")
    traced.call("fsync(5)")
    assert traced.left() == {"old": "old"}
    traced.flush_directory()
    traced.write(5, "two")
    assert traced.left() == {"old": "old", "new": "one"}
    traced.call("fdatasync(5)")
    assert traced.left() == {"old": "old", "new": "onetwo"}
    traced.call(f"rename({traced.name('new')}, {traced.name('old')})")
    assert traced.left() == {"old": "old", "new": "onetwo"}
    traced.flush_directory()
    assert traced.left() == {"old": "onetwo"}
    traced.call(f"unlink({traced.name('old')})")
    assert traced.left() == {"old": "onetwo"}
    traced.flush_directory()
    assert traced.left() == {}
