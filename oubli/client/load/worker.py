"""A process of a load test, `python -m oubli.client.load.worker`: it sends requests, and measures.

The controller starts it with a pipe, and sends the task. The worker opens its connections and says that it is ready
for a step; the controller answers with the time at which the step begins, the same for all workers. Each second the
worker sends what it measured. When the controller sends None, or is gone, the worker stops.

Messages to the controller are pairs: `("ready", None)`, `("part", Part)`, `("done", None)` at the end of a step, and
`("lost", why)` when the server is gone.

A load test must need less CPU time for a request than the server, which needs 80 us for a prediction. A protocol of
asyncio with the parser of `httptools` needs 20 us. With h11 it would need 75 us, as much as the server, and with httpx2
600 us: it would measure itself.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import itertools
import json
import mmap
import os
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, cast

import httptools

from oubli.client.load.plan import ADD, DELETE, PREDICT, READ, Step, Task, deck, due_time, share_of
from oubli.client.load.records import INVISIBLE, LOST, STALE, STILL_THERE, Effort, Part, Record
from oubli.client.load.target import Target

_PART = 1.0  # seconds of one message
_LOOK = 0.02  # seconds between looks at the event loop
_READ_PAUSE = 0.02  # seconds from one sample that is read back to the next
_NAP = 0.1  # seconds that the thread of the open loop sleeps at most
_STOCK = 100  # samples that are added before the first deletion
_VERSION = re.compile(rb'"model_version":\s*(\d+)')
_NOTHING = re.compile(rb'"unlearned":\s*0\b')
_clock = time.monotonic


class Connection(asyncio.Protocol):
    """A connection that waits for one answer at a time; `status`, `body` and `retry_after` are those of the last."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[None] | None = None
        self.is_closed = False
        self.status = 0
        self.body = b""
        self.retry_after = ""

    @classmethod
    async def open(cls, target: Target) -> Connection:
        """Connect; raises `OSError` when the server cannot be reached, its certificate included."""
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(cls, target.host, target.port, ssl=target.tls))[1]

    async def ask(self, request: bytes) -> None:
        """Send a request and wait for its answer; raises `OSError` when the connection breaks before."""
        assert self._transport is not None  # noqa: S101 - `open` has connected
        if self.is_closed:
            raise ConnectionResetError
        self.body, self.retry_after = b"", ""
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._answered

    def abort(self) -> None:
        """Close it at once."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102 - asyncio's
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop are no subclass

    def data_received(self, data: bytes) -> None:  # noqa: D102 - asyncio's
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102 - asyncio's
        self.is_closed = True
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionResetError())

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: D102 - the parser's
        if name.lower() == b"retry-after":
            self.retry_after = value.decode("latin-1")

    def on_body(self, part: bytes) -> None:  # noqa: D102 - the parser's
        self.body += part

    def on_message_complete(self) -> None:  # noqa: D102 - the parser's
        self.status = self._parser.get_status_code()
        if not self._parser.should_keep_alive():
            self.abort()
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)


class Requests:
    """Requests as bytes, made before the load as far as possible."""

    def __init__(self, target: Target, task: Task, worker: int) -> None:
        self._target = target
        rows = [json.dumps({"instances": [row]}).encode() for row in task.rows]
        self._predictions = itertools.cycle([target.request("POST", "/predict", row) for row in rows])
        ends = [json.dumps({"subject": task.subject, "features": row, "label": label}) for row, label in task.samples]
        self._ends: Iterator[str] = itertools.cycle([end[1:] for end in ends])
        self._ids = (f"{task.subject}-{worker}-{number}" for number in itertools.count())

    def prediction(self) -> bytes:
        """Predict the next row."""
        return next(self._predictions)

    def addition(self) -> tuple[str, bytes]:
        """Add the next sample, under an id that is new; return the id too."""
        sample = next(self._ids)
        content = f'{{"samples":[{{"id":"{sample}",{next(self._ends)}]}}'.encode()
        return sample, self._target.request("POST", "/samples", content)

    def deletion(self, sample: str) -> bytes:
        """Delete a sample."""
        return self._target.request("DELETE", f"/samples/{sample}")

    def reading(self, sample: str) -> bytes:
        """Read a sample."""
        return self._target.request("GET", f"/samples/{sample}")


class Worker:
    """Sends and measures.

    Parameters
    ----------
    task
        What is done.
    number
        Of this worker.
    versions
        For each worker the newest version whose change was acknowledged to it. All of them share this memory; each
        writes its own place, eight bytes at once, so no lock is needed.
    tell
        Sends a message to the controller.
    """

    def __init__(
        self, task: Task, number: int, versions: list[int] | memoryview[int], tell: Callable[[tuple[str, Any]], None]
    ) -> None:
        self._plan = task.plan
        self._number = number
        self._versions = versions
        self._tell = tell
        self._target = Target(task.url, task.key, task.ca_file)
        self._requests = Requests(self._target, task, number)
        self._operations = itertools.cycle(deck(self._plan.mix, self._plan.seed + number))
        self._may_read = task.may_read
        self._next_read = 0.0
        self._stock: collections.deque[str] = collections.deque()  # samples to delete
        self._stopped = asyncio.Event()
        self._lost = ""  # why the server is taken for gone
        self._unreachable_since: float | None = None
        self._record = Record()
        self._effort = Effort()
        # Of the step:
        self._is_open = False  # requests are sent at a rate
        self._is_over = False
        self._begin = 0.0
        self._measured = 0.0, 0.0, 0.0  # the clock, CPU time and waiting, at the last part
        self._due: collections.deque[float] = collections.deque()  # of requests that no connection was free for
        self._idle: dict[Connection, asyncio.Future[float | None]] = {}
        self._sent: dict[Connection, float] = {}  # when the request was sent that a connection waits for

    def stop(self) -> None:
        """Send nothing more; answers to what was sent are still waited for."""
        self._stopped.set()
        self._due.clear()

    async def run(self, begin: Callable[[], Awaitable[float | None]]) -> None:
        """Do all steps; `begin` waits for the time of the next, or for None to end."""
        watch = asyncio.create_task(self._watch())
        try:
            if self._plan.mix.get(DELETE):
                await self._fill_stock()
            for step in self._plan.steps:
                n = share_of(step.connections, self._number, self._plan.n_processes)
                connections = [one for _ in range(n) if (one := await self._connect()) is not None]
                if self._stopped.is_set():
                    break
                self._tell(("ready", None))
                at = await begin()
                if at is None:
                    break
                await self._run_step(step, connections, at)
                self._tell(("done", None))
        finally:
            watch.cancel()
        if self._lost:
            self._tell(("lost", self._lost))

    async def _connect(self) -> Connection | None:
        """Connect, again and again until the server is taken for gone; None when the worker has stopped."""
        while not self._stopped.is_set():
            try:
                async with asyncio.timeout(self._plan.timeout):
                    connection = await Connection.open(self._target)
            except OSError as error:  # TimeoutError is one
                now = _clock()
                self._unreachable_since = self._unreachable_since or now
                if now - self._unreachable_since >= min(self._plan.timeout, 5.0):
                    self._lost = self._lost or str(error) or "it takes no connections"
                    self._give_up_due()
                    self.stop()
                await asyncio.sleep(0.1)
            else:
                self._unreachable_since = None
                return connection
        return None

    async def _fill_stock(self) -> None:
        """Add samples that can be deleted, before anything is measured."""
        connection = await self._connect()
        if connection is None:
            return
        with contextlib.suppress(OSError):
            for _ in range(_STOCK):
                sample, request = self._requests.addition()
                async with asyncio.timeout(self._plan.timeout):
                    await connection.ask(request)
                if connection.status in (200, 201):
                    self._stock.append(sample)
        connection.abort()

    # -- a step -------------------------------------------------------------------------------------

    async def _run_step(self, step: Step, connections: list[Connection], begin: float) -> None:
        self._record, self._effort = Record(), Effort()
        await asyncio.sleep(begin - _clock())  # to a millisecond; it may also be early
        self._begin, self._is_open, self._is_over = begin, step.rate is not None, False
        self._measured = begin, time.process_time(), _waited()
        report = asyncio.create_task(self._report())
        sending = [asyncio.create_task(self._send(connection)) for connection in connections]
        pace = None if step.rate is None else asyncio.create_task(self._pace(step.rate, begin + step.seconds))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), begin + step.seconds - _clock())
        if pace is not None:
            await pace
        self._is_over = True
        self._wake(list(self._idle))
        # Requests that are not answered within the time that one may take never are: later steps do not pay for it.
        _, late = await asyncio.wait(sending, timeout=0 if self._lost else self._plan.timeout)
        self._give_up_due()
        for task in late:
            task.cancel()
        for found in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(found, Exception):
                raise found
        report.cancel()
        self._flush()

    async def _pace(self, rate: float, end: float) -> None:
        """Open loop: dispatch each request when it is due.

        A thread sleeps until then: it wakes up within some 60 us, while event loops wait in whole milliseconds, several
        times what a prediction takes.
        """
        loop = asyncio.get_running_loop()

        def run() -> None:
            for i in itertools.count():
                due = due_time(self._begin, rate, i, self._number, self._plan.n_processes)
                while not self._stopped.is_set() and due < end and (wait := due - _clock()) > 0:
                    time.sleep(min(wait, _NAP))
                if self._stopped.is_set() or due >= end:
                    break
                loop.call_soon_threadsafe(self._dispatch, due)
            loop.call_soon_threadsafe(done.set_result, None)

        done: asyncio.Future[None] = loop.create_future()
        threading.Thread(target=run, daemon=True).start()
        await done

    def _dispatch(self, due: float) -> None:
        """Give a request that is due to a connection, or have it wait for one."""
        if self._stopped.is_set():
            return
        self._effort.send_lag.record(int((_clock() - due) * 1e9))
        if self._idle:
            # The one that was used last: of many connections the server closes those that are not needed.
            self._idle.popitem()[1].set_result(due)
        else:
            self._record.n_held_up += 1
            self._due.append(due)

    def _wake(self, connections: list[Connection]) -> None:
        """Have idle connections look whether they are still needed and open."""
        for connection in connections:
            self._idle.pop(connection).set_result(None)

    async def _send(self, connection: Connection | None) -> None:
        """Send one request after another until the step is over; a connection that has ended is replaced."""
        try:
            while connection is not None and (self._due or not self._is_over) and not self._stopped.is_set():
                if connection.is_closed:
                    connection.abort()
                    connection = await self._connect()
                elif self._due:
                    await self._exchange(connection, self._due.popleft())
                elif self._is_open:
                    waiting = self._idle[connection] = asyncio.get_running_loop().create_future()
                    if (due := await waiting) is not None:
                        await self._exchange(connection, due)
                else:
                    await self._exchange(connection, _clock())
        finally:
            if connection is not None:
                connection.abort()

    async def _exchange(self, connection: Connection, due: float) -> None:
        """Send the next request of the mix, and record the answer."""
        operation = next(self._operations)
        if operation == DELETE and not self._stock:
            operation = ADD
            self._record.n_substituted += 1
        if operation == PREDICT:
            sample, request = "", self._requests.prediction()
        elif operation == ADD:
            sample, request = self._requests.addition()
        else:
            sample = self._stock.popleft()
            request = self._requests.deletion(sample)
        oldest = max(self._versions)
        is_answered = False
        try:
            is_answered = await self._ask(connection, request)
        finally:  # a task that is cancelled gives up, too
            if not is_answered:
                self._give_up(operation, due)
        if not is_answered:
            return
        record = self._record.operations[operation]
        record.statuses[connection.status] += 1
        if connection.retry_after:
            seconds = connection.retry_after
            record.retry_after[float(seconds) if seconds.isdecimal() else 0.0] += 1
        if 200 <= connection.status < 300:
            record.durations.record(int((_clock() - due) * 1e9))
            await self._check(connection, operation, sample, oldest)
        elif operation == DELETE:
            self._stock.append(sample)

    async def _ask(self, connection: Connection, request: bytes) -> bool:
        """Send a request; return whether it was answered."""
        self._sent[connection] = _clock()
        try:
            await connection.ask(request)
        except OSError:
            connection.abort()
            return False
        finally:
            del self._sent[connection]
        return True

    async def _check(self, connection: Connection, operation: str, sample: str, oldest: int) -> None:
        """Check that a success knows of all changes that were acknowledged before it was asked for."""
        found = _VERSION.search(connection.body)
        version = int(found[1]) if found is not None else -1
        self._record.n_compared += 1
        if version < oldest:
            self._record.violations[STALE] += 1
        if operation == PREDICT:
            return
        self._versions[self._number] = max(version, self._versions[self._number])
        if operation == DELETE and _NOTHING.search(connection.body):
            self._record.violations[LOST] += 1
        await self._read_back(connection, sample, is_held=operation == ADD)
        if operation == ADD:
            self._stock.append(sample)

    async def _read_back(self, connection: Connection, sample: str, *, is_held: bool) -> None:
        """Read a sample right after its change was acknowledged; not too many."""
        now = _clock()
        if not self._may_read or now < self._next_read or connection.is_closed:
            return
        self._next_read = now + _READ_PAUSE
        if not await self._ask(connection, self._requests.reading(sample)):
            return
        operation = self._record.operations[READ]
        if connection.status in (200, 404):
            operation.statuses[200] += 1  # both are answers as they should be
            operation.durations.record(int((_clock() - now) * 1e9))
            self._record.n_read_back += 1
            if connection.status != (200 if is_held else 404):
                self._record.violations[INVISIBLE if is_held else STILL_THERE] += 1
        else:
            operation.statuses[connection.status] += 1
            self._may_read = connection.status not in (401, 403)

    def _give_up(self, name: str, due: float) -> None:
        """Record a request that was never answered."""
        operation = self._record.operations[name]
        operation.unanswered += 1
        operation.durations.record(int((_clock() - due) * 1e9))

    def _give_up_due(self) -> None:
        for due in self._due:
            self._give_up(next(self._operations), due)
        self._due.clear()

    # -- beside the requests --------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look at the event loop, close connections whose request takes too long, wake those that have ended."""
        for looks in itertools.count(1):
            asked = _clock()
            await asyncio.sleep(_LOOK)
            now = _clock()
            self._effort.loop_lag.record(int((now - asked - _LOOK) * 1e9))
            if looks % 10 == 0:
                for connection in [one for one, sent in self._sent.items() if now - sent > self._plan.timeout]:
                    connection.abort()
                self._wake([one for one in self._idle if one.is_closed])

    async def _report(self) -> None:
        for second in itertools.count(1):
            await asyncio.sleep(self._begin + second * _PART - _clock())
            self._flush()

    def _flush(self) -> None:
        """Send what was measured since the last time."""
        wall, cpu, waited = self._measured
        now = self._measured = _clock(), time.process_time(), _waited()
        effort = self._effort
        effort.wall, effort.cpu, effort.waited = now[0] - wall, now[1] - cpu, now[2] - waited
        self._tell(("part", Part(wall - self._begin, now[0] - self._begin, self._record, effort)))
        self._record, self._effort = Record(), Effort()


