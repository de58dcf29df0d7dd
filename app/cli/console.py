"""What a person at the terminal sees: messages and progress on stderr, results on stdout."""

import logging
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from oubli.core.jit.compilation import Lines

log = logging.getLogger("oubli.cli")
messages = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def tell(text: str) -> None:
    """Write a message; the text is no markup."""
    if not _logged(logging.INFO, text):
        messages.print(escape(text))


def shows_values() -> bool:
    """Whether a person sees what is written, so that it may name values."""
    return messages.is_terminal and not messages.quiet


def warn(text: str) -> None:
    """Write a warning."""
    if not _logged(logging.WARNING, text):
        messages.print(f"[yellow]Note:[/yellow] {escape(text)}")


def complain(text: str) -> None:
    """Write an error."""
    if not _logged(logging.ERROR, text):
        messages.print(f"[bold red]Error:[/bold red] {escape(text)}")


def log_messages() -> None:
    """Log messages from now on, instead of writing them to the terminal."""
    messages.quiet = True


def _logged(level: int, text: str) -> bool:
    """Log a text when messages are logged; return whether it was."""
    if messages.quiet:
        log.log(level, "%s", text)
    return messages.quiet


class Bars:
    """A progress callback that draws one bar for each stage; without a terminal, it writes lines.

    Used as ``with Bars() as progress: ...``. Stages may report from any thread.
    """

    def __init__(self, console: Console = messages) -> None:
        self._console = console
        self._draws = console.is_terminal and not console.quiet
        self._lock = threading.Lock()
        self._lines = Lines(self._write)
        self._stage = ""
        self._task: TaskID | None = None
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> Self:
        if self._draws:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        if self._draws:
            self._progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show where a stage is; see :data:`oubli.app.progress.Progress`."""
        with self._lock:
            if not self._draws:
                self._lines(stage, done, total)
                return
            if stage != self._stage:
                self._finish()
                self._stage = stage
                self._task = self._progress.add_task(stage, total=total or None)
            if self._task is not None:
                self._progress.update(self._task, completed=done, total=total or None)

    def ask(self, question: str, answers: Sequence[str]) -> str | None:
        """Ask the person at the terminal to choose; None when there is none."""
        if not (self._draws and sys.stdin.isatty()):
            return None
        self._progress.stop()
        try:
            tell(f"\n{question}")
            for number, answer in enumerate(answers, start=1):
                tell(f"  {number}  {answer}")
            while True:
                said = self._console.input("Number or name: ").strip()
                if said.isdecimal() and 1 <= int(said) <= len(answers):
                    return answers[int(said) - 1]
                if said in answers:
                    return said
        finally:
            self._progress.start()

    def _write(self, line: str) -> None:
        if not _logged(logging.INFO, line):
            self._console.print(escape(line))

    def _finish(self) -> None:
        """The next stage has begun, so the last one is done, known total or not."""
        if self._task is not None:
            task = self._progress.tasks[self._task]
            end = task.total if task.total is not None else max(task.completed, 1)
            self._progress.update(self._task, completed=end, total=end)
            self._task = None
