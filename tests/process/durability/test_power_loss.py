"""Power may go at any instant: every success is sent after the flush that covers it, and what was flushed is enough."""

from __future__ import annotations

import json
import random
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.process.durability.answers import Answer, journal_writes, read_answers
from tests.process.durability.asking import wait_for
from tests.process.durability.clients import Acquaintances, Request, start_clients
from tests.process.durability.crash import receipts_of
from tests.process.durability.disk import Disk
from tests.process.durability.evidence import check_evidence
from tests.process.durability.model_of_truth import Operation, Truth
from tests.process.durability.people import flags, people
from tests.process.durability.reading import fresh_digest, live_digest, read_held, read_schema
from tests.process.durability.tracing import Call, command, kill_traced, read_trace, why_not
from tests.serving import serving

FLAGS = flags("--erasure-deadline", "1", "--snapshot-mutations", "60")
_SECONDS = {"ordinary": 1.2, "long": 3.0}

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@dataclass
class Recorded:
    """A server under load, from its start to its end, and what the clients know of it."""

    directory: Path
    before: Path
    calls: list[Call]
    answers: list[Answer]
    clients: list[list[Request]]

    def __post_init__(self) -> None:
        """Pair each client's requests with the answers on its connection: both are in order."""
        connections = {_key(answer.status, answer.content): answer.connection for answer in self.answers}
        self._answers: dict[int, Answer] = {}
        for requests in self.clients:
            first = next(one.operation for one in requests if one.operation.is_acknowledged and one.operation.changed)
            connection = connections[_key(first.status, first.answer)]
            answers = [answer for answer in self.answers if answer.connection == connection]
            for request, answer in zip(requests, answers, strict=False):
                assert answer.status == request.operation.status
                self._answers[id(request.operation)] = answer

    def answer_to(self, operation: Operation) -> Answer:
        """Return when and where an operation was answered."""
        return self._answers[id(operation)]


def _key(status: int | None, content: dict[str, Any]) -> tuple[int | None, str]:
    return status, json.dumps(content, sort_keys=True)


