"""The short way in, as connections see it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import orjson
import pytest

import oubli.app.http.connection.fastpath
from tests.unit.app.http.connections import (
    ADD,
    DELETE,
    MODEL,
    PREDICT,
    Connection,
    Host,
    hosting,
    request,
    with_limits,
)
from tests.unit.app.support import make_service

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("data", "status"), [(PREDICT, b"200 OK"), (ADD, b"201 Created"), (DELETE, b"200 OK")])
async def test_the_common_case_is_answered_without_the_parser(host: Host, data: bytes, status: bytes) -> None:
    connection = host.connect()
    never_parsed(connection)
    connection.send(data)
    # No task, no loop in between: a prediction is there when the bytes were read.
    assert bool(connection.transport.written) == (data is PREDICT)
    await host.settle()
    (answer,) = connection.answers
    assert answer.status == b"HTTP/1.1 " + status
    assert b"date: today" in answer.headers
    assert b"cache-control: no-store" in answer.headers
    assert host.state.total_requests == 1


async def test_predictions_that_came_together_are_written_together(host: Host) -> None:
    connections = [host.connect() for _ in range(3)]
    written = [one.transport for one in connections]
    for one in connections:
        one.send(PREDICT)
    assert [one.writes for one in written] == [0, 0, 0]
    await asyncio.sleep(0)
    assert [one.writes for one in written] == [1, 1, 1]
    connections[0].send(PREDICT)
    connections[1].send(PREDICT)
    connections[0].protocol.eof_received()
    assert [one.writes for one in written] == [2, 2, 1], "a transport closes after the end of what it reads"
    connections[0].send(PREDICT + b"nonsense")
    assert connections[0].statuses[-2:] == [200, 400]


@pytest.mark.parametrize("look", ["holders", "timer", "late"])
async def test_an_answer_that_waits_is_written_before_anything_else(
    host: Host, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, _ = host.connect(), host.connect()
    if look == "late":
        monkeypatch.setattr(oubli.app.http.connection.fastpath, "LONGEST_WAIT", -1.0)
    connection.send(PREDICT)
    if look == "holders":
        host.service.model.holders._forget_until(0)
    elif look == "timer":
        connection.protocol.look(time.monotonic(), 1.0)
    assert len(connection.answers) == 1


@pytest.mark.parametrize("size", [1, 40, len(PREDICT) - 31, len(PREDICT) - 1])
async def test_a_request_in_pieces_is_answered_once(host: Host, size: int) -> None:
    connection = host.connect()
    for i in range(0, len(PREDICT), size):
        assert connection.transport.written == b""
        connection.send(PREDICT[i : i + size])
    await host.settle()
    assert len(connection.answers) == 1
    # A head that came whole waits for its body, and is not parsed.
    assert (connection.protocol.cycle is None) == (size >= len(PREDICT) - 31)


LONGER = request(body=b'{"instances": [[10.25, "b", false], [1, null, true]]}')


def never_parsed(connection: Connection) -> None:
    """From now on the parser must not be asked."""

    class Refusing:
        def feed_data(self, data: bytes) -> None:
            raise AssertionError("parsed")

    connection.protocol.parser = Refusing()


async def test_a_request_like_the_one_before_is_not_parsed(host: Host) -> None:
    connection = host.connect()
    connection.send(PREDICT)
    never_parsed(connection)
    for data in (PREDICT, LONGER, PREDICT):
        connection.send(data)
    assert [answer.status for answer in connection.answers] == [b"HTTP/1.1 200 OK"] * 4
    assert len(orjson.loads(connection.answers[2].body)["predictions"]) == 2
    assert host.state.total_requests == 4


@pytest.mark.parametrize(
    "data",
    [
        PREDICT + PREDICT,
        PREDICT[:-1],
        PREDICT.replace(b"Length: 31", b"Length: 30"),
        PREDICT.replace(b"Length: 31", b"Length: 032"),
        PREDICT.replace(b"Length: 31", b"Length: +31"),
        PREDICT.replace(b"Length: 31", b"Length: 31 "),
        PREDICT.replace(b"127.0.0.1", b"127.0.0.2"),
        PREDICT.replace(b"Host", b"Origin: http://evil.example\r\nHost"),
        PREDICT.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PREDICT.replace(b"POST", b"PUT"),
        LONGER.replace(b"null", b'"\xff"'),
        request(body=b'{"instances": ["' + b"x" * 2**16 + b'"]}'),
        b"\r\n" + PREDICT,
        ADD,
        DELETE,
        b"",
    ],
)
async def test_a_request_that_is_not_quite_like_the_one_before_is_answered_as_if_it_came_first(data: bytes) -> None:
    seen = []
    for hot in (True, False):
        async with hosting(make_service(), hot=hot) as host:
            connection = host.connect()
            connection.send(PREDICT)
            connection.send(data)
            await host.settle(50)
            connection.protocol.look(time.monotonic(), 1.0)  # a request that is not whole goes to the parser
            await host.settle(50)
            connection.protocol.connection_lost(None)
            seen.append((connection.answers, connection.transport.closed, connection.protocol.is_reading))
    assert seen[0] == seen[1]


async def test_a_body_that_looks_like_a_request_is_a_body(host: Host) -> None:
    connection = host.connect()
    connection.send(PREDICT)
    for first, second in ((LONGER, PREDICT), (PREDICT, DELETE)):
        headers = (("Host", "127.0.0.1"), ("Content-Type", "application/json"), ("Transfer-Encoding", "chunked"))
        body = first + second
        connection.send(request(target="/samples/search", headers=headers) + b"%x\r\n" % len(body))
        for part in (first, second, b"\r\n0\r\n\r\n"):
            connection.send(part)
        await host.settle()
    assert connection.statuses == [200, 400, 400]
    assert host.service.model.state.version == 1


async def test_a_known_head_that_is_refused_now_takes_the_ordinary_way(host: Host) -> None:
    connection = host.connect()
    connection.send(PREDICT)
    host.service.model.state.phase = "starting"
    connection.send(PREDICT)
    await host.settle()
    host.service.model.state.phase = "ready"
    connection.protocol.pause_writing()  # as for a client that does not read
    connection.send(PREDICT)
    await asyncio.sleep(0.01)
    assert connection.statuses == [200, 503]
    connection.protocol.resume_writing()
    await host.settle()
    assert connection.statuses == [200, 503, 200]


@pytest.mark.parametrize("data", [ADD, DELETE])
async def test_a_client_that_left_is_not_written_to(host: Host, data: bytes) -> None:
    left, stays = host.connect(), host.connect()
    left.send(data)
    stays.send(PREDICT)
    left.transport.close()
    left.protocol.connection_lost(None)
    await host.settle()
    assert left.transport.written == b""
    assert host.service.model.state.version == 2
    assert len(stays.answers) == 1


@with_limits(idle_seconds=500)
async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(host: Host) -> None:
    idle, busy, reading, asking = (host.connect() for _ in range(4))
    for connection in (idle, busy, reading, asking):
        connection.send(PREDICT)
    reading.send(PREDICT[:30])
    asking.send(MODEL)
    for connection in (idle, reading, asking):
        connection.protocol.idle_since -= 1000
    for connection in (idle, busy, reading, asking):
        connection.protocol.look(time.monotonic(), 1.0)
    assert [c.transport.closed for c in (idle, busy, reading, asking)] == [True, False, False, False]
    reading.send(PREDICT[30:])
    await host.settle()
    assert [len(c.answers) for c in (busy, reading, asking)] == [1, 2, 2]
    busy.protocol.idle_since -= 1000
    busy.protocol.look(time.monotonic(), 1.0)
    assert busy.transport.closed


@with_limits(idle_seconds=0.05)
@pytest.mark.parametrize("data", [PREDICT, PREDICT + MODEL])
async def test_the_timer_closes(host: Host, data: bytes) -> None:
    connection = host.connect()
    connection.send(data)
    while not connection.transport.closed:  # noqa: ASYNC110 - as a client would see it
        await asyncio.sleep(0.01)
    assert len(connection.answers) == data.count(b"HTTP/1.1")


async def test_shutdown_lets_a_request_finish(host: Host) -> None:
    idle, reading, answered = host.connect(), host.connect(), host.connect()
    reading.send(PREDICT[:-5])
    answered.send(PREDICT)
    for connection in (idle, reading, answered):
        connection.protocol.shutdown()
    assert idle.transport.closed
    assert answered.transport.closed
    assert len(answered.answers) == 1
    assert not reading.transport.closed
    reading.send(PREDICT[-5:])
    await host.settle()
    (answer,) = reading.answers
    assert answer.status == b"HTTP/1.1 200 OK"
    assert b"connection: close" in answer.headers
    assert reading.transport.closed


async def test_a_mistake_of_ours_is_answered_like_everywhere(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("SECRET")

    monkeypatch.setattr(host.service.model.state.model, "apply", broken)
    connection = host.connect()
    with caplog.at_level(logging.INFO):
        connection.send(DELETE + DELETE + PREDICT)
        await host.settle()
    host.service.model.state.halted = None  # so that it can be stopped without a word
    first, second, _ = connection.answers
    assert connection.statuses == [500, 503, 200]
    assert b"content-type: application/problem+json" in first.headers
    assert orjson.loads(first.body)["type"] == "urn:oubli:problem:internal-error"
    assert orjson.loads(second.body)["type"] == "urn:oubli:problem:changes-stopped"
    assert "SECRET" not in caplog.text + str((first, second))
    assert "an internal error at test_protocol.py" in caplog.text
