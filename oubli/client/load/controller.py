"""The controller of a load test: it starts the workers, adds up what they measured, and deletes what they added."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from oubli.api.model import Schema
from oubli.client.load.plan import ADD, PREDICT, LoadTestError, Plan, Task
from oubli.client.load.records import REFUSED, Effort, Measured, Result
from oubli.client.load.target import Rows, Target, ask, explain, from_csv, from_held, from_schema, read_schema

HELD, MADE_UP = "held", "schema"
_LOOK = 0.1  # seconds between looks whether the test was stopped
_PATIENCE = 60.0  # seconds that a worker may take to start, and to add what it will delete
_DOUBT = 1.0  # seconds in which a server does what it was sent before a connection broke
_CLEAN_UP_SECONDS = 120.0  # that a server may refuse to delete, because it is busy or starts

Tell = Callable[[str], None]
Take = Callable[[int, str, Any], None]


class Workers:
    """The processes that send.

    Parameters
    ----------
    task
        What they do.
    """

    def __init__(self, task: Task) -> None:
        self._timeout = task.plan.timeout
        self._pipes: list[Connection] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ended: set[int] = set()
        with tempfile.TemporaryFile() as versions:
            versions.truncate(8 * task.plan.n_processes)
            for _ in range(task.plan.n_processes):
                ours, theirs = Pipe()
                descriptors = (theirs.fileno(), versions.fileno())
                command = [sys.executable, "-m", "oubli.client.load.worker", *map(str, descriptors)]
                # In a session of its own: Ctrl-C is for the controller, which lets the workers end in order.
                process = subprocess.Popen(command, pass_fds=descriptors, start_new_session=True)  # noqa: S603 - ourselves
                theirs.close()  # so that the pipe ends with the process
                self._pipes.append(ours)
                self._processes.append(process)
        for number, pipe in enumerate(self._pipes):
            with contextlib.suppress(OSError):  # one that has ended is noticed when it should be ready
                pipe.send((task, number))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let them run until the end of the block, and no longer; they end in order when it ends in order."""
        try:
            yield
            self.send(None)
            for process in self._processes:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self._timeout + 5)
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
            for pipe in self._pipes:
                pipe.close()

    def send(self, begin: float | None) -> None:
        """Have all of them begin the next step at a time; None: send nothing more, and end when all was answered."""
        for pipe in self._pipes:
            with contextlib.suppress(OSError):  # what one that has ended tells is read
                pipe.send(begin)

    def until(self, wanted: str, seconds: float, take: Take, look: Callable[[], None]) -> bool:
        """Pass on messages until each worker has sent an event or ended; return whether none has ended.

        Raises
        ------
        LoadTestError
            When one has failed, or takes longer than it may.
        """
        waiting = set(range(len(self._pipes))) - self._ended
        deadline = time.monotonic() + seconds
        while waiting:
            if time.monotonic() > deadline:
                raise LoadTestError(f"a process of the load test did not answer within {seconds:g} s")
            look()
            ready = wait([self._pipes[number] for number in waiting], _LOOK)
            for number in [one for one in waiting if self._pipes[one] in ready]:
                event, content = self._read(number)
                if event in (wanted, ""):
                    waiting.discard(number)
                else:
                    take(number, event, content)
        return not self._ended

    def _read(self, number: int) -> tuple[str, Any]:
        """Read a message; its event is empty when the process has ended as it should."""
        try:
            event, content = self._pipes[number].recv()
        except (EOFError, OSError):
            self._ended.add(number)
            if code := self._processes[number].wait():
                raise LoadTestError(f"process {number} of the load test has ended with code {code}") from None
            return "", None
        return event, content


