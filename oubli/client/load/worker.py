"""A process of a load test: `python -m oubli.client.load.worker`.

It reads its task as a line of JSON, opens its connections, and says that it is ready for a step; the controller answers
with the time at which the step begins, the same for all workers. Each second it writes what it measured in that second.
When its input ends, it stops: whoever started it has stopped, or is gone.

Messages to the controller have a key `event`: `ready`, `part`, `done` (a step), `lost` (the server is gone).
"""

from __future__ import annotations

import asyncio
import collections
import gc
import itertools
import json
import mmap
import os
import re
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from oubli.client.load.alarm import Alarm
from oubli.client.load.http import Connection, Target, connect
from oubli.client.load.plan import ADD, DELETE, PREDICT, READ, Plan, Step, deck, due_time, share_of
from oubli.client.load.records import INVISIBLE, LOST, STALE, STILL_THERE, Effort, Record

_PART = 1.0  # seconds that one message tells of
_LOOK = 0.02  # seconds between looks at the event loop
_READ_PAUSE = 0.02  # seconds from one sample that is read back to the next
_MOST_AT_ONCE = 64  # requests that are sent before answers are looked at
_STOCK = 100  # samples that are added before the first deletion
_VERSION = re.compile(rb'"model_version":\s*(\d+)')
_NOTHING = re.compile(rb'"unlearned":\s*0\b')
_clock = time.monotonic


class Floor:
    """The newest version whose change was acknowledged to any worker, in a file that all of them have mapped.

    Each worker writes its own place, eight bytes that are written at once, so that no lock is needed.
    """

    def __init__(self, file: Path, worker: int) -> None:
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)
        self._versions = memoryview(self._map).cast("Q")
        self._worker = worker

    @staticmethod
    def create(file: Path, n_workers: int) -> None:
        """Write a file without changes."""
        file.write_bytes(struct.pack("Q", 0) * n_workers)

    def now(self) -> int:
        """What an answer must not be older than, if it is asked now."""
        return max(self._versions)

    def raise_to(self, version: int) -> None:
        """A change was acknowledged."""
        if version > self._versions[self._worker]:
            self._versions[self._worker] = version


class Requests:
    """Requests as bytes, made beforehand as far as possible.

    Parameters
    ----------
    target
        Where they go.
    task
        `predict`: rows; `samples`: rows with labels; `subject`: of all samples that are added; `worker`: its number.
    """

    def __init__(self, target: Target, task: dict[str, Any]) -> None:
        self._target = target
        rows = [json.dumps({"instances": [row]}).encode() for row in task["predict"]]
        self._predictions = itertools.cycle([target.request("POST", "/predict", row) for row in rows])
        subject = task["subject"]
        ends = [json.dumps({"subject": subject, "features": row, "label": label}) for row, label in task["samples"]]
        self._ends: Iterator[str] = itertools.cycle([end[1:] for end in ends])
        self._ids = (f"{subject}-{task['worker']}-{number}" for number in itertools.count())

    def prediction(self) -> bytes:
        """Ask for the next row."""
        return next(self._predictions)

    def addition(self) -> tuple[str, bytes]:
        """Add the next sample, under an id that there never was; return the id too."""
        sample = next(self._ids)
        content = f'{{"samples":[{{"id":"{sample}",{next(self._ends)}]}}'.encode()
        return sample, self._target.request("POST", "/samples", content)

    def deletion(self, sample: str) -> bytes:
        """Delete a sample."""
        return self._target.request("DELETE", f"/samples/{sample}")

    def reading(self, sample: str) -> bytes:
        """Read a sample."""
        return self._target.request("GET", f"/samples/{sample}")


class Reader:
    """Reads samples right after changes of them were acknowledged, one at a time, and not too many.

    Parameters
    ----------
    requests
        Makes the requests.
    on_end
        Called when the connection is closed.
    """

    def __init__(self, requests: Requests, on_end: Callable[[Connection], None]) -> None:
        self.connection = Connection(self._take, on_end)
        self.record = Record()
        self.is_allowed = True
        self._requests = requests
        self._status = 0
        self._next = 0.0
        self._then: Callable[[], None] = lambda: None

    def check(self, sample: str, *, is_held: bool, then: Callable[[], None] = lambda: None) -> None:
        """Read a sample if it is time to, and call `then` at the end in any case."""
        connection, now = self.connection, _clock()
        if not self.is_allowed or connection.is_waiting or not connection.is_open or now < self._next:
            then()
            return
        self._status, self._next, self._then = 200 if is_held else 404, now + _READ_PAUSE, then
        connection.sent = now
        connection.send(self._requests.reading(sample))

    def _take(self, connection: Connection) -> None:
        now = _clock()
        operation = self.record.of(READ)
        if connection.status in (200, 404):
            operation.statuses[200] += 1  # both are what can be asked for
            operation.durations.record(int((now - connection.sent) * 1e9))
            self.record.n_read_back += 1
            if connection.status != self._status:
                self.record.violations[INVISIBLE if self._status == 200 else STILL_THERE] += 1
        else:
            operation.statuses[connection.status] += 1
            self.is_allowed = connection.status not in (401, 403)
        self._then()


