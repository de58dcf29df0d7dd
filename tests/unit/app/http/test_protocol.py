"""Connections without sockets: the short way in, the order of answers, and limits of number, size and time."""

import asyncio
import time
from itertools import product
from typing import Any

import pytest

import oubli.app.http.connection.fastpath
from oubli.app.http.connection.connections import ConnectionLimits, parse_networks
from oubli.app.http.connection.protocol import LEAST_BODY_RATE, MOST_FIELDS, MOST_HEAD_BYTES
from tests.unit.app.http.connections import ADD, DELETE, MODEL, PREDICT, Host, both_ways, hosting, request, with_limits
from tests.unit.app.http.test_fastpath import plain, play
from tests.unit.app.support import make_service

pytestmark = pytest.mark.anyio


async def test_predictions_that_came_together_are_written_together(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oubli.app.http.connection.fastpath, "LONGEST_WAIT", 60.0)  # however busy the machine is
    first, second, third = connections = [host.connect() for _ in range(3)]
    for one in connections:
        one.send(PREDICT)
    assert [one.transport.writes for one in connections] == [0, 0, 0]
    await asyncio.sleep(0)
    assert [one.transport.writes for one in connections] == [1, 1, 1]
    first.send(PREDICT)
    second.send(PREDICT)
    first.protocol.eof_received()
    assert [one.transport.writes for one in (first, second, third)] == [2, 2, 1], "it closes after the end of its input"
    first.send(PREDICT + b"nonsense")
    assert first.statuses[-2:] == [200, 400]


