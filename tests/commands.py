"""Commands of `oubli` for scripts of a shell, as forks of a process that has `tests.preloaded`: each starts at once.

    with commands(folder) as command:     # three words of a shell's command line
        subprocess.run(["sh", "-c", f"{command} verify model.oubli"])

What the shell starts is this file: it hands arguments, folder, environment and files over to the process that forks,
passes signals on, and ends as the command does.
"""

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_LONGEST = 1 << 17  # bytes of a request
_KIND = socket.SOCK_SEQPACKET  # what is sent at once arrives at once


@contextmanager
def commands(folder: Path) -> Iterator[str]:
    """Take commands until the end of the block; yield how a shell calls one."""
    from tests.serving import fork_server

    address = folder / "commands"
    with socket.socket(socket.AF_UNIX, _KIND) as listener:
        listener.bind(str(address))
        listener.listen()
        process = fork_server().Process(target=_take, args=(listener,), daemon=True)
        process.start()
    yield f"{sys.executable} -IS {__file__} {address}"
    process.kill()
    process.join()


def _take(listener: socket.socket) -> None:
    """Fork an attendant for each command that comes."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no one waits for them
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _attend(connection)
            os._exit(0)
        connection.close()


def _attend(connection: socket.socket) -> None:
    """Run a command in a process of its own, and tell who has asked for it how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    content, files, *_ = socket.recv_fds(connection, _LONGEST, 3)
    asked = json.loads(content)
    child = os.fork()
    if child == 0:
        connection.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os._exit(_run(asked))
    with suppress(OSError):  # it was killed
        connection.send(str(child).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _run(asked: dict[str, Any]) -> int:
    from tests.serving import run_main

    try:
        run_main(["-m", "oubli", *asked["arguments"]], asked["folder"], asked["variables"])
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        with suppress(OSError):
            sys.stdout.flush()
    return 0


def _ask(address: str, arguments: list[str]) -> int:
    """Have a command run and return its exit code."""
    with socket.socket(socket.AF_UNIX, _KIND) as connection:
        connection.connect(address)
        asked = {"arguments": arguments, "folder": str(Path.cwd()), "variables": dict(os.environ)}
        socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2])
        child = int(connection.recv(64))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(child, number))
        ended = int(connection.recv(64))
    return ended if ended >= 0 else 128 - ended


if __name__ == "__main__":
    sys.exit(_ask(sys.argv[1], sys.argv[2:]))
