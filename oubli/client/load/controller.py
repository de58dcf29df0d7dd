"""Starts the workers, puts together what they measured, and takes away what they added."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from oubli.client.load.http import Target, ask, explain
from oubli.client.load.plan import ADD, PREDICT, LoadTestError, Plan, Step
from oubli.client.load.records import REFUSED, Effort, Record
from oubli.client.load.rows import Rows, Schema, from_csv, from_held, from_schema
from oubli.client.load.worker import Floor

HELD, MADE_UP = "held", "schema"
_LONGEST_LINE = 2**26  # bytes of a message
_SHORT = 0.5  # seconds
_PATIENCE = 60.0  # seconds that a worker may take to start, and to add what it will delete
_DOUBT = 1.0  # seconds in which a server does what it was sent before a connection broke
_CLEAN_UP_SECONDS = 120.0  # that a server may refuse to delete, because it is busy or starts


@dataclass
class Part:
    """What all workers measured in about a second; times from the begin of the step."""

    begin: float
    end: float
    record: Record


@dataclass
class Measured:
    """What all workers measured in a step.

    Attributes
    ----------
    step
        The load.
    record
        Everything together.
    efforts
        Of each process.
    parts
        By second.
    seconds
        From the begin to the last answer that was waited for.
    """

    step: Step
    record: Record = field(default_factory=Record)
    efforts: list[Effort] = field(default_factory=list)
    parts: dict[int, Part] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Result:
    """All of a load test.

    Attributes
    ----------
    subject
        Of all samples that were added.
    model
        Answer of `GET /model` at the begin.
    steps
        Those that began.
    promises
        Records of all steps, warm-up included: what was compared, and what was broken.
    may_read
        Whether samples could be read back.
    interrupted
        Whether it was stopped before its end.
    failed
        Why it could not be done to its end; empty when it was.
    left_behind
        Why samples may be left that were added; empty when all were taken away.
    """

    subject: str
    model: dict[str, Any] = field(default_factory=dict)
    steps: list[Measured] = field(default_factory=list)
    promises: Record = field(default_factory=Record)
    may_read: bool = True
    interrupted: bool = False
    failed: str = ""
    left_behind: str = ""


Observe = Callable[[Measured, int], None]
"""Told of each second: the step so far, and its number."""
Tell = Callable[[str], None]


class Workers:
    """The processes that send.

    Parameters
    ----------
    plan
        What they do.
    task
        What all of them are told besides.
    """

    def __init__(self, plan: Plan, task: dict[str, Any]) -> None:
        self._plan = plan
        self._task = task
        self._processes: list[asyncio.subprocess.Process] = []
        self._events: list[asyncio.Queue[dict[str, Any] | None]] = []
        self._readers: list[asyncio.Task[None]] = []
        self._ended: set[int] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run them until the end of the block, and no longer."""
        with tempfile.TemporaryDirectory() as folder:
            floor = Path(folder) / "floor"
            Floor.create(floor, self._plan.n_processes)
            try:
                for number in range(self._plan.n_processes):
                    await self._start(number, floor)
                yield
            except asyncio.CancelledError:
                for process in self._processes:
                    process.kill()
                raise
            finally:
                self.stop()
                for process in self._processes:
                    try:
                        async with asyncio.timeout(self._plan.timeout + 5):
                            await process.wait()
                    except (TimeoutError, asyncio.CancelledError):
                        process.kill()
                        await process.wait()
                for reader in self._readers:
                    reader.cancel()

    async def _start(self, number: int, floor: Path) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "oubli.client.load.worker",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            limit=_LONGEST_LINE,
            start_new_session=True,  # Ctrl-C is for the controller, which lets them end in order
        )
        self._processes.append(process)
        self._events.append(asyncio.Queue())
        task = {**self._task, "plan": self._plan.to_json(), "worker": number, "floor": str(floor)}
        self._write(process, task)
        self._readers.append(asyncio.create_task(self._read(number, process)))

    async def _read(self, number: int, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None  # noqa: S101
        while line := await process.stdout.readline():
            self._events[number].put_nowait(json.loads(line))
        self._events[number].put_nowait(None)

    @staticmethod
    def _write(process: asyncio.subprocess.Process, message: dict[str, Any]) -> None:
        assert process.stdin is not None  # noqa: S101
        with contextlib.suppress(ConnectionError):  # one that has ended is told of by its output
            process.stdin.write(json.dumps(message).encode() + b"\n")

    def begin(self, at: float) -> None:
        """Have all of them begin the next step at a time."""
        for process in self._processes:
            self._write(process, {"begin": at})

    def stop(self) -> None:
        """Let them send nothing more, and end when all was answered."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()

    async def until(self, wanted: str, take: Callable[[int, dict[str, Any]], None], seconds: float) -> bool:
        """Wait until each has told of an event or ended, and pass on what it tells before; whether none has ended.

        Raises
        ------
        LoadTestError
            When one has failed, or takes longer than it may.
        """
        try:
            async with asyncio.timeout(seconds):
                waits = [self._until(number, wanted, take) for number in range(len(self._processes))]
                return all(await asyncio.gather(*waits))
        except TimeoutError:
            raise LoadTestError(f"a process of the load test did not answer within {seconds:g} s") from None

    async def _until(self, number: int, wanted: str, take: Callable[[int, dict[str, Any]], None]) -> bool:
        # A queue for each: one may begin to tell of the next step while another is in this one.
        while number not in self._ended:
            event = await self._events[number].get()
            if event is None:
                self._ended.add(number)
                if code := await self._processes[number].wait():
                    raise LoadTestError(f"process {number} of the load test has ended with code {code}")
            elif event["event"] == wanted:
                return True
            else:
                take(number, event)
        return False


class LoadTest:
    """A load test from its begin to its end.

    Parameters
    ----------
    target
        The server.
    plan
        What is done.
    rows
        `held`, `schema`, or the path of a CSV file.
    observe
        Told of each second.
    tell
        Told what a person should know.
    """

    def __init__(
        self,
        target: Target,
        plan: Plan,
        rows: str = HELD,
        *,
        observe: Observe = lambda _measured, _number: None,
        tell: Tell = lambda _: None,
    ) -> None:
        self._target = target
        self._plan = plan
        self._rows = rows
        self._observe = observe
        self._tell = tell
        self._workers: Workers | None = None
        self._lost: list[str] = []
        self._has_added = False
        self._in_doubt = False  # whether additions may be under way that nobody waits for
        self.result = Result(f"oubli-load-test-{uuid.uuid4().hex[:12]}")

    def stop(self) -> None:
        """End in order before the time is over: wait for answers, and take away what was added."""
        self.result.interrupted = True
        if self._workers is not None:
            self._workers.stop()

    async def run(self, *, key: str | None = None, ca_file: Path | None = None) -> Result:
        """Do it, and return what was measured.

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
        status, result.model, _ = await ask(self._target, "GET", "/model")
        if status != 200:
            raise LoadTestError(explain("GET /model", status, result.model))
        schema = Schema.read(result.model)
        rows = await self._read_rows(schema)
        if self._plan.mix.get(PREDICT):
            await self._try("POST", "/predict", {"instances": rows.features[:1]})
        samples: list[tuple[list[Any], Any]] = []
        if self._plan.changes:
            if rows.labels is None:
                raise LoadTestError(f"the file {self._rows} has no column {schema.label!r}: additions need labels")
            samples = list(zip(rows.features, rows.labels, strict=True))
            status, _, _ = await ask(self._target, "GET", "/samples?limit=1")
            result.may_read = status == 200
        task = {
            "url": self._target.url,
            "key": key,
            "ca_file": None if ca_file is None else str(ca_file),
            "subject": result.subject,
            "predict": rows.features,
            "samples": samples,
            "may_read": result.may_read,
        }
        try:
            if self._plan.changes:
                await self._try_changes(*samples[0])
            await self._run_steps(Workers(self._plan, task))
        except LoadTestError as error:
            self._in_doubt = True
            if not result.steps:
                raise
            result.failed = str(error)
        except asyncio.CancelledError:
            self._in_doubt = True
            raise
        finally:
            if self._has_added:
                await self._take_away()
        return result

    async def _read_rows(self, schema: Schema) -> Rows:
        if self._rows == HELD:
            rows = await from_held(self._target, schema)
            if rows.features:
                return rows
            self._tell("The server holds no samples: rows are made up by its schema.")
        elif self._rows != MADE_UP:
            return from_csv(Path(self._rows), schema)
        return from_schema(schema, self._plan.seed)

    # -- before -------------------------------------------------------------------------------------

    async def _try(self, method: str, path: str, content: Any = None) -> None:
        """Send one request, so that what the server refuses is known before there is load."""
        status, answer, _ = await ask(self._target, method, path, content)
        if not 200 <= status < 300:
            raise LoadTestError(explain(f"{method} {path}", status, answer))

    async def _try_changes(self, features: list[Any], label: Any) -> None:
        subject = self.result.subject
        one = {"id": f"{subject}-try", "subject": subject, "features": features, "label": label}
        # Whoever may add and not erase would leave everything behind.
        await self._try("DELETE", f"/samples/{one['id']}")
        self._tell(f"Samples that are added have the subject {subject} and are taken away at the end.")
        self._has_added = True
        await self._try("POST", "/samples", {"samples": [one]})

    # -- during -------------------------------------------------------------------------------------

    async def _run_steps(self, workers: Workers) -> None:
        async with workers.running():
            self._workers = workers
            outside = partial(self._take, None, -1)
            patience = 2 * self._plan.timeout + _PATIENCE
            for number, step in enumerate(self._plan.steps):
                if self.result.interrupted or not await workers.until("ready", outside, patience):
                    break
                measured = Measured(step, efforts=[Effort() for _ in range(self._plan.n_processes)])
                self.result.steps.append(measured)
                workers.begin(time.monotonic() + 0.05)

                take = partial(self._take, measured, number)
                if not await workers.until("done", take, step.seconds + patience) or self._lost:
                    break
            workers.stop()
            await workers.until("end", outside, patience)
        if self._lost and not self.result.interrupted:
            raise LoadTestError(f"the server at {self._target.url} is gone ({self._lost[0]})")

    def _take(self, measured: Measured | None, number: int, worker: int, event: dict[str, Any]) -> None:
        """Take an event of a worker in; there is no step before the first and after the last."""
        if event["event"] == "lost":
            self._lost.append(event["why"])
        elif event["event"] == "part" and measured is not None:
            self._take_part(measured, worker, event)
            self._observe(measured, number)

    def _take_part(self, measured: Measured, worker: int, event: dict[str, Any]) -> None:
        record = Record.from_json(event["record"])
        measured.record.add(record)
        measured.efforts[worker].add(Effort.from_json(event["effort"]))
        measured.seconds = max(measured.seconds, event["end"])
        second = round(event["begin"])
        if event["end"] - event["begin"] < _SHORT and second - 1 in measured.parts:
            second -= 1  # what came after the end belongs to the last second
        part = measured.parts.setdefault(second, Part(event["begin"], event["end"], Record()))
        part.record.add(record)
        part.end = max(part.end, event["end"])
        self.result.promises.add(record)

    # -- after --------------------------------------------------------------------------------------

    async def _take_away(self) -> None:
        """Delete all samples of the test's subject until there are none.

        A deletion that finds nothing is answered with the receipt of the one before, or with one of no samples. It does
        find some when an addition was done meanwhile whose connection had broken.
        """
        why, before = "", None
        deadline = time.monotonic() + _CLEAN_UP_SECONDS
        try:
            while time.monotonic() < deadline:
                content = {"subjects": [self.result.subject]}
                status, receipt, retry_after = await ask(
                    self._target, "POST", "/samples/batch-delete", content, seconds=600
                )
                if status == 200:
                    if not receipt["unlearned"] or receipt["id"] == before:
                        return
                    before = receipt["id"]
                    if self._in_doubt or self.result.promises.of(ADD).unanswered:
                        await asyncio.sleep(_DOUBT)
                    continue
                why = explain("POST /samples/batch-delete", status, receipt)
                if status not in REFUSED:
                    break
                await asyncio.sleep(min(float(retry_after), 10.0) if retry_after.isdecimal() else 1.0)
            why = why or "there are always more of them"
        except LoadTestError as error:
            why = str(error)
        except asyncio.CancelledError:
            why = "deleting them was interrupted"
        self.result.left_behind = why