@pytest.mark.parametrize("look", ["holders", "timer", "late"])
async def test_an_answer_that_waits_is_written_first(host: Host, look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, _ = host.connect(), host.connect()
    if look == "late":
        monkeypatch.setattr(oubli.app.http.connection.fastpath, "LONGEST_WAIT", -1.0)
    connection.send(PREDICT)
    if look == "holders":
        host.service.model.holders._forget_until(0)
    elif look == "timer":
        connection.protocol.look(time.monotonic(), 1.0)
    assert len(connection.answers) == 1


LONGER = request(body=b'{"instances": [[10.25, "b", false], [1, null, true]]}')


@pytest.mark.parametrize("data", [
    PREDICT + PREDICT, PREDICT[:-1], b"\r\n" + PREDICT, ADD, DELETE, b"", LONGER.replace(b"null", b'"\xff"'),
    *(PREDICT.replace(b"Length: 31", b"Length: " + other) for other in (b"30", b"032", b"+31", b"31 ")),
    PREDICT.replace(b"127.0.0.1", b"127.0.0.2"), PREDICT.replace(b"Host", b"Origin: http://evil.example\r\nHost"),
    PREDICT.replace(b"HTTP/1.1", b"HTTP/1.0"), PREDICT.replace(b"POST", b"PUT"),
    request(body=b'{"instances": ["' + b"x" * 2**16 + b'"]}'),
])  # fmt: skip
async def test_a_request_that_is_not_quite_like_the_one_before_is_answered_as_if_it_came_first(data: bytes) -> None:
    async with hosting(make_service()) as short, hosting(make_service(), hot=False) as ordinary:
        found = [plain(await play(host, [[PREDICT], [data]])) for host in (short, ordinary)]
        assert found[0] == found[1]


async def test_a_body_that_looks_like_a_request_is_a_body(host: Host) -> None:
    connection = await host.ask(PREDICT)
    for first, second in ((LONGER, PREDICT), (PREDICT, DELETE)):
        body = first + second
        connection.send(request(target="/samples/search", headers=CHUNKED) + b"%x\r\n" % len(body))
        for part in (first, second, b"\r\n0\r\n\r\n"):
            connection.send(part)
        await host.settle()
    assert (connection.statuses, host.service.model.state.version) == ([200, 400, 400], 1)


async def test_a_known_head_that_is_refused_now_takes_the_ordinary_way(host: Host) -> None:
    connection = await host.ask(PREDICT)
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
    assert (left.transport.written, host.service.model.state.version, len(stays.answers)) == (b"", 2, 1)


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
async def test_the_timer_closes(host: Host) -> None:
    connection = await host.ask(PREDICT + MODEL)
    while not connection.transport.closed:  # noqa: ASYNC110 - as a client would see it
        await asyncio.sleep(0.01)
    assert connection.statuses == [200, 200]


async def test_shutdown_lets_a_request_finish(host: Host) -> None:
    idle, reading, answered = host.connect(), host.connect(), host.connect()
    reading.send(PREDICT[:-5])
    answered.send(PREDICT)
    for connection in (idle, reading, answered):
        connection.protocol.shutdown()
    assert [one.transport.closed for one in (idle, answered, reading)] == [True, True, False]
    assert len(answered.answers) == 1
    reading.send(PREDICT[-5:])
    await host.settle()
    assert (reading.statuses, reading.transport.closed) == ([200], True)
    assert b"connection: close" in reading.answers[0].headers


CHUNKED = (("Host", "127.0.0.1"), ("Content-Type", "application/json"), ("Transfer-Encoding", "chunked"))


def with_fields(n: int, size: int = 1) -> bytes:
    """A request with so many headers, four of them the usual ones."""
    return request(body=b'{"instances": [[1, "a", true]]}', more={f"X-{i}": "v" * size for i in range(n - 3)})


# --- heads


HEADS = [
    (with_fields(MOST_FIELDS), 200), (with_fields(MOST_FIELDS + 1), 431),
    (with_fields(12, MOST_HEAD_BYTES // 8), 431), (with_fields(10, MOST_HEAD_BYTES // 8 - 200), 200),
    (request("GET", "/" + "x" * MOST_HEAD_BYTES), 431), (b"X" * 100_000, 400),
    (request("GET", "/healthz?" + "x" * (MOST_HEAD_BYTES - 500)), 200),
    (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 2 * MOST_HEAD_BYTES, 431),
]  # fmt: skip


@both_ways
async def test_a_head_has_a_limit(host: Host) -> None:
    for (data, status), size in product(HEADS, (1000, 65_536, 10**9)):
        connection = host.connect()
        for start in range(0, len(data), size):
            connection.send(data[start : start + size])
        await host.settle()
        if not connection.transport.written:  # all of it in one piece, and the last field without an end
            connection.send(b"x")
        assert (connection.statuses, connection.transport.closed) == ([status], status != 200), (data[:40], size)
        if status != 200:
            headers = connection.answers[0].headers
            assert {b"content-type: application/problem+json", b"connection: close"} <= {*headers}
            connection.transport.closed = False
            connection.protocol.data_received(PREDICT)
            assert len(connection.answers) == 1, "nothing is looked at any more"
        host.forget(connection)


@both_ways
async def test_trailers_and_extensions_have_the_limit_too(host: Host) -> None:
    long = b"x" * (2 * MOST_HEAD_BYTES)
    for end in (b"0\r\n" + b"X: 1\r\n" * (MOST_FIELDS + 1) + b"\r\n", b"0\r\nX: " + long, b"1;" + long):
        connection = host.connect()
        data = request(headers=CHUNKED) + b"2\r\n{}\r\n" + end
        for start in range(0, len(data), 4096):
            connection.send(data[start : start + 4096])
            await asyncio.sleep(0)
        await host.settle()
        assert (connection.statuses, connection.transport.closed) == ([431], True), end[:5]


@both_ways
async def test_trailers_are_no_headers(host: Host) -> None:
    """What is in front of the server does not check them."""
    for name in ("Host", "Content-Type"):
        headers = tuple(header for header in CHUNKED if header[0] != name)
        body = b'1f\r\n{"instances": [[1, "a", true]]}\r\n0\r\n'
        trailer = b"".join(b"%b: %b\r\n" % (a.encode(), b.encode()) for a, b in CHUNKED[:2])
        connection = await host.ask(request(headers=headers) + body + trailer + b"\r\n" + PREDICT)
        assert connection.statuses == [421 if name == "Host" else 415, 200]


# --- order of answers


@both_ways
@pytest.mark.parametrize("durable", [True])
@pytest.mark.parametrize("bad", [b"no such thing\r\n\r\n", with_fields(MOST_FIELDS + 1)])
@pytest.mark.parametrize("before", [MODEL, MODEL + ADD, ADD + MODEL + PREDICT, PREDICT])
async def test_what_cannot_be_read_is_answered_after_what_came_before(host: Host, bad: bytes, before: bytes) -> None:
    """An answer in the wrong place would be taken for that of a change that was made."""
    connection = await host.ask(before + bad)
    found = [status // 100 for status in connection.statuses]
    assert (found, connection.transport.closed) == ([2] * before.count(b"HTTP/1.1\r\n") + [4], True)


@both_ways
@pytest.mark.parametrize("before", [b"", MODEL, PREDICT, ADD])
async def test_a_body_that_breaks_off_is_answered_in_its_place(host: Host, before: bytes) -> None:
    for target in ("/predict", "/samples"):
        connection = host.connect()
        connection.send(before + request(target=target, headers=CHUNKED) + b"5\r\nabc")
        await host.settle(20)
        connection.send(b"de!\r\n")
        await host.settle()
        found = [status // 100 for status in connection.statuses]
        assert (found, connection.transport.closed) == ([2] * bool(before) + [4], True)


UPGRADE = b"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
BODY = ADD.partition(b"\r\n\r\n")[2]
IN_CHUNKS = request(target="/samples", headers=CHUNKED) + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@both_ways
@pytest.mark.parametrize("size", [1, 7, 200, 2000])
@pytest.mark.parametrize("asked", [ADD, IN_CHUNKS], ids=["length", "chunks"])
async def test_the_wish_for_another_protocol_is_passed_over(host: Host, asked: bytes, size: int) -> None:
    """The parser takes the body of such a request for the other protocol's, and what follows for requests."""
    sent = b"".join(one.replace(b"\r\n", UPGRADE, 1) for one in (MODEL, asked, PREDICT)) + PREDICT
    connection = host.connect()
    for start in range(0, len(sent), size):
        connection.send(sent[start : start + size])
    await host.settle()
    assert (connection.statuses, connection.transport.closed) == ([200, 201, 200, 200], False)
    assert host.service.model.state.version == 2


@both_ways
@pytest.mark.parametrize(("last", "status"), [
    (MODEL.replace(b"\r\n", b"\r\nConnection: close\r\n", 1), 200), (MODEL.replace(b"1.1", b"1.0"), 200),
    (MODEL.replace(b"1.1", b"1.0").replace(b"\r\n", UPGRADE, 1), 200),
    (ADD.replace(b"\r\n", UPGRADE + b"X: %b\r\n" % (b"x" * MOST_HEAD_BYTES), 1), 431),
    (MODEL.replace(b"GET ", b"CONNECT http://127.0.0.1"), 405), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
], ids=["close", "HTTP/1.0", "upgrade of HTTP/1.0", "too large", "tunnel", "preface of HTTP/2"])  # fmt: skip
async def test_after_the_last_request_of_a_connection_nothing_is_done(host: Host, last: bytes, status: int) -> None:
    connection = host.connect()
    for sent in (last + ADD, ADD):
        connection.send(sent)
    await host.settle()
    assert (connection.statuses, connection.transport.closed) == ([status], True)
    assert host.service.model.state.version == 1


# --- time


def age(connection: Any, seconds: float) -> None:
    """Have so much time pass for a connection."""
    protocol = connection.protocol
    protocol._began = (protocol._began or time.monotonic()) - seconds  # a look notes it
    protocol.idle_since -= seconds
    protocol._unread_since -= seconds
    protocol.look(time.monotonic(), seconds)


@both_ways
@pytest.mark.parametrize(("sent", "seconds"), [
    *((PREDICT[:n], 10) for n in (1, 20, len(PREDICT) - 32)),
    *((request(target=target, body=b"x" * 1000)[:-10], 60) for target in ("/predict", "/samples/search")),
])  # fmt: skip
async def test_a_head_and_a_body_have_a_time(host: Host, sent: bytes, seconds: int) -> None:
    connection = await host.ask(PREDICT)
    connection.send(sent)
    while seconds == 60 and not host.state.tasks:  # noqa: ASYNC110 - the head is read in the next steps of the loop
        await asyncio.sleep(0)
    age(connection, seconds - 1)
    assert not connection.transport.closed
    age(connection, 2)
    await host.settle()
    assert (connection.statuses, connection.transport.closed) == ([200, 408], True)


@both_ways
async def test_a_long_body_that_goes_on_has_more_time(host: Host) -> None:
    size = 400 * LEAST_BODY_RATE
    connection = host.connect()
    connection.send(request(headers=(*CHUNKED[:2], ("Content-Length", str(size)))))
    for _ in range(400):  # seconds
        connection.send(b" " * LEAST_BODY_RATE)
        await host.settle(10)
        age(connection, 1)
    await host.settle()
    assert connection.statuses == [400], "it was read, and is no JSON"


@both_ways
async def test_time_in_which_the_server_does_not_read_is_not_the_clients(host: Host) -> None:
    connection, sent = host.connect(), request(target="/samples", body=b"x" * 200_000)
    connection.send(sent[:100_000])
    assert connection.protocol.flow.read_paused
    age(connection, 500)
    assert not connection.transport.closed
    connection.protocol.flow.resume_reading()
    connection.send(sent[100_000:])
    await host.settle()
    assert connection.statuses == [400]


@both_ways
async def test_a_client_that_never_reads_is_left(host: Host) -> None:
    connection = await host.ask(PREDICT)
    connection.transport.unread = 1000
    age(connection, 0)
    connection.transport.unread = 900  # it reads slowly
    age(connection, 70)
    age(connection, 50)
    assert not connection.transport.closed
    age(connection, 11)
    assert connection.transport.closed


@both_ways
@pytest.mark.parametrize("durable", [True])
async def test_a_slow_head_behind_a_request_is_answered_after_it(host: Host) -> None:
    connection = host.connect()
    async with host.service.model.lock.mutation():
        connection.send(ADD + b"GET /mo")
        age(connection, 11)
        await host.settle(20)
        assert connection.transport.written == b""
    await host.settle()
    assert (connection.statuses, connection.transport.closed) == ([201, 408], True)


# --- numbers


@both_ways
@pytest.mark.parametrize("options", [{"limits": ConnectionLimits(most=n, most_of_address=12 - n)} for n in (3, 9)])
async def test_a_new_connection_takes_the_place_of_an_idle_one(host: Host) -> None:
    first, second, third = (host.connect() for _ in range(3))
    first.send(PREDICT)
    second.send(PREDICT[:20])
    await host.settle()
    for connection in (first, second, third, third):
        connection.protocol.idle_since -= 10
    newer = host.connect()
    assert [one.transport.closed for one in (first, second, third, newer)] == [False, False, True, False]
    host.connect()
    assert first.transport.closed
    refused = host.connect()
    assert (refused.statuses, refused.transport.closed) == ([503], True)
    assert b"retry-after: 1" in refused.answers[0].headers
    second.send(PREDICT[20:])
    await host.settle()
    assert second.statuses == [200]


@with_limits(most=2, most_of_address=2)
async def test_a_connection_that_ends_leaves_its_place(host: Host) -> None:
    for _ in range(10):
        connection = await host.ask(PREDICT)
        assert connection.statuses == [200]
        connection.protocol.connection_lost(None)
    for one in [host.connect() for _ in range(4)][2:]:
        assert one.statuses == [503]
        one.protocol.connection_lost(None)  # it had none to leave
    assert host.connect().statuses == [503]


@with_limits(most=8, most_of_address=2, trusted=parse_networks(["10.0.0.0/24", "fd00::1"]))
async def test_one_address_does_not_get_all_connections(host: Host) -> None:
    def admitted(address: str) -> bool:
        return not host.connect((address, 1)).transport.closed

    assert [admitted("192.0.2.1") for _ in range(3)] == [True, True, False]
    assert admitted("192.0.2.2")
    assert [admitted(f"2001:db8::{i}") for i in range(3)] == [True, True, False]
    assert [admitted("10.0.0.7") for _ in range(3)] == [True, True, True]
    assert not admitted("fd00::1"), "there are no more in all"


async def test_a_connection_that_is_made_while_the_server_stops_is_refused_and_closed(host: Host) -> None:
    """Its handshake has taken until then; no one else would close it, and the server would wait for it."""
    early = host.connect()
    host.config.http_protocol_class.is_stopping = True  # type: ignore[attr-defined]
    late = host.connect()
    for connection in (late, early):
        connection.send(MODEL)
    await host.settle()
    assert (late.statuses, late.transport.closed, early.statuses) == ([503], True, [200])
    assert b"The server is stopping." in late.answers[0].body
