"""The model of a disk itself: what lasts and what does not."""

from tests.process.durability.disk import Disk
from tests.process.durability.tracing import hexadecimal, read_trace


def test_what_is_flushed_with_its_name_lasts(tmp_path):
    """System calls on a directory with a file `old`, as strace writes them, and what a power loss after them leaves."""
    directory, trace = tmp_path / "data", tmp_path / "trace"
    directory.mkdir()
    (directory / "old").write_text("old")
    itself, old, new = (hexadecimal(str(directory / name)) for name in (".", "old", "new"))
    made = f"openat(AT_FDCWD, {new}, O_RDWR|O_CREAT|O_CLOEXEC, 0644) = 5"
    one, two = (f"write(5, {hexadecimal(text)}, 3) = 3" for text in ("one", "two"))
    flushed = (f"openat(AT_FDCWD, {itself}, O_RDONLY|O_CLOEXEC, 0644) = 99", "fsync(99) = 0")
    steps = (
        ((made, one, "fsync(5) = 0"), {"old": "old"}),
        ((*flushed, two), {"old": "old", "new": "one"}),
        (("fdatasync(5) = 0",), {"old": "old", "new": "onetwo"}),
        ((f"rename({new}, {old}) = 0",), {"old": "old", "new": "onetwo"}),
        (flushed, {"old": "onetwo"}),
        ((f"unlink({old}) = 0",), {"old": "onetwo"}),
        (flushed, {}),
    )
    for number, (calls, left) in enumerate(steps):
        with trace.open("a") as file:
            file.writelines(f"17  {call}\n" for call in calls)
        disk = Disk(directory, directory)
        disk.apply(read_trace(trace))
        place = tmp_path / f"left{number}"
        disk.write_to(place)
        assert {path.name: path.read_text() for path in place.iterdir()} == left
