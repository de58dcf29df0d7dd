"""What a worker sends and records, against servers that keep no promises."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from oubli.client.load.plan import Plan, Step, Task
from oubli.client.load.records import INVISIBLE, LOST, STALE, STILL_THERE, Record
from oubli.client.load.worker import _STOCK, Worker
from tests.unit.client.load.fake_server import Answer, Samples, work

PREDICT = {"predict": 1.0}
MIX = {"predict": 2.0, "add": 1.0, "delete": 1.0}


def run(step: Step, make: Any, mix: dict[str, float] = PREDICT, timeout: float = 10.0) -> Record:
    return asyncio.run(work(Plan((step,), mix, timeout=timeout), make))


class Stalling(Samples):
    """Answers nothing to a request for a time, and then to all others as well if it is `dumb`."""

    def __init__(self, first: int, seconds: float, *, dumb: bool = False) -> None:
        super().__init__()
        self._first, self._seconds, self._dumb = first, seconds, dumb

    async def post(self, path: str, content: Any) -> Answer | None:
        if len(self.asked) == self._first or (self._dumb and len(self.asked) > self._first):
            await asyncio.sleep(self._seconds)
        return await super().post(path, content)


def longer_than(record: Record, seconds: float) -> int:
    durations = record.operations["predict"].durations
    return sum(durations.percentile(100 * (i + 0.5) / durations.n) > seconds * 1e9 for i in range(durations.n))


@pytest.mark.parametrize(
    ("server", "seconds", "timeout", "statuses", "unanswered", "longer", "n_longer"),
    [
        # 100 requests a second by one connection, and 40 of them are due 0.1 s or more before a stop of 0.5 s ends.
        (Stalling(20, 0.5), 1.0, 10.0, {200: 100}, 0, 0.09, 40),
        (Stalling(10, 0.6), 0.3, 10.0, {200: 30}, 0, 0.3, 20),  # it is waited for at the end
        (Stalling(10, 60.0), 0.3, 1.0, {200: 29}, 1, 0.9, 1),  # a request that is given up makes room for others
        (Stalling(10, 60.0, dumb=True), 0.3, 0.5, {200: 9}, 21, 0.4, 10),  # as long as it was waited for
    ],
    ids=["in the middle", "at the end", "once for ever", "for ever"],
)
def test_a_server_that_stands_still_is_seen_by_all_requests_that_were_due(
    server: Stalling, seconds: float, timeout: float, statuses: Any, unanswered: int, longer: float, n_longer: int
) -> None:
    record = run(Step(100.0, 1, seconds), server, timeout=timeout)
    found = record.operations["predict"]
    assert (found.statuses, found.unanswered, found.durations.n) == (statuses, unanswered, found.n_requests)
    assert longer_than(record, longer) >= n_longer
    assert record.n_held_up >= n_longer - 1


def test_a_closed_loop_asks_no_more_than_it_has_connections_for() -> None:
    server = Stalling(20, 0.5)
    record = run(Step(None, 1, 0.8), server)
    assert longer_than(record, 0.49) >= 1
    assert (record.operations["predict"].n_requests, record.n_held_up) == (len(server.asked), 0)


def test_a_mix_is_sent_and_promises_are_checked() -> None:
    server = Samples()
    record = run(Step(None, 4, 0.5), server, MIX)
    assert record.violations == {}
    assert record.n_compared == sum(record.operations[name].n_requests for name in MIX)
    assert record.n_read_back > 0
    n_sent = {name: record.operations[name].n_requests for name in MIX}
    asked = Counter(method for method, _ in server.asked)
    assert (asked["DELETE"], asked["POST"]) == (n_sent["delete"], n_sent["predict"] + n_sent["add"] + _STOCK)
    ids = [path.rpartition("/")[2] for method, path in server.asked if method == "DELETE"]
    assert len(ids) == len(set(ids)), "no sample is deleted twice"
    assert set(server.held) == {f"test-0-{i}" for i in range(n_sent["add"] + _STOCK)} - {*ids}


def test_deletions_are_additions_when_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.client.load.worker._STOCK", 3)
    record = run(Step(None, 1, 0.5), Samples(), {"delete": 1.0})
    assert record.operations["add"].n_requests == record.n_substituted > 0
    assert record.operations["delete"].n_requests >= 3


class Stale(Samples):
    async def post(self, path: str, content: Any) -> Answer | None:
        answer = await super().post(path, content)
        if path == "/predict" and answer is not None:
            answer[1]["model_version"] = 1
        return answer


class Forgetful(Samples):
    """Acknowledges additions, and holds nothing."""

    async def post(self, path: str, content: Any) -> Answer | None:
        answer = await super().post(path, content)
        self.held.clear()
        return answer


class Unforgetting(Samples):
    async def get(self, path: str, content: Any) -> Answer | None:
        return 200, {"model_version": self.version}


BROKEN = [(Stale, {STALE}), (Forgetful, {INVISIBLE, LOST}), (Unforgetting, {STILL_THERE})]


@pytest.mark.parametrize(("server", "broken"), BROKEN)
def test_broken_promises_are_found(server: type[Samples], broken: set[str]) -> None:
    # So few deletions that each is read back: a pause lies between two of these.
    record = run(Step(30.0, 2, 0.8), server(), MIX)
    assert set(record.violations) == broken


def test_a_change_of_one_worker_binds_the_others() -> None:
    plan = Plan((Step(None, 2, 0.3),), PREDICT, 2)
    record = asyncio.run(work(plan, Samples(), [0, 2**40]))
    assert record.violations == {STALE: record.n_compared}
    assert record.n_compared > 0


@pytest.mark.parametrize("status", [429, 503])
def test_refusals_are_counted_apart_with_when_to_come_back(status: int) -> None:
    class Busy(Samples):
        async def post(self, path: str, content: Any) -> Answer | None:
            if len(self.asked) % 2:
                return await super().post(path, content)
            return status, b"HTTP/1.1 %d X\r\nretry-after: 3\r\ncontent-length: 2\r\n\r\n{}" % status

    found = run(Step(50.0, 2, 0.4), Busy()).operations["predict"]
    assert found.statuses == {200: 10, status: 10}
    assert (found.n_refused, found.n_errors, found.n_successes, found.retry_after) == (10, 0, 10, {3.0: 10})
    assert found.durations.n == 10, "a quick refusal does not make a server look fast"


def test_errors_and_broken_connections_are_counted() -> None:
    class Failing(Samples):
        async def post(self, path: str, content: Any) -> Answer | None:
            at = len(self.asked)
            return None if at == 3 else (500, {}) if at == 5 else await super().post(path, content)

    found = run(Step(50.0, 2, 0.4), Failing()).operations["predict"]
    assert (found.statuses, found.unanswered, found.n_errors) == ({200: 18, 500: 1}, 1, 2)


def test_other_forms_of_answers() -> None:
    chunks = b'11\r\n{"model_version":\r\n2\r\n1}\r\n0\r\n\r\n'
    for answer, n_answered in (
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks, 15),
        (b'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 19\r\n\r\n{"model_version":1}', 15),
        (b"SSH-2.0-OpenSSH_9.2\r\n", 0),  # what is no HTTP is no answer
    ):

        async def make(method: str, path: str, content: Any, answer: bytes = answer) -> Answer:
            return 200, answer

        record = run(Step(50.0, 2, 0.3), make)
        found = record.operations["predict"]
        assert (found.statuses[200], found.unanswered, record.violations) == (n_answered, 15 - n_answered, {})


def test_a_server_that_cannot_be_reached() -> None:
    told: list[tuple[str, Any]] = []
    plan = Plan((Step(20.0, 2, 60.0),), PREDICT, timeout=0.3)
    task = Task("http://127.0.0.1:1", None, None, plan, "s", [[1]], [], may_read=False)

    async def begin() -> float:
        raise AssertionError("it cannot be ready")

    asyncio.run(Worker(task, 0, [0], told.append).run(begin))
    assert [event for event, _ in told] == ["lost"]
