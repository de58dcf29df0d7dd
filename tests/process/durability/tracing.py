"""What a server asked of the operating system, in order, as `strace` saw it."""

import os
import re
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.serving import APP, Running, run_program

# All that changes files, makes changes last, or sends answers.
FILE_CALLS = (
    "openat,open,creat,close,lseek,write,writev,pwrite64,pwritev,pwritev2,ftruncate,fallocate,copy_file_range,sendfile,"
    "fsync,fdatasync,sync_file_range,msync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir"
)
SOCKET_CALLS = "accept,accept4,sendto,sendmsg"
_WHOLE = re.compile(r"(?P<pid>\d+) +(?P<name>\w+)\((?P<arguments>.*)\) += (?P<result>-?\w+)")
_BEGUN = re.compile(r"(?P<pid>\d+) +(?P<name>\w+)\((?P<arguments>.*?),? *<unfinished \.\.\.>$")
_RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>(?P<arguments>.*)\) += (?P<result>-?\w+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


@dataclass(slots=True)
class Call:
    """A system call; a failed one has -1 as its result. It happened between two places in the order of all."""

    name: str
    arguments: str  # as strace writes them, texts in hexadecimal
    begin: int
    end: int = -1
    result: int = -1

    @property
    def place(self) -> int:
        """Where it took effect, as far as others can tell.

        A number that `close` gives back may be another file's before `close` has returned, and `openat` holds it only
        when it returns. A flush covers what had been written when it began.
        """
        return self.begin if self.name in ("close", "fsync", "fdatasync") else self.end

    def texts(self) -> list[bytes]:
        """Return the arguments that are texts or data."""
        return [bytes.fromhex(text.replace("\\x", "")) for text in _TEXT.findall(self.arguments)]

    def data(self) -> bytes:
        """Return what was written, all pieces of it."""
        return b"".join(self.texts())[: max(self.result, 0)]

    def numbers(self) -> list[int]:
        """Return the arguments that are plain numbers, in order, texts and flags left out."""
        plain = _TEXT.sub("", self.arguments)
        return [int(part, 0) for part in re.split(r"[,\s]+", plain) if re.fullmatch(r"-?\d+|0x[0-9a-f]+", part)]


def read_trace(path: Path) -> list[Call]:
    """Return the calls in the order in which they took effect; those that never returned are left out."""
    calls: list[Call] = []
    begun: dict[str, Call] = {}
    with path.open(encoding="ascii") as lines:
        for place, line in enumerate(lines):
            if found := _RESUMED.match(line):
                call = begun.pop(found["pid"])
                call.arguments += found["arguments"]
                call.end, call.result = place, _number(found["result"])
            elif found := _WHOLE.match(line):
                calls.append(Call(found["name"], found["arguments"], place, place, _number(found["result"])))
            elif found := _BEGUN.match(line):
                begun[found["pid"]] = Call(found["name"], found["arguments"], place)
                calls.append(begun[found["pid"]])
    return sorted((call for call in calls if call.end >= 0), key=lambda call: call.place)


def _number(text: str) -> int:
    return -1 if text == "?" else int(text, 0)


def hexadecimal(text: str) -> str:
    """Return a text as strace writes it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


def command(trace: Path) -> tuple[str, ...]:
    """Return the command line, traced into a file."""
    # Everything in hexadecimal and nothing cut short, so that files can be put together again.
    options = ("-f", "--seccomp-bpf", "-xx", "-s", "100000000", "-e", f"trace={FILE_CALLS},{SOCKET_CALLS}")
    return "strace", *options, "-e", "signal=none", "-o", str(trace), *APP


@cache
def why_not() -> str | None:
    """Return why nothing can be traced here; None when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = run_program("strace", "-f", "--seccomp-bpf", "-o", os.devnull, "true")
    return None if tried.returncode == 0 else "strace may not trace here"


def kill_traced(server: Running) -> None:
    """Kill a server that strace has started, and wait until all that it did is written down."""
    pid = server.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        with suppress(ProcessLookupError):  # it dies just now, as planned
            os.kill(int(child), signal.SIGKILL)
    server.process.wait(timeout=60)