def _waited() -> float:
    """Seconds that this process was ready to run while others had the processors; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _end_on_mistake(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """End at a mistake of ours in a callback, which would pass for one of the server; connections may break."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)
        os._exit(1)


async def _run(pipe: Pipe, versions: list[int] | memoryview[int]) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_end_on_mistake)
    task, number = pipe.recv()
    worker = Worker(task, number, versions, pipe.send)
    gc.freeze()  # the rows stay
    begins: asyncio.Queue[float | None] = asyncio.Queue()

    def read() -> None:
        try:
            begin = pipe.recv()
        except (EOFError, OSError):  # the controller is gone
            begin = None
        begins.put_nowait(begin)
        if begin is None:
            loop.remove_reader(pipe.fileno())
            worker.stop()

    loop.add_reader(pipe.fileno(), read)
    await worker.run(begins.get)


def main() -> None:
    """Do what the controller asks for: the arguments are the descriptors of the pipe and of the shared versions."""
    descriptor, shared = map(int, sys.argv[1:])
    run = _run(Pipe(descriptor), memoryview(mmap.mmap(shared, 0)).cast("Q"))
    try:
        import uvloop
    except ImportError:  # not on every system
        asyncio.run(run)
    else:
        uvloop.run(run)


if __name__ == "__main__":
    main()
