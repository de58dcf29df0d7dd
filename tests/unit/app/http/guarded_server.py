"""The command line with a guard: whatever is compiled or loaded on a running event loop is written to a file.

python -m tests.unit.app.http.guarded_server serve ...      GUARD_NOTES names the file
"""

import asyncio
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from oubli.app.cli.main import main
from oubli.app.service.compiling import use_kernel_cache


def guard(note: Any) -> None:
    """Call `note` with each kernel that is compiled or loaded in a thread whose event loop runs, and who asked."""
    from numba.core.dispatcher import Dispatcher

    compile_ = Dispatcher.compile

    def watched(self: Any, sig: Any) -> Any:
        if asyncio._get_running_loop() is not None:
            frames = [frame for frame in traceback.extract_stack() if "/app/" in frame.filename]
            callers = [f"{frame.name}:{frame.lineno}" for frame in frames]
            note(f"{self.py_func.__module__}.{self.py_func.__name__} {sig} for {' '.join(callers[-6:])}")
        return compile_(self, sig)

    Dispatcher.compile = watched


def _note(name: str) -> None:
    with Path(os.environ["GUARD_NOTES"]).open("a") as file:
        file.write(f"{name}\n")


if __name__ == "__main__":
    use_kernel_cache()
    guard(_note)
    main(sys.argv[1:])
