"""When a traced server began to send each answer, and what it had flushed by then."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.process.durability.disk import Disk
from tests.process.durability.tracing import Call

_SENDS = ("write", "writev", "sendto", "sendmsg")
_JOURNAL = re.compile(r"(^|/)journal-")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer on a connection.

    Attributes
    ----------
    connection
        Which one; connections are counted.
    begin
        The place in the trace at which its first byte was sent.
    previous
        The place at which the answer before it on the same connection was sent; the request came after that.
    """

    connection: int
    begin: int
    previous: int
    status: int
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
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
        name = disk.name_of(call.numbers()[0]) if call.name in (*_FILE_WRITES, "fsync", "fdatasync") else None
        disk.apply([call])
        if name is None or not _JOURNAL.search(name) or call.result < 0:
            continue
        if call.name in _FILE_WRITES:
            waiting.setdefault(name, []).append(call)
            continue
        covered = [write for write in waiting.get(name, []) if write.end < call.begin]
        waiting[name] = [write for write in waiting.get(name, []) if write.end >= call.begin]
        found.extend(Written(write.begin, write.data(), call.end) for write in covered)
    return found


_FILE_WRITES = ("write", "writev", "pwrite64", "pwritev", "pwritev2")
