"""Power may go at any instant: every success is sent after the flush that covers it, and what was flushed is enough."""

import json
import random
import re
import shutil
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.process.durability.clients import Request, everybody, start_clients
from tests.process.durability.disk import WRITES, Disk
from tests.process.durability.evidence import check_evidence, receipts_of
from tests.process.durability.model_of_truth import Operation
from tests.process.durability.people import flags
from tests.process.durability.reading import check_exact, read_held
from tests.process.durability.tracing import Call, command, kill_traced, read_trace, why_not
from tests.serving import serving, wait_for

FLAGS = flags("--erasure-deadline", "1", "--snapshot-mutations", "60")
_SENDS = ("write", "writev", "sendto", "sendmsg")
_JOURNAL = re.compile(r"(^|/)journal-")

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class Answer(NamedTuple):
    """An answer on a connection; connections are counted."""

    connection: int
    begin: int  # the place in the trace at which its first byte was sent
    previous: int  # where the answer before it on the same connection was sent; the request came after that
    status: int
    content: dict[str, Any]


class Written(NamedTuple):
    """Something written to the journal, and the first flush of the same file that began after that."""

    begin: int
    data: bytes
    flushed: int


def read_answers(calls: Sequence[Call]) -> list[Answer]:
    """Return all answers with a JSON body, in the order in which they were sent."""
    connections: dict[int, int] = {}
    streams: dict[int, bytearray] = {}
    previous: dict[int, int] = {}
    began: dict[int, int] = {}
    answers: list[Answer] = []
    for call in calls:
        if call.name.startswith("accept") and call.result >= 0:
            number = len(streams)
            connections[call.result] = number
            streams[number], previous[number] = bytearray(), call.end
        elif call.name == "close":
            connections.pop(call.numbers()[0], None)
        elif call.name in _SENDS and call.numbers()[0] in connections and call.result > 0:
            number = connections[call.numbers()[0]]
            stream = streams[number]
            if not stream:
                began[number] = call.begin
            stream += call.data()
            for status, content in _take_answers(stream):
                answers.append(Answer(number, began[number], previous[number], status, content))
                previous[number] = call.end
    return answers


def _take_answers(stream: bytearray) -> list[tuple[int, dict[str, Any]]]:
    """Take whole answers from the beginning of a stream."""
    answers = []
    while True:
        end = stream.find(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", stream[:end], re.IGNORECASE) if end >= 0 else None
        if found is None or len(stream) < end + 4 + int(found[1]):
            return answers
        body = bytes(stream[end + 4 : end + 4 + int(found[1])])
        if body.startswith(b"{"):
            answers.append((int(stream[9:12]), json.loads(body)))
        del stream[: end + 4 + int(found[1])]


def journal_writes(calls: Sequence[Call], disk: Disk) -> list[Written]:
    """Return all that was written to the journal and flushed, on a disk as it was at the beginning."""
    waiting: dict[str, list[Call]] = {}
    found: list[Written] = []
    for call in calls:
        name = disk.name_of(call.numbers()[0]) if call.name in (*WRITES, "fsync", "fdatasync") else None
        disk.apply([call])
        if name is None or not _JOURNAL.search(name) or call.result < 0:
            continue
        if call.name in WRITES:
            waiting.setdefault(name, []).append(call)
            continue
        covered = [write for write in waiting.get(name, []) if write.end < call.begin]
        waiting[name] = [write for write in waiting.get(name, []) if write.end >= call.begin]
        found.extend(Written(write.begin, write.data(), call.end) for write in covered)
    return found


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
    with serving(*FLAGS, cwd=folder, command=command(trace)) as server:
        clients = start_clients(server.port, everybody(), 0, seed=7, n=4)
        time.sleep(3.0 if is_long else 1.2)
        wait_for(lambda: sum(len(client.requests) for client in clients) > 300, "some hundred requests")
        for client in clients:
            client.stop()
        for client in clients:
            client.join()
        kill_traced(server)
    calls = read_trace(trace)
    trace.unlink()
    # The model of the disk, fed with the trace, has the snapshots that the disk has.
    disk = Disk(folder / "oubli-data", before)
    disk.apply(calls)
    for name, content in disk.now().items():
        path = folder / "oubli-data" / name
        if name.startswith("snapshot-") and path.exists():
            assert path.read_bytes() == content, f"{name} is not what the trace says"
    assert not [failure for client in clients for failure in client.failures]
    return Recorded(folder / "oubli-data", before, calls, read_answers(calls), [client.requests for client in clients])


def changes(recorded: Recorded) -> list[Request]:
    """Everything that changed something and was answered with a success, in the order of the answers."""
    every = [request for requests in recorded.clients for request in requests]
    made = [one for one in every if one.operation.is_acknowledged and one.operation.changed]
    made.sort(key=lambda one: recorded.answer_to(one.operation).begin)
    # A deletion of what is gone already changes nothing: it is answered with the receipt of the one that did.
    first = {one.operation.answer.get("id"): one for one in reversed(made)}
    others = ("add", "restrict", "release")
    return [one for one in made if one.operation.kind in others or one is first[one.operation.answer["id"]]]


def test_every_success_is_sent_after_the_flush_that_covers_it(recorded):
    written = journal_writes(recorded.calls, Disk(recorded.directory, recorded.before))
    made = changes(recorded)
    n_found = 0
    for request in made:
        answer = recorded.answer_to(request.operation)
        since = [one for one in written if answer.previous < one.begin and one.flushed < answer.begin]
        assert since, "nothing was written and flushed between the request and its answer"
        # What the journal holds of this change and of no other.
        kind, content = request.operation.kind, request.operation.answer
        key = {"add": "ids", "restrict": "ledger_head", "release": "ledger_head"}.get(kind, "id")
        name = content[key][0] if kind == "add" else content[key]
        token = f'"{name}"'.encode()
        n_found += any(token in one.data for one in since)
        first = next((one for one in written if token in one.data), None)
        assert first is None or first.flushed < answer.begin, "it was answered before its record was flushed"
    assert len(made) > 100
    assert n_found > 0.8 * len(made)  # the others lie across two pages of a file


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
        disk, folder = Disk(recorded.directory, recorded.before), tmp_path / f"cut{number}"
        disk.apply(call for call in recorded.calls if call.end <= cut)
        folder.mkdir()
        shutil.copy(recorded.directory.parent / "people.csv", folder)
        disk.write_to(folder / "oubli-data", lucky=random.Random(number) if number % 3 == 1 else None)
        operations = operations_until(recorded, cut)
        with serving(*FLAGS, cwd=folder) as server:
            held, version = read_held(server)
            differences = deepcopy(truth).settle(operations, held, version)
            assert not differences, f"after a cut at {cut}: {differences}"
            check_evidence(server, receipts_of(operations))
            check_exact(server, held)
        n_requests += len(operations)
    assert n_requests > 20 * n