class Worker:
    """Sends and measures.

    Parameters
    ----------
    task
        What the controller sent.
    tell
        Sends a message to the controller.
    """

    def __init__(self, task: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
        self._plan = Plan.from_json(task["plan"])
        self._number: int = task["worker"]
        ca_file = task["ca_file"]
        self._target = Target(task["url"], task["key"], None if ca_file is None else Path(ca_file))
        self._requests = Requests(self._target, task)
        self._floor = Floor(Path(task["floor"]), self._number)
        self._operations = itertools.cycle(deck(self._plan.mix, self._plan.seed + self._number))
        self._tell = tell
        self._reader = Reader(self._requests, self._replace_reader)
        self._reader.is_allowed = task["may_read"]
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        self._due: collections.deque[float] = collections.deque()  # of requests that no connection was free for
        self._stock: collections.deque[str] = collections.deque()  # samples to delete
        self._tasks: set[asyncio.Task[None]] = set()
        self._record = self._reader.record = Record()
        self._effort = Effort()
        self._step = self._plan.steps[0]
        self._begin = self._end = 0.0
        self._measured = 0.0, 0.0, 0.0  # the clock, CPU time and waiting, when it was told of last
        self._n_sent = 0  # open loop: requests that were due in this step
        self._unreachable_since: float | None = None
        self._stopped = asyncio.Event()
        self.lost = ""  # why the server is taken for gone

    def stop(self) -> None:
        """Send nothing more; what was sent is still waited for."""
        self._stopped.set()
        self._end = 0.0
        self._due.clear()

    def _lose(self, why: str) -> None:
        """Take the server for gone: what was due will not be answered."""
        if not self.lost:
            self.lost = why
            self._give_up_due()
            self.stop()

    async def run(self, begin: Callable[[], Any]) -> None:
        """Do all steps; `begin` waits for the time of the next."""
        watch = asyncio.create_task(self._watch())
        try:
            await self._fill_stock()
            for number, step in enumerate(self._plan.steps):
                await self._open(step)
                if self._stopped.is_set():
                    break
                self._tell({"event": "ready"})
                at = await begin()
                if at is None:
                    break
                await self._run_step(number, step, at)
                self._tell({"event": "done"})
                if self._stopped.is_set():
                    break
        finally:
            watch.cancel()
            for connection in [*self._connections, self._reader.connection]:
                connection.abort()
        if self.lost:
            self._tell({"event": "lost", "why": self.lost})

    # -- connections --------------------------------------------------------------------------------

    async def _open(self, step: Step) -> None:
        """Have as many connections as a step needs."""
        self._step = step
        n = share_of(step.connections, self._number, self._plan.n_processes)
        for connection in self._idle[n:]:
            self._connections.discard(connection)
            connection.abort()
        del self._idle[n:]
        missing = [Connection(self._take, self._replace) for _ in range(n - len(self._idle))]
        self._connections.update(missing)
        if self._plan.changes and not self._reader.connection.is_open:
            missing.append(self._reader.connection)
        for connection in missing:
            await self._connect(connection)
            if connection is not self._reader.connection and connection.is_open:
                self._idle.append(connection)

    async def _connect(self, connection: Connection) -> None:
        """Connect, again and again until the server is taken for gone."""
        while not self._stopped.is_set():
            try:
                async with asyncio.timeout(self._plan.timeout):
                    await connect(self._target, connection)
            except OSError as error:  # TimeoutError is one
                now = _clock()
                if self._unreachable_since is None:
                    self._unreachable_since = now
                if now - self._unreachable_since >= min(self._plan.timeout, 5.0):
                    self._lose(str(error) or "it takes no connections")
                await asyncio.sleep(0.1)
            else:
                self._unreachable_since = None
                return

    def _replace(self, old: Connection) -> None:
        """A connection has ended: note what was lost with it, and open another."""
        if old not in self._connections:
            return
        self._connections.discard(old)
        if old in self._idle:
            self._idle.remove(old)
        if old.is_waiting:
            self._give_up(old.operation, old.due)
        if not self._stopped.is_set():
            self._spawn(self._reconnect())

    async def _reconnect(self) -> None:
        connection = Connection(self._take, self._replace)
        self._connections.add(connection)
        await self._connect(connection)
        if connection.is_open:
            self._go_on(connection, _clock())
        else:
            self._connections.discard(connection)

    def _replace_reader(self, old: Connection) -> None:
        if old is self._reader.connection and not self._stopped.is_set():
            reader = Reader(self._requests, self._replace_reader)
            reader.is_allowed, reader.record = self._reader.is_allowed, self._record
            self._reader = reader
            self._spawn(self._connect(reader.connection))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- sending ------------------------------------------------------------------------------------

    async def _fill_stock(self) -> None:
        """Add samples that can be deleted, before anything is measured."""
        if not self._plan.mix.get(DELETE):
            return
        done: asyncio.Queue[Connection] = asyncio.Queue()
        connection = Connection(done.put_nowait, done.put_nowait)
        await self._connect(connection)
        for _ in range(_STOCK):
            if not connection.is_open:
                break
            connection.sample, request = self._requests.addition()
            connection.send(request)
            try:
                async with asyncio.timeout(self._plan.timeout):
                    await done.get()
            except TimeoutError:
                break
            if not connection.is_waiting and connection.status in (200, 201):
                self._stock.append(connection.sample)
        connection.abort()

    def _start(self, connection: Connection, due: float, now: float) -> None:
        """Send the next request of the mix."""
        operation = next(self._operations)
        if operation == DELETE and not self._stock:
            operation = ADD
            self._record.n_substituted += 1
        connection.operation, connection.due, connection.sent = operation, due, now
        connection.floor = self._floor.now()
        if operation == PREDICT:
            connection.send(self._requests.prediction())
        elif operation == ADD:
            connection.sample, request = self._requests.addition()
            connection.send(request)
        else:
            connection.sample = self._stock.popleft()
            connection.send(self._requests.deletion(connection.sample))

    def _go_on(self, connection: Connection, now: float) -> None:
        """Give a connection that is free its next request, if there is one."""
        if not connection.is_open:
            return
        if self._due:
            self._start(connection, self._due.popleft(), now)
        elif self._step.rate is None and now < self._end:
            self._start(connection, now, now)
        else:
            self._idle.append(connection)

    def _take(self, connection: Connection) -> None:
        """Record an answer, and go on."""
        now = _clock()
        status, name = connection.status, connection.operation
        operation = self._record.of(name)
        operation.statuses[status] += 1
        if 200 <= status < 300:
            operation.durations.record(int((now - connection.due) * 1e9))
            self._compare(connection)
        elif name == DELETE:
            self._stock.append(connection.sample)
        if connection.retry_after:
            operation.n_retry_after += 1
            seconds = float(connection.retry_after) if connection.retry_after.isdecimal() else 0.0
            operation.longest_retry_after = max(operation.longest_retry_after, seconds)
        self._go_on(connection, now)

    def _compare(self, connection: Connection) -> None:
        """Check that a success knows of all changes that were acknowledged before it was asked for."""
        body = connection.body
        found = _VERSION.search(body)
        version = int(found[1]) if found is not None else -1
        self._record.n_compared += 1
        if version < connection.floor:
            self._record.violations[STALE] += 1
        if connection.operation == PREDICT:
            return
        self._floor.raise_to(version)
        sample = connection.sample
        if connection.operation == ADD:
            self._reader.check(sample, is_held=True, then=lambda: self._stock.append(sample))
        else:
            if _NOTHING.search(body):
                self._record.violations[LOST] += 1
            self._reader.check(sample, is_held=False)

    def _give_up(self, name: str, due: float) -> None:
        """Record a request that was never answered."""
        operation = self._record.of(name)
        operation.unanswered += 1
        operation.durations.record(int((_clock() - due) * 1e9))

    def _give_up_due(self) -> None:
        for due in self._due:
            self._give_up(next(self._operations), due)
        self._due.clear()

    # -- steps --------------------------------------------------------------------------------------

    async def _run_step(self, number: int, step: Step, begin: float) -> None:
        self._record = self._reader.record = Record()
        self._effort = Effort()
        await asyncio.sleep(begin - _clock())  # to a millisecond; it may also be early
        self._begin, self._end, self._n_sent = begin, begin + step.seconds, 0
        self._measured = begin, time.process_time(), _waited()
        if self._stopped.is_set():
            return
        report = asyncio.create_task(self._report(number, begin))
        alarm = Alarm(asyncio.get_running_loop(), lambda: self._ring(alarm))
        if step.rate is None:
            idle, self._idle = self._idle, []
            for connection in idle:
                self._go_on(connection, _clock())
        else:
            self._ring(alarm)
        try:
            async with asyncio.timeout(step.seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass
        await self._drain(step)
        alarm.close()
        report.cancel()
        self._flush(number)

    def _ring(self, alarm: Alarm) -> None:
        """Open loop: send all requests that are due, and have the alarm ring for the next."""
        assert self._step.rate is not None  # noqa: S101
        for _ in range(_MOST_AT_ONCE):
            due = due_time(self._begin, self._step.rate, self._n_sent, self._number, self._plan.n_processes)
            if due >= self._end:
                return
            now = _clock()
            if due > now:
                break
            self._n_sent += 1
            self._effort.send_lag.record(int((now - due) * 1e9))
            if self._idle:
                self._start(self._idle.pop(), due, now)
            else:
                self._record.n_held_up += 1
                self._due.append(due)
        alarm.set(due)

    async def _drain(self, step: Step) -> None:
        """Wait for what was sent and for what was due, as long as a request may take."""
        deadline = _clock() + self._plan.timeout
        while _clock() < deadline and not self.lost:
            is_late = step.rate is not None and self._has_more(step.rate)
            if not (is_late or self._due or any(one.is_waiting for one in self._connections)):
                break
            await asyncio.sleep(0.005)
        # Who is not answered now never is: later steps do not pay for it.
        self._give_up_due()
        for connection in list(self._connections):
            if connection.is_waiting:
                connection.abort()
        await asyncio.sleep(0.005)

    def _has_more(self, rate: float) -> bool:
        return due_time(self._begin, rate, self._n_sent, self._number, self._plan.n_processes) < self._end

    async def _watch(self) -> None:
        """Look at the event loop, and close connections whose request takes too long."""
        looks = 0
        while True:
            asked = _clock()
            await asyncio.sleep(_LOOK)
            now = _clock()
            self._effort.loop_lag.record(int((now - asked - _LOOK) * 1e9))
            looks += 1
            if looks % 10 == 0:
                for connection in list(self._connections):
                    if connection.is_waiting and now - connection.sent > self._plan.timeout:
                        connection.abort()

    # -- telling ------------------------------------------------------------------------------------

    async def _report(self, number: int, begin: float) -> None:
        for second in itertools.count(1):
            await asyncio.sleep(begin + second * _PART - _clock())
            self._flush(number)

    def _flush(self, number: int) -> None:
        """Tell what was measured since the last time."""
        wall, cpu, waited = self._measured
        self._measured = _clock(), time.process_time(), _waited()
        effort, record = self._effort, self._record
        effort.wall, effort.cpu, effort.waited = (
            self._measured[0] - wall,
            self._measured[1] - cpu,
            self._measured[2] - waited,
        )
        self._effort, self._record = Effort(), Record()
        self._reader.record = self._record
        self._tell(
            {
                "event": "part",
                "step": number,
                "begin": wall - self._begin,
                "end": self._measured[0] - self._begin,
                "record": record.to_json(),
                "effort": effort.to_json(),
            }
        )


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


async def _main() -> None:
    asyncio.get_running_loop().set_exception_handler(_end_on_mistake)

    def tell(message: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    worker = Worker(json.loads(sys.stdin.buffer.readline()), tell)
    gc.freeze()  # the rows stay
    lines: asyncio.Queue[float | None] = asyncio.Queue()

    async def read() -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            lines.put_nowait(json.loads(line)["begin"])
        lines.put_nowait(None)
        worker.stop()

    reading = asyncio.create_task(read())
    await worker.run(lines.get)
    reading.cancel()


def main() -> None:
    """Do what the controller asks for."""
    try:
        import uvloop
    except ImportError:  # not on every system
        asyncio.run(_main())
    else:
        uvloop.run(_main())


if __name__ == "__main__":
    main()
