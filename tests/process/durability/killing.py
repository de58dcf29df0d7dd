"""Run the command line as it is, and end it without warning at one step of what it does to the disk.

    python tests/process/durability/killing.py PLAN.json serve --port 8000 ...

The plan is an object: `directory` is the data directory; only what is done in it counts. `log` is a file that gets a
line for each step begun. `kill`, if it is not null, has the name of a step, its number among those of that name, and
whether the process dies before or after it.
"""

import functools
import importlib
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What changes files or makes changes last, as Python code calls it; SQLite's own calls are inside the methods below.
CALLS = ("fsync", "fdatasync", "replace", "rename", "unlink", "rmdir")
METHODS = (
    ("oubli.app.storage.journal", "SqliteJournal", "append"),
    ("oubli.app.storage.journal", "SqliteJournal", "rotate"),
    ("oubli.app.storage.journal", "SqliteJournal", "drop_before"),
    ("oubli.app.ledger.database", "LedgerDatabase", "fold_many"),
    ("oubli.app.ledger.database", "LedgerDatabase", "flush"),
    ("oubli.app.storage.snapshots", "SnapshotStore", "write"),
    ("oubli.app.service.model.state", "ModelLock", "pause"),
)


class Steps:
    """Counts steps, writes them down, and kills at one of them."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self._directory = str(Path(plan["directory"]).resolve())
        self._kill = plan["kill"]
        self._log = os.open(plan["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def wrap(self, owner: Any, attribute: str, name: str, *, in_directory: bool) -> None:
        """Make every call of a function a step, or only those about files in the data directory."""
        function: Callable[..., Any] = getattr(owner, attribute)

        @functools.wraps(function)
        def counted(*arguments: Any, **options: Any) -> Any:
            if in_directory and not self._is_ours(arguments[0]):
                return function(*arguments, **options)
            is_last = self._begin(name)
            if is_last and self._kill["when"] == "before":
                die()
            try:
                return function(*arguments, **options)
            finally:
                if is_last:
                    die()

        setattr(owner, attribute, counted)

    def _begin(self, name: str) -> bool:
        with self._lock:
            self._counts[name] += 1
            os.write(self._log, f"{name}\n".encode("ascii"))
            return self._kill is not None and (name, self._counts[name]) == (self._kill["step"], self._kill["number"])

    def _is_ours(self, target: Any) -> bool:
        try:
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.path.abspath(target)  # noqa: PTH100, PTH115 - Path would call what is wrapped
        except OSError:
            return False
        return path.startswith(self._directory)


def die() -> None:
    """End at once, as the machine might."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Prepare the steps, then run the command line."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    from oubli.app.cli.main import main as run
    from oubli.app.service.compiling import use_kernel_cache

    use_kernel_cache()
    steps = Steps(plan)
    for call in CALLS:
        steps.wrap(os, call, f"os.{call}", in_directory=True)
    for module, owner, method in METHODS:
        steps.wrap(getattr(importlib.import_module(module), owner), method, f"{owner}.{method}", in_directory=False)
    run(sys.argv[2:])


if __name__ == "__main__":
    main()
