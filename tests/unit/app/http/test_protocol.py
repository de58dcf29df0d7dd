"""The short way in, as connections see it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import orjson
import pytest

import oubli.app.http.connection.fastpath
from oubli.app.http.connection.connections import ConnectionLimits
from tests.unit.app.http.connections import Connection, Host, hosting, request
from tests.unit.app.support import forest, make_service

PREDICT = request(body=b'{"instances": [[1, "a", true]]}')
ADD = request(target="/samples", body=b'{"samples": [{"id": "n", "features": [1, "a", true], "label": "yes"}]}')
DELETE = request("DELETE", "/samples/c1", headers=(("Host", "127.0.0.1"),))
MODEL = request("GET", "/model", headers=(("Host", "127.0.0.1"),))


def served(work: Any, **settings: Any) -> Any:
    """Run a coroutine function on a host that is ready."""

    async def run() -> Any:
        async with hosting(make_service(), **settings) as host:
            return await work(host)

    return asyncio.run(run())


@pytest.mark.parametrize(("data", "status"), [(PREDICT, b"200 OK"), (ADD, b"201 Created"), (DELETE, b"200 OK")])
def test_the_common_case_is_answered_without_the_parser(data: bytes, status: bytes) -> None:
    async def work(host: Host) -> None:
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

    served(work)


def test_predictions_that_came_together_are_written_together() -> None:
    async def work(host: Host) -> None:
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
        first, last = (one.status.split()[1] for one in connections[0].answers[-2:])
        assert (first, last) == (b"200", b"400")

    served(work)


@pytest.mark.parametrize("look", ["holders", "timer", "late"])
def test_an_answer_that_waits_is_written_before_anything_else(look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(host: Host) -> None:
        connection, _ = host.connect(), host.connect()
        if look == "late":
            monkeypatch.setattr(oubli.app.http.connection.fastpath, "LONGEST_WAIT", -1.0)
        connection.send(PREDICT)
        if look == "holders":
            host.service.model.holders._forget_until(0)
        elif look == "timer":
            connection.protocol.look(time.monotonic(), 1.0)
        assert len(connection.answers) == 1

    served(work)


@pytest.mark.parametrize("size", [1, 40, len(PREDICT) - 31, len(PREDICT) - 1])
def test_a_request_in_pieces_is_answered_once(size: int) -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        for i in range(0, len(PREDICT), size):
            assert connection.transport.written == b""
            connection.send(PREDICT[i : i + size])
        await host.settle()
        assert len(connection.answers) == 1
        # A head that came whole waits for its body, and is not parsed.
        assert (connection.protocol.cycle is None) == (size >= len(PREDICT) - 31)

    served(work)


LONGER = request(body=b'{"instances": [[10.25, "b", false], [1, null, true]]}')


def never_parsed(connection: Connection) -> None:
    """From now on the parser must not be asked."""

    class Refusing:
        def feed_data(self, data: bytes) -> None:
            raise AssertionError("parsed")

    connection.protocol.parser = Refusing()


def test_a_request_like_the_one_before_is_not_parsed() -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        connection.send(PREDICT)
        never_parsed(connection)
        for data in (PREDICT, LONGER, PREDICT):
            connection.send(data)
        assert [answer.status for answer in connection.answers] == [b"HTTP/1.1 200 OK"] * 4
        assert len(orjson.loads(connection.answers[2].body)["predictions"]) == 2
        assert host.state.total_requests == 4

    served(work)


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
def test_a_request_that_is_not_quite_like_the_one_before_is_answered_as_if_it_came_first(data: bytes) -> None:
    async def work(host: Host) -> list[Any]:
        connection = host.connect()
        connection.send(PREDICT)
        connection.send(data)
        await host.settle(50)
        connection.protocol.look(time.monotonic(), 1.0)  # a request that is not whole goes to the parser
        await host.settle(50)
        connection.protocol.connection_lost(None)
        return [connection.answers, connection.transport.closed, connection.protocol.is_reading]

    assert served(work) == served(work, hot=False)


def test_a_body_that_looks_like_a_request_is_a_body() -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        connection.send(PREDICT)
        for first, second in ((LONGER, PREDICT), (PREDICT, DELETE)):
            headers = (("Host", "127.0.0.1"), ("Content-Type", "application/json"), ("Transfer-Encoding", "chunked"))
            body = first + second
            connection.send(request(target="/samples/search", headers=headers) + b"%x\r\n" % len(body))
            for part in (first, second, b"\r\n0\r\n\r\n"):
                connection.send(part)
            await host.settle()
        assert [answer.status[9:12] for answer in connection.answers] == [b"200", b"400", b"400"]
        assert host.service.model.state.version == 1

    served(work)


def test_a_known_head_that_is_refused_now_takes_the_ordinary_way() -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        connection.send(PREDICT)
        host.service.model.state.phase = "starting"
        connection.send(PREDICT)
        await host.settle()
        host.service.model.state.phase = "ready"
        connection.protocol.pause_writing()
        connection.send(PREDICT)
        connection.protocol.resume_writing()
        await host.settle()
        assert [answer.status[9:12] for answer in connection.answers] == [b"200", b"503", b"200"]

    served(work)


def test_answers_keep_the_order_of_the_requests() -> None:
    async def work(host: Host) -> list[Any]:
        connection = host.connect()
        connection.send(DELETE + MODEL + PREDICT + ADD + MODEL + PREDICT)
        await host.settle()
        return [orjson.loads(answer.body) for answer in connection.answers]

    bodies = served(work)
    assert [body["model_version"] for body in bodies] == [2, 2, 2, 3, 3, 3]
    assert ["kind" in body for body in bodies] == [True, True, False, False, True, False]


@pytest.mark.parametrize("data", [ADD, DELETE])
def test_a_client_that_left_is_not_written_to(data: bytes) -> None:
    async def work(host: Host) -> None:
        left, stays = host.connect(), host.connect()
        left.send(data)
        stays.send(PREDICT)
        left.transport.close()
        left.protocol.connection_lost(None)
        await host.settle()
        assert left.transport.written == b""
        assert host.service.model.state.version == 2
        assert len(stays.answers) == 1

    served(work)


def test_what_is_no_http_is_told_after_the_answers_before_it(caplog: pytest.LogCaptureFixture) -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        with caplog.at_level(logging.CRITICAL):
            connection.send(PREDICT + b"no such thing\r\n\r\n")
        await host.settle()
        assert [answer.status for answer in connection.answers] == [b"HTTP/1.1 200 OK", b"HTTP/1.1 400 Bad Request"]
        assert connection.transport.closed

    served(work)


def test_a_client_that_does_not_read_is_waited_for() -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        connection.protocol.pause_writing()
        connection.send(PREDICT)
        await asyncio.sleep(0.01)
        assert connection.transport.written == b""
        connection.protocol.resume_writing()
        await host.settle()
        assert len(connection.answers) == 1

    served(work)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def work(host: Host) -> None:
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

    served(work, limits=ConnectionLimits(idle_seconds=500))


def test_the_timer_closes() -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        connection.send(PREDICT)
        while not connection.transport.closed:  # noqa: ASYNC110 - as a client would see it
            await asyncio.sleep(0.01)
        assert len(connection.answers) == 1

    served(work, limits=ConnectionLimits(idle_seconds=0.02))


def test_after_an_ordinary_request_the_timer_closes_as_well() -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        connection.send(PREDICT + MODEL)
        await host.settle()
        assert len(connection.answers) == 2
        while not connection.transport.closed:  # noqa: ASYNC110 - as a client would see it
            await asyncio.sleep(0.01)

    served(work, limits=ConnectionLimits(idle_seconds=0.1))


def test_shutdown_lets_a_request_finish() -> None:
    async def work(host: Host) -> None:
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

    served(work)


def test_a_mistake_of_ours_is_answered_like_everywhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = forest()

    def broken(*_: Any) -> None:
        raise RuntimeError("SECRET")

    monkeypatch.setattr(model, "apply", broken)

    async def run() -> list[Any]:
        async with hosting(make_service(model)) as host:
            connection = host.connect()
            with caplog.at_level(logging.INFO):
                connection.send(DELETE + DELETE + PREDICT)
                await host.settle()
            host.service.model.state.halted = None  # so that it can be stopped without a word
            return connection.answers

    first, second, third = asyncio.run(run())
    assert first.status == b"HTTP/1.1 500 Internal Server Error"
    assert b"content-type: application/problem+json" in first.headers
    assert orjson.loads(first.body)["type"] == "urn:oubli:problem:internal-error"
    assert orjson.loads(second.body)["type"] == "urn:oubli:problem:changes-stopped"
    assert third.status == b"HTTP/1.1 200 OK"
    assert "SECRET" not in caplog.text + str((first, second))
    assert "an internal error at test_protocol.py" in caplog.text
