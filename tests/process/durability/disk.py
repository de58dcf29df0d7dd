"""A disk that keeps only what it was told to keep: a directory, put together again from the system calls on it.

    name -> file     last for good when the directory is flushed (fsync of the directory)
    file content     lasts for good when the file is flushed (fsync or fdatasync of the file)

Everything after the last flush is gone when power goes; or, as disks are free to do, some of it is there, some is not.
A file system that orders things better than this loses less, so what is recovered here is recovered there.
"""

import os
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.process.durability.tracing import Call

_DIRECTORY = os.sep  # after the names of directories, which last like those of files
WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")


@dataclass(eq=False)
class File:
    """What is on the disk of a file for good, and what was changed since."""

    durable: bytearray
    length: int
    changes: list[Callable[[bytearray], None]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        self.length = max(self.length, offset + len(data))

        def change(content: bytearray) -> None:
            content.extend(bytes(max(0, offset - len(content))))
            content[offset : offset + len(data)] = data

        self.changes.append(change)

    def resize(self, length: int, *, shrink: bool = True) -> None:
        if not shrink and length <= self.length:
            return
        self.length = length

        def change(content: bytearray) -> None:
            del content[length:]
            content.extend(bytes(length - len(content)))

        self.changes.append(change)

    def flush(self) -> None:
        for change in self.changes:
            change(self.durable)
        self.changes.clear()

    def now(self) -> bytes:
        """Return what a reader finds in it."""
        return self._after(self.changes)

    def after_power_loss(self, lucky: random.Random | None) -> bytes:
        """Return its content; with luck some of the changes since the last flush are there, in any order."""
        return self._after([one for one in self.changes if lucky is not None and lucky.random() < 0.5])

    def _after(self, changes: list[Callable[[bytearray], None]]) -> bytes:
        content = bytearray(self.durable)
        for change in changes:
            change(content)
        return bytes(content)


Names = dict[str, File]


@dataclass
class Opened:
    """A file descriptor."""

    target: File | str  # a directory's path
    offset: int = 0
    appends: bool = False


class Disk:
    """The files of one directory tree, from a copy of it as it was at the beginning, all of which lasts."""

    def __init__(self, directory: Path, beginning: Path) -> None:
        self._root = str(directory)
        self._cwd = str(directory.parent)
        self._names: Names = {}
        self._directories = {self._root}
        for path in beginning.rglob("*"):
            name = str(directory / path.relative_to(beginning))
            if path.is_dir():
                self._directories.add(name)
                self._names[name + _DIRECTORY] = File(bytearray(), 0)
            else:
                content = path.read_bytes()
                self._names[name] = File(bytearray(content), len(content))
        self._durable = dict(self._names)
        self._changes: list[tuple[str, Callable[[Names], object]]] = []
        self._opened: dict[int, Opened] = {}

    def _file(self, descriptor: int) -> File | None:
        opened = self._opened.get(descriptor)
        return None if opened is None or isinstance(opened.target, str) else opened.target

    def name_of(self, descriptor: int) -> str | None:
        """Return the name of the file that a descriptor is open on, relative to the directory."""
        names = [name for name, file in self._names.items() if file is self._file(descriptor)]
        return os.path.relpath(names[0], self._root) if names else None

    def now(self) -> dict[str, bytes]:
        """Return what a reader finds in each file, by its name relative to the directory."""
        files = {name: file for name, file in self._names.items() if not name.endswith(_DIRECTORY)}
        return {os.path.relpath(name, self._root): file.now() for name, file in files.items()}

    def apply(self, calls: Iterable[Call]) -> None:
        """Do what system calls did, in their order."""
        for call in calls:
            if call.result >= 0:
                self._apply(call)

    def write_to(self, directory: Path, lucky: random.Random | None = None) -> None:
        """Write what is left after a power loss; luck is for what was not flushed."""
        names = dict(self._durable)
        if lucky is not None:
            # A file system with a journal keeps the order of what happened to names.
            for _, change in self._changes[: lucky.randint(0, len(self._changes))]:
                change(names)
        directory.mkdir(parents=True)
        for name, file in names.items():
            parents = [str(parent) for parent in Path(name).parents if self._is_ours(str(parent))]
            # It can be found when the names of all directories on the way to it are there.
            is_reached = all(parent == self._root or parent + _DIRECTORY in names for parent in parents)
            if name.endswith(_DIRECTORY) or not is_reached:
                continue
            path = directory / os.path.relpath(name, self._root)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.after_power_loss(lucky))
            path.chmod(0o600)

    # --- one call

    def _apply(self, call: Call) -> None:
        name = call.name
        if name in ("openat", "open", "creat"):
            self._open(call)
        elif name == "close":
            self._opened.pop(call.numbers()[0], None)
        elif name in WRITES:
            self._write(call)
        elif name in ("fsync", "fdatasync"):
            self._flush(call.numbers()[0])
        elif name == "ftruncate":
            self._resize(*call.numbers()[:2])
        elif name == "lseek":
            if (opened := self._opened.get(call.numbers()[0])) is not None:
                opened.offset = call.result
        elif name == "fallocate":
            self._allocate(call)
        elif name.startswith("rename"):
            self._rename(*(self._path(text) for text in call.texts()))
        elif name.startswith("unlink"):
            path = self._path(call.texts()[0])
            if path in self._names:
                self._change(path, lambda names: names.pop(path, None))
        elif name.startswith("mkdir"):
            path = self._path(call.texts()[0])
            if self._is_ours(path) and path != self._root:
                self._directories.add(path)
                empty = File(bytearray(), 0)
                self._change(path, lambda names: names.update({path + _DIRECTORY: empty}))
        elif name == "sendfile":
            self._copy(call)
        elif name in ("copy_file_range", "link", "linkat"):
            self._refuse_to_guess(call)

    def _open(self, call: Call) -> None:
        path = self._path(call.texts()[0])
        self._opened.pop(call.result, None)
        if not self._is_ours(path):
            return
        if path in self._directories:
            self._opened[call.result] = Opened(path)
            return
        file = self._names.get(path) or File(bytearray(), 0)
        if path not in self._names:
            self._change(path, lambda names: names.update({path: file}))
        if "O_TRUNC" in call.arguments:
            file.resize(0)
        self._opened[call.result] = Opened(file, appends="O_APPEND" in call.arguments)

    def _write(self, call: Call) -> None:
        numbers = call.numbers()
        file = self._file(numbers[0])
        if file is None:
            return
        data = call.data()
        if call.name.startswith("pwrite"):
            file.write(numbers[2], data)
            return
        opened = self._opened[numbers[0]]
        offset = file.length if opened.appends else opened.offset
        file.write(offset, data)
        opened.offset = offset + len(data)

    def _copy(self, call: Call) -> None:
        """Copy from one file to another: `sendfile(to, from, [offset] => [end], count)`."""
        target, source = (self._opened.get(descriptor) for descriptor in call.numbers()[:2])
        if target is None or source is None:
            return
        assert isinstance(target.target, File)
        assert isinstance(source.target, File)
        found = re.search(r"\[(\d+)\]", call.arguments)
        offset = source.offset if found is None else int(found[1])
        target.target.write(target.offset, source.target.now()[offset : offset + call.result])
        target.offset += call.result
        if found is None:
            source.offset += call.result

    def _allocate(self, call: Call) -> None:
        numbers = call.numbers()
        if len(numbers) == 4:  # without a flag, which would be a word
            self._resize(numbers[0], numbers[2] + numbers[3], shrink=False)
        elif numbers[0] in self._opened and "KEEP_SIZE" not in call.arguments:
            raise AssertionError("fallocate with a flag: teach this model what it does")

    def _resize(self, descriptor: int, length: int, *, shrink: bool = True) -> None:
        if (file := self._file(descriptor)) is not None:
            file.resize(length, shrink=shrink)

    def _flush(self, descriptor: int) -> None:
        opened = self._opened.get(descriptor)
        if opened is None:
            return
        if isinstance(opened.target, File):
            opened.target.flush()
            return
        for folder, change in self._changes:
            if folder == opened.target:
                change(self._durable)
        self._changes = [one for one in self._changes if one[0] != opened.target]

    def _rename(self, source: str, target: str) -> None:
        if not self._is_ours(target):
            return
        file = self._names[source]

        def change(names: Names) -> None:
            names.pop(source, None)
            names[target] = file

        self._change(target, change)

    def _change(self, path: str, change: Callable[[Names], object]) -> None:
        """Change a name now; it lasts when the directory is flushed."""
        change(self._names)
        self._changes.append((str(Path(path).parent), change))

    def _refuse_to_guess(self, call: Call) -> None:
        is_open = any(number in self._opened for number in call.numbers()[:3])
        if is_open or any(self._is_ours(self._path(text)) for text in call.texts()):
            raise AssertionError(f"{call.name} on a file of the directory: teach this model what it does")

    def _path(self, text: bytes) -> str:
        return os.path.normpath(os.path.join(self._cwd, os.fsdecode(text)))  # noqa: PTH118 - nothing is there to ask

    def _is_ours(self, path: str) -> bool:
        return path == self._root or path.startswith(self._root + os.sep)
