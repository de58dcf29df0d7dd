"""Feeds: one look for all who listen, none for no one; who does not read is dropped, streams end with the server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

import oubli.app.http.monitoring.events
from oubli.app.http.monitoring.events import BYE, COMMENT, MOST_WAITING, Feed, encode_event

pytestmark = pytest.mark.anyio


class Numbers:
    """Tells a number at each look, or what it is given."""

    def __init__(self) -> None:
        self.n_looks = 0
        self.error: Exception | None = None
        self.is_quiet = False

    def look(self) -> bytes:
        if self.error is not None:
            raise self.error
        self.n_looks += 1
        return b"" if self.is_quiet else b"%d;" % self.n_looks

    def hello(self, last_id: str | None) -> bytes:
        return f"hello {last_id};".encode()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oubli.app.http.monitoring.events, "TICK", 0.001)


async def test_all_who_listen_get_the_same_bytes_of_one_look() -> None:
    source = Numbers()
    feed = Feed(source, lambda: False)
    async with aclosing(feed.listen("7")) as one, aclosing(feed.listen()) as other:
        assert await anext(one) == b"hello 7;"
        assert await anext(other) == b"hello None;"
        first = await anext(one)
        assert first.startswith(b"2;")  # the look when the other one came
        while not first.endswith(b"9;"):
            first += await anext(one)
        second = await anext(other)
        assert second.startswith(b"3;")
        assert feed.n_listeners == 2
        assert second[:6] in first
        n_looks = source.n_looks
        assert n_looks < 30


async def test_nothing_is_looked_at_when_nobody_listens() -> None:
    source = Numbers()
    feed = Feed(source, lambda: False)
    async with aclosing(feed.listen()) as stream:
        await anext(stream)
        await anext(stream)
        assert feed.is_running
    while feed.is_running:  # noqa: ASYNC110 - asked as anyone would
        await asyncio.sleep(0.001)
    seen = source.n_looks
    await asyncio.sleep(0.02)
    assert source.n_looks == seen
    assert feed.n_listeners == 0
    async with aclosing(feed.listen()) as stream:  # and it begins again
        assert await anext(stream) == b"hello None;"
        assert await anext(stream)


async def test_who_does_not_read_is_dropped_and_holds_little() -> None:
    feed = Feed(Numbers(), lambda: False)
    async with aclosing(feed.listen()) as slow, aclosing(feed.listen()) as fast:
        await anext(slow)
        await anext(fast)
        told = b""
        for _ in range(3 * MOST_WAITING):
            told += await anext(fast)
            assert all(len(one.waiting) <= MOST_WAITING for one in feed._listeners)
        with pytest.raises(ConnectionAbortedError):
            await anext(slow)
        assert feed.n_listeners == 1
        assert told.count(b";") >= 3 * MOST_WAITING


class Client:
    """Takes chunks in, or does not."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.is_paused = False

    def push(self, chunk: bytes) -> bool:
        if self.is_paused:
            return False
        size, _, rest = chunk.partition(b"\r\n")
        assert len(rest) == int(size, 16) + 2
        assert rest.endswith(b"\r\n")
        self.read.append(rest[:-2])
        return True


async def test_chunks_are_pushed_once_the_answer_has_begun_and_wait_while_they_cannot_be() -> None:
    client, source, is_ending = Client(), Numbers(), False
    feed = Feed(source, lambda: is_ending)
    yielded: list[bytes] = []

    async def send() -> None:
        async with aclosing(feed.listen(push=client.push)) as stream:
            async for piece in stream:
                yielded.append(piece)  # noqa: PERF401 - as they come

    sending = asyncio.create_task(send())
    while len(client.read) < 5:  # noqa: ASYNC110 - asked as anyone would
        await asyncio.sleep(0.001)
    n_yielded, client.is_paused = len(yielded), True
    while len(yielded) == n_yielded:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    n_read, client.is_paused = len(client.read), False
    while len(client.read) < n_read + 5:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    is_ending = True
    await sending
    assert yielded[0] == b"hello None;"
    assert client.read[-1] == BYE
    told = b"".join([*yielded[1:], *client.read[:-1]])
    assert sorted(int(number) for number in told.split(b";") if number) == list(range(2, source.n_looks + 1))
    pushed = [int(number) for number in b"".join(client.read[:-1]).split(b";") if number]
    assert pushed == sorted(pushed)


async def test_streams_end_with_a_word_when_the_server_stops() -> None:
    is_ending = False
    feed = Feed(Numbers(), lambda: is_ending)
    told = []
    async with aclosing(feed.listen()) as stream:
        async for piece in stream:
            told.append(piece)
            is_ending = True
    assert b"".join(told).endswith(BYE)
    async with aclosing(feed.listen()) as late:
        assert b"".join([piece async for piece in late]) == b"hello None;" + BYE


async def test_silence_is_broken_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oubli.app.http.monitoring.events, "HEARTBEAT", 0.01)
    source = Numbers()
    source.is_quiet = True
    async with aclosing(Feed(source, lambda: False).listen()) as stream:
        await anext(stream)
        assert await anext(stream) == COMMENT
        assert await anext(stream) == COMMENT


async def test_a_source_that_fails_ends_its_streams_and_can_be_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    source = Numbers()
    feed = Feed(source, lambda: False)
    async with aclosing(feed.listen()) as stream:
        await anext(stream)
        source.error = RuntimeError("SEKRET")
        rest = b"".join([piece async for piece in stream])
    assert rest.endswith(BYE)
    source.error = None
    async with aclosing(feed.listen()) as again:
        await anext(again)
        assert await anext(again)
    assert "has failed" in caplog.text
    assert "SEKRET" not in caplog.text


def test_an_event_is_encoded_as_the_standard_says() -> None:
    assert encode_event("name", {"a": "x\ny"}, "s.1") == b'event: name\nid: s.1\ndata: {"a":"x\\ny"}\n\n'
    assert encode_event("name", {}) == b"event: name\ndata: {}\n\n"
