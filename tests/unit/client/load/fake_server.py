"""A server that answers what a test says, in the event loop of the test."""

import contextlib
import json
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from oubli.client.load.plan import Plan, Task
from oubli.client.load.records import Record
from oubli.client.load.worker import Worker, _clock
from tests.unit.app.outgoing.receiver import HANG_UP, Receiver, Request

Answer = tuple[int, Any]
"""A status and what JSON is made of; bytes are sent as they are, as the whole answer."""
Make = Callable[[str, str, Any], Awaitable[Answer | None]]
"""Makes an answer from method, path and content; None closes the connection."""


@contextlib.asynccontextmanager
async def answering(make: Make) -> AsyncIterator[str]:
    """Serve until the end of the block; return the address."""

    async def answer_one(request: Request) -> str:
        method, path, _ = request.line.split()
        answer = await make(method, path, json.loads(request.body or b"null"))
        if answer is None:
            return HANG_UP
        status, content = answer
        if isinstance(content, bytes):
            return content.decode("latin-1")
        text = json.dumps(content)
        return f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n{text}"

    receiver = Receiver(answer_one)
    async with receiver.listening():
        yield f"http://127.0.0.1:{receiver.port}"


class Samples:
    """Answers as a server does, but for what a test replaces."""

    def __init__(self) -> None:
        self.version = 1
        self.held: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, method: str, path: str, content: Any) -> Answer | None:
        self.asked.append((method, path))
        return await getattr(self, method.lower())(path, content)

    async def post(self, path: str, content: Any) -> Answer | None:
        if path == "/predict":
            return 200, {"predictions": ["a"], "model_version": self.version}
        self.version += 1
        self.held |= {sample["id"] for sample in content["samples"]}
        return 201, {"ids": [], "model_version": self.version}

    async def delete(self, path: str, content: Any) -> Answer | None:
        sample = path.rpartition("/")[2]
        n = int(sample in self.held)
        self.held.discard(sample)
        self.version += n
        return 200, {"unlearned": n, "model_version": self.version}

    async def get(self, path: str, content: Any) -> Answer | None:
        is_held = path.rpartition("/")[2] in self.held
        return (200 if is_held else 404), {"model_version": self.version}


async def work(plan: Plan, make: Make, versions: Sequence[int] = (0,)) -> Record:
    """Have one worker do a plan in this process, with the versions that each worker has seen; return its record."""
    told: list[tuple[str, Any]] = []

    async def begin() -> float:
        return _clock() + 0.02

    async with answering(make) as url:
        task = Task(url, None, None, plan, "test", [[1, "x"]], [([1, "x"], "a")], may_read=True)
        await Worker(pickle.loads(pickle.dumps(task)), 0, [*versions], told.append).run(begin)  # noqa: S301 - as pipes do
    record = Record()
    for event, content in told:
        if event == "part":
            record.add(pickle.loads(pickle.dumps(content)).record)  # noqa: S301 - as pipes do
    return record
