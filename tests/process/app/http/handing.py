"""Run the command line as it is, and end or hold it where two hand the sockets to each other.

python tests/process/app/http/handing.py STEP serve --port 8000 ...

told          the standby was told to stop, and the application does not listen yet
listening     the application listens, and the standby may still answer
again         a signal has come, and the standby was told to begin again
closed        the application has closed its sockets; the last snapshot was not begun
written       the last snapshot is written
hold          not an end: the last snapshot waits until there is a file named `go`
"""

import asyncio
import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def wrap(owner: Any, name: str, before: Any = None, after: Any = None) -> None:
    """Do something before or after each call of a coroutine function."""
    function = getattr(owner, name)

    @functools.wraps(function)
    async def wrapped(*arguments: Any, **options: Any) -> Any:
        if before is not None:
            await before()
        result = await function(*arguments, **options)
        if after is not None:
            await after()
        return result

    setattr(owner, name, wrapped)


async def dying() -> None:
    """End at once, as the machine might."""
    os.kill(os.getpid(), signal.SIGKILL)


async def waiting() -> None:
    while not Path("go").exists():  # noqa: ASYNC110, ASYNC240 - a file, because another process makes it
        await asyncio.sleep(0.01)


def main() -> None:
    """Prepare the step, then run the command line."""
    from oubli.app.cli.main import main as run
    from oubli.app.service.compiling import use_kernel_cache

    use_kernel_cache()
    from oubli.app.http.server import Server
    from oubli.app.http.standby import Standby
    from oubli.app.service.erasure.checkpoint import Checkpointer
    from oubli.app.service.lifecycle import Lifecycle

    start = Standby.start

    def start_and_die(standby: Standby, phase: Any, **options: Any) -> None:
        start(standby, phase, **options)
        if phase == "stopping":
            os.kill(os.getpid(), signal.SIGKILL)

    steps: dict[str, Callable[[], None]] = {
        "told": lambda: wrap(Server, "startup", before=dying),
        "listening": lambda: wrap(Server, "startup", after=dying),
        "again": lambda: setattr(Standby, "start", start_and_die),
        "closed": lambda: wrap(Lifecycle, "stop", before=dying),
        "written": lambda: wrap(Checkpointer, "write_snapshot", after=dying),
        "hold": lambda: wrap(Checkpointer, "write_snapshot", before=waiting),
    }
    steps[sys.argv.pop(1)]()
    run()


if __name__ == "__main__":
    main()
