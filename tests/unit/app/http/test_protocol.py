"""The short way in, as connections see it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import orjson
import pytest

from oubli.app.http import fastpath
from oubli.app.http.connections import ConnectionLimits
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
def test_the_common_case_is_answered_at_once(data: bytes, status: bytes) -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        connection.send(data)
        # No task, no loop in between: the answer is there when the bytes were read.
        (answer,) = connection.answers
        assert answer.status == b"HTTP/1.1 " + status
        assert b"date: today" in answer.headers
        assert b"cache-control: no-store" in answer.headers
        assert connection.protocol.cycle is None
        assert host.state.total_requests == 1

    served(work)


def test_a_request_in_small_pieces_is_answered_once() -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        for i in range(len(PREDICT)):
            assert connection.transport.written == b""
            connection.send(PREDICT[i : i + 1])
        assert len(connection.answers) == 1
        assert connection.protocol.cycle is None

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
def test_a_request_that_is_not_quite_like_the_one_before_is_parsed(data: bytes) -> None:
    parsed = []

    async def work(host: Host) -> None:
        connection = host.connect()
        connection.send(PREDICT)
        feed = connection.protocol.parser.feed_data

        class Noting:
            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def feed_data(self, data: bytes) -> None:
                parsed.append(data)
                feed(data)

        real = connection.protocol.parser
        connection.protocol.parser = Noting()
        connection.send(data)
        await host.settle()
        assert parsed == [data]

    served(work)


def test_what_may_be_a_part_of_another_request_is_not_learned() -> None:
    """Only a request that was read in one piece, from its first byte, shows what its head is."""

    async def work(host: Host) -> None:
        for pieces in ([PREDICT[:5], PREDICT[5:]], [PREDICT[:-5], PREDICT[-5:]], [PREDICT + LONGER], [MODEL + PREDICT]):
            connection = host.connect()
            for piece in pieces:
                connection.send(piece)
            await host.settle()
            assert connection.protocol._known_head is None, pieces

    served(work)


def test_a_known_head_that_is_refused_now_takes_the_ordinary_way() -> None:
    async def work(host: Host) -> None:
        connection = host.connect()
        connection.send(PREDICT)
        host.service.phase = "starting"
        connection.send(PREDICT)
        await host.settle()
        host.service.phase = "ready"
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


def test_answers_of_several_connections_are_written_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.app.http.fastpath.LONGEST_WAIT", 60.0)  # a busy machine may be slow

    async def work(host: Host) -> None:
        connections = [host.connect() for _ in range(3)]
        for connection in connections:
            connection.send(PREDICT + PREDICT)
        assert [connection.transport.written for connection in connections] == [b"", b"", b""]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [len(connection.answers) for connection in connections] == [2, 2, 2]
        assert [connection.transport.writes for connection in connections] == [1, 1, 1]

    served(work)


def test_an_answer_does_not_wait_long_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oubli.app.http.fastpath.LONGEST_WAIT", 0.0)

    async def work(host: Host) -> None:
        first, second = host.connect(), host.connect()
        first.send(PREDICT)
        second.send(PREDICT)
        assert len(first.answers) == len(second.answers) == 1

    served(work)


def test_a_client_that_left_is_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fastpath, "LONGEST_WAIT", 60.0)  # seconds: a slow machine does not end the step

    async def work(host: Host) -> None:
        left, stays = host.connect(), host.connect()
        left.send(PREDICT)
        stays.send(PREDICT)
        left.transport.close()
        left.protocol.connection_lost(None)
        await host.settle()
        assert left.transport.written == b""
        assert len(stays.answers) == 1

    served(work)


def test_what_is_no_http_is_told_after_the_answers_before_it(caplog: pytest.LogCaptureFixture) -> None:
    async def work(host: Host) -> None:
        host.connect()  # with a second connection answers wait for the end of the step
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

    monkeypatch.setattr(model, "delete", broken)

    async def run() -> list[Any]:
        async with hosting(make_service(model)) as host:
            connection = host.connect()
            with caplog.at_level(logging.INFO):
                connection.send(DELETE + DELETE + PREDICT)
                await host.settle()
            host.service._failed = False  # so that it can be stopped without a word
            return connection.answers

    first, second, third = asyncio.run(run())
    assert first.status == b"HTTP/1.1 500 Internal Server Error"
    assert b"content-type: application/problem+json" in first.headers
    assert orjson.loads(first.body)["type"] == "urn:oubli:problem:internal-error"
    assert orjson.loads(second.body)["type"] == "urn:oubli:problem:changes-stopped"
    assert third.status == b"HTTP/1.1 200 OK"
    assert "SECRET" not in caplog.text + str((first, second))
    assert "RuntimeError at test_protocol.py" in caplog.text
