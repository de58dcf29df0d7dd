"""The model of a disk itself: what lasts and what does not."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.process.durability.disk import Disk
from tests.process.durability.tracing import hexadecimal, read_trace


class Traced:
    """A directory with a file `old`, and system calls on it, written as strace writes them."""

    def __init__(self, folder: Path) -> None:
        self.directory = folder / "data"
        self.directory.mkdir()
        (self.directory / "old").write_text("old")
        self.trace = folder / "trace"

    def call(self, text: str, result: int = 0) -> None:
        with self.trace.open("a") as file:
            file.write(f"17  {text} = {result}\n")

    def open(self, name: str, descriptor: int, flags: str = "O_RDWR|O_CREAT|O_CLOEXEC") -> None:
        self.call(f"openat(AT_FDCWD, {self.name(name)}, {flags}, 0644)", descriptor)

    def name(self, name: str) -> str:
        return hexadecimal(str(self.directory / name))

    def write(self, descriptor: int, text: str) -> None:
        self.call(f"write({descriptor}, {hexadecimal(text)}, {len(text)})", len(text))

    def flush_directory(self) -> None:
        self.open(".", 99, "O_RDONLY|O_CLOEXEC")
        self.call("fsync(99)")

    def left(self) -> dict[str, str]:
        """The files after a power loss."""
        disk = Disk(self.directory)
        disk.apply(read_trace(self.trace))
        with TemporaryDirectory() as name:
            disk.write_to(Path(name, "left"))
            return {path.name: path.read_text() for path in Path(name, "left").iterdir()}


def test_what_is_flushed_with_its_name_lasts(tmp_path):
    traced = Traced(tmp_path)
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