@pytest.fixture(scope="module")
def recorded(
    _begun: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Recorded:
    is_long = any(item.get_closest_marker("long") for item in request.session.items)
    folder = tmp_path_factory.mktemp("traced")
    shutil.copytree(_begun[0], folder, dirs_exist_ok=True)
    before = folder / "before" / "oubli-data"
    shutil.copytree(folder / "oubli-data", before)
    trace = folder / "trace.txt"
    known = Acquaintances(people(), sorted({str(one.subject) for one in people().values()}))
    with serving(*FLAGS, cwd=folder, command=command(trace)) as server:
        clients = start_clients(server.port, known, 0, seed=7, n=4)
        time.sleep(_SECONDS["long" if is_long else "ordinary"])
        wait_for(lambda: sum(len(client.requests) for client in clients) > 300, "some hundred requests")
        for client in clients:
            client.stop()
        for client in clients:
            client.join()
        kill_traced(server)
    failures = [failure for client in clients for failure in client.failures]
    assert not failures
    calls = read_trace(trace)
    trace.unlink()
    _check_trace(before, folder / "oubli-data", calls)
    requests = [client.requests for client in clients]
    return Recorded(folder / "oubli-data", before, calls, read_answers(calls), requests)


def _check_trace(before: Path, after: Path, calls: list[Call]) -> None:
    """The model of the disk, fed with the trace, has the snapshots that the disk has."""
    disk = Disk(after, before)
    disk.apply(calls)
    for name, content in disk.now().items():
        if name.startswith("snapshot-") and (after / name).exists():
            assert (after / name).read_bytes() == content, f"{name} is not what the trace says"


def changes(recorded: Recorded) -> list[Request]:
    """Everything that changed something and was answered with a success, in the order of the answers."""
    every = [request for requests in recorded.clients for request in requests]
    made = [one for one in every if one.operation.is_acknowledged and one.operation.changed]
    made.sort(key=lambda one: recorded.answer_to(one.operation).begin)
    # A deletion of what is gone already changes nothing: it is answered with the receipt of the one that did.
    seen: set[str] = set()
    others = ("add", "restrict", "release")
    return [one for one in made if one.operation.kind in others or not _was_seen(one.operation.answer["id"], seen)]


def _was_seen(name: str, seen: set[str]) -> bool:
    known = name in seen
    seen.add(name)
    return known


def test_every_success_is_sent_after_the_flush_that_covers_it(recorded):
    written = journal_writes(recorded.calls, Disk(recorded.directory, recorded.before))
    made = changes(recorded)
    n_found = 0
    for request in made:
        answer = recorded.answer_to(request.operation)
        since = [one for one in written if answer.previous < one.begin and one.flushed < answer.begin]
        assert since, "nothing was written and flushed between the request and its answer"
        token = _token(request)
        n_found += any(token in one.data for one in since)
        first = next((one for one in written if token in one.data), None)
        assert first is None or first.flushed < answer.begin, "it was answered before its record was flushed"
    assert len(made) > 100
    assert n_found > 0.8 * len(made)  # the others lie across two pages of a file


def _token(request: Request) -> bytes:
    """What the journal holds of a change and of no other."""
    operation = request.operation
    if operation.kind in ("restrict", "release"):
        name = operation.answer["ledger_head"]
    else:
        name = operation.answer["ids"][0] if operation.kind == "add" else operation.answer["id"]
    return f'"{name}"'.encode()


def lose_power(recorded: Recorded, truth: Truth, cut: int, folder: Path, lucky: random.Random | None) -> int:
    """Cut the power at a place of the trace, start on what is left, compare; return how many requests were checked."""
    disk = Disk(recorded.directory, recorded.before)
    disk.apply(call for call in recorded.calls if call.end <= cut)
    folder.mkdir()
    shutil.copy(recorded.directory.parent / "people.csv", folder)
    disk.write_to(folder / "oubli-data", lucky)
    operations = operations_until(recorded, cut)
    with serving(*FLAGS, cwd=folder) as server:
        held, version = read_held(server)
        differences = truth.settle(operations, held, version)
        assert not differences, f"after a cut at {cut}: {differences}"
        check_evidence(server, receipts_of(operations))
        assert live_digest(server, by_snapshot=True) == fresh_digest(read_schema(server), held)
    return len(operations)


def operations_until(recorded: Recorded, cut: int) -> list[Operation]:
    """Return what each client had been answered by then, and the request that it may have been waiting for."""
    operations: list[Operation] = []
    for requests in recorded.clients:
        for request in requests:
            operation = request.operation
            if operation.status is None:
                operations.append(operation)
                break
            if recorded.answer_to(operation).begin > cut:
                operations.append(replace(operation, status=None, answer={}))
                break
            operations.append(operation)
    return operations


def cuts(recorded: Recorded, n: int, seed: int) -> list[int]:
    """Return places to cut the power at: right after an answer, or at any call."""
    source = random.Random(seed)
    first = min(recorded.answer_to(one.operation).begin for one in changes(recorded))
    answered = [answer.begin for answer in recorded.answers if answer.begin >= first]
    anywhere = [call.end for call in recorded.calls if call.end >= first]
    return source.sample(answered, n // 2) + source.sample(anywhere, n - n // 2)


@pytest.mark.parametrize("n", [2, pytest.param(100, marks=pytest.mark.long)])
def test_what_was_flushed_is_enough_wherever_power_goes(recorded, truth, tmp_path, n):
    n_requests = 0
    for number, cut in enumerate(cuts(recorded, n, seed=n)):
        lucky = random.Random(number) if number % 3 == 1 else None
        n_requests += lose_power(recorded, truth.copy(), cut, tmp_path / f"cut{number}", lucky)
    assert n_requests > 20 * n