@dataclass
class LoadTest:
    """A load test from its start to its end.

    Attributes
    ----------
    target
        The server.
    plan
        What is done.
    rows
        `held`, `schema`, or the path of a CSV file.
    observe
        Called each second with the step so far, and its number.
    tell
        Called with what a person should know.
    result
        What was measured so far.
    """

    target: Target
    plan: Plan
    rows: str
    observe: Callable[[Measured, int], None]
    tell: Tell
    result: Result = field(default_factory=lambda: Result(f"oubli-load-test-{uuid.uuid4().hex[:12]}"))
    _lost: str = ""  # why the server is taken for gone
    _has_added: bool = False
    _in_doubt: bool = False  # whether additions may be under way without being waited for

    def stop(self) -> None:
        """End in order before the time is over: wait for answers, and delete what was added. For signal handlers."""
        self.result.interrupted = True

    def run(self, *, key: str | None = None, ca_file: Path | None = None) -> Result:
        """Do it, and return what was measured; `KeyboardInterrupt` ends it without waiting for answers.

        Parameters
        ----------
        key, ca_file
            Of the target, for the workers.

        Raises
        ------
        LoadTestError
            When it cannot begin; nothing is left behind then. What happens later is in the result.
        """
        result = self.result
        status, result.model, _ = ask(self.target, "GET", "/model")
        if status != 200:
            raise LoadTestError(explain("GET /model", status, result.model))
        schema = read_schema(result.model)
        rows = self._read_rows(schema)
        if self.plan.mix.get(PREDICT):
            self._try("POST", "/predict", {"instances": rows.features[:1]})
        samples: list[tuple[list[Any], Any]] = []
        if self.plan.changes:
            if rows.labels is None:
                raise LoadTestError(f"the file {self.rows} has no column {schema.label.name!r}: additions need labels")
            samples = list(zip(rows.features, rows.labels, strict=True))
            result.may_read = ask(self.target, "GET", "/samples?limit=1")[0] == 200
        task = Task(self.target.url, key, ca_file, self.plan, result.subject, rows.features, samples, result.may_read)
        try:
            if self.plan.changes:
                self._try_changes(*samples[0])
            self._run_steps(task)
        except LoadTestError as error:
            self._in_doubt = True
            if not result.steps:
                raise
            result.failed = str(error)
        except KeyboardInterrupt:
            self._in_doubt = True
        finally:
            if self._has_added:
                self._delete_added()
        return result

    def _read_rows(self, schema: Schema) -> Rows:
        if self.rows == HELD:
            rows = from_held(self.target, schema)
            if rows.features:
                return rows
            self.tell("The server holds no samples: rows are made up by its schema.")
        elif self.rows != MADE_UP:
            return from_csv(Path(self.rows), schema)
        return from_schema(schema, self.plan.seed)

    # -- before -------------------------------------------------------------------------------------

    def _try(self, method: str, path: str, content: Any = None) -> None:
        """Send one request, so that what the server refuses is known before there is load."""
        status, answer, _ = ask(self.target, method, path, content)
        if not 200 <= status < 300:
            raise LoadTestError(explain(f"{method} {path}", status, answer))

    def _try_changes(self, features: list[Any], label: Any) -> None:
        subject = self.result.subject
        one = {"id": f"{subject}-try", "subject": subject, "features": features, "label": label}
        # A key that may add and not erase would leave everything behind.
        self._try("DELETE", f"/samples/{one['id']}")
        self.tell(f"Samples that are added have the subject {subject} and are deleted at the end.")
        self._has_added = True
        self._try("POST", "/samples", {"samples": [one]})

    # -- during -------------------------------------------------------------------------------------

    def _run_steps(self, task: Task) -> None:
        patience = 2 * self.plan.timeout + _PATIENCE
        workers = Workers(task)
        is_stopping = False

        def look() -> None:
            nonlocal is_stopping
            if self.result.interrupted and not is_stopping:
                is_stopping = True
                workers.send(None)
                self.tell(
                    "Stopping: waiting for answers, then deleting what was added. Ctrl-C again waits for no answers."
                )

        with workers.running():
            for step in self.plan.steps:
                if self.result.interrupted or not workers.until("ready", patience, self._take, look):
                    break
                measured = Measured(step, efforts=[Effort() for _ in range(self.plan.n_processes)])
                self.result.steps.append(measured)
                workers.send(time.monotonic() + 0.05)
                if not workers.until("done", step.seconds + patience, self._take, look) or self._lost:
                    break
            workers.send(None)
            workers.until("end", patience, self._take, look)
        if self._lost and not self.result.interrupted:
            raise LoadTestError(f"the server at {self.target.url} is gone ({self._lost})")

    def _take(self, process: int, event: str, content: Any) -> None:
        """Record a message of a worker."""
        steps = self.result.steps
        if event == "lost":
            self._lost = self._lost or content
        elif event == "part":
            steps[-1].add(process, content)
            self.result.promises.add(content.record)
            self.observe(steps[-1], len(steps) - 1)

    # -- after --------------------------------------------------------------------------------------

    def _delete_added(self) -> None:
        """Delete all samples of the test's subject until there are none.

        A deletion that finds nothing is answered with the receipt of the one before, or with one of no samples. It does
        find some when the server makes an addition whose connection had broken.
        """
        why, before = "", None
        deadline = time.monotonic() + _CLEAN_UP_SECONDS
        content = {"subjects": [self.result.subject]}
        try:
            while time.monotonic() < deadline:
                status, receipt, after = ask(self.target, "POST", "/samples/batch-delete", content, seconds=600)
                if status == 200:
                    if not receipt["unlearned"] or receipt["id"] == before:
                        return
                    before = receipt["id"]
                    if self._in_doubt or self.result.promises.operations[ADD].unanswered:
                        time.sleep(_DOUBT)
                    continue
                why = explain("POST /samples/batch-delete", status, receipt)
                if status not in REFUSED:
                    break
                time.sleep(min(float(after), 10.0) if after.isdecimal() else 1.0)
            why = why or "there are always more of them"
        except LoadTestError as error:
            why = str(error)
        except KeyboardInterrupt:
            why = "deleting them was interrupted"
        self.result.left_behind = why
