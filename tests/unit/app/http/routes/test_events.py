"""The streams of events over HTTP, and the feeds behind them; nothing of a sample is in them."""

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import oubli.app.http.monitoring.events
from oubli.api.server import MetricsEvent, StateEvent
from oubli.app.access.keys import FILE_NAME, create_key, now_ms, revoke_key
from oubli.app.http.monitoring.events import BYE, COMMENT, MOST_WAITING, Feed, encode_event, quantile_ms
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.times import BOUNDS, Histogram
from tests.tiers import covering
from tests.unit.app.hosted import Hosted, hosted
from tests.unit.app.http.connections import hosting, request
from tests.unit.app.service.support import Gate, until
from tests.unit.app.support import make_service, pick, require_conforms, rows, samples

SECTIONS = {"model", "changes", "expiry", "erasures", "snapshot", "check", "scrub", "ledger", "jobs", "work"}


class Stream:
    """Reads server-sent events."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer
        self.raw = b""

    def next(self) -> tuple[str, str | None, Any]:
        """Name, id and data of the next event."""
        fields: dict[str, str] = {}
        while True:
            line = self.answer.readline()
            assert line, "the stream has ended"
            self.raw += line
            name, _, value = line.decode().strip().partition(": ")
            if value:
                fields[name] = value
            elif "event" in fields:
                return fields["event"], fields.get("id"), json.loads(fields["data"])

    def until(self, name: str, fits: Any = lambda data: True) -> Any:
        while True:
            found, _, data = self.next()
            if found == name and fits(data):
                return data


@contextmanager
def listening(host: Hosted, path: str, **headers: str) -> Iterator[Stream]:
    with closing(http.client.HTTPConnection("127.0.0.1", host.port, timeout=240)) as connection:
        connection.request("GET", path, headers={"Accept-Encoding": "gzip, zstd", **headers})
        yield Stream(connection.getresponse())


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Hosted]:
    policy = CheckpointPolicy(erasure_deadline=600.0)
    with hosted(make_service(directory=tmp_path / "d", idle_resolve=True, policy=policy)) as found:
        yield found


def test_the_state_is_told_whole_and_then_as_it_changes(host: Hosted) -> None:
    with listening(host, "/events") as stream:
        assert stream.answer.headers["content-type"].startswith("text/event-stream")
        assert stream.answer.headers["content-encoding"] is None
        name, first_id, hello = stream.next()
        require_conforms(StateEvent, json.dumps(hello))
        assert hello.keys() >= SECTIONS
        assert (name, hello["model"]["n_samples"], hello["resumed"]) == ("hello", 60, False)
        assert host.ask("POST", "/samples", samples(3))[0] == 201
        changed = stream.until("model", lambda data: data["n_samples"] == 63)
        assert changed["model_version"] == hello["model"]["model_version"] + 1
        status, receipt = host.ask("DELETE", "/samples/n1")
        assert status == 200
        assert stream.until("erasures", lambda data: data["pending"] == 1)["next_deadline_at"] is not None
        job = host.ask("POST", "/model/scrub")[1]
        stream.until("jobs", lambda data: data[-1]["status"] == "succeeded" and data[-1]["id"] == job["id"])
        with listening(host, "/events", **{"Last-Event-ID": str(first_id)}) as later:
            now = later.next()[2]
        assert (now["resumed"], *pick(now["erasures"], "pending erased")) == (False, 0, 1)
        assert now["scrub"] is not None
        assert now["snapshot"]["model_version"] == now["model"]["model_version"]
        assert host.ask("POST", "/model/verify")[0] == 202
        check = stream.until("check", lambda data: data is not None)
        assert pick(check, "model_version ok") == (host.ask("GET", "/model")[1]["model_version"], True)
        assert not [word for word in (b"n1", b"s1", receipt["id"].encode()) if word in stream.raw]


def test_erasures_that_were_finished_late_are_counted(tmp_path: Path) -> None:
    policy = CheckpointPolicy(erasure_deadline=0.001)
    service = make_service(directory=tmp_path / "d", idle_resolve=True, policy=policy)
    with hosted(service) as host, listening(host, "/events") as stream:
        for name in ("n1", "n2"):
            assert host.ask("DELETE", f"/samples/{name}")[0] == 200
        host.ask("POST", "/model/scrub")
        assert stream.until("erasures", lambda data: data["erased"] == 2)["erased_late"] == 2


def test_who_comes_back_is_told_whether_anything_was_missed(host: Hosted) -> None:
    with listening(host, "/events") as stream:
        last = str(stream.next()[1])
    for last_id, is_resumed in ((last, True), ("SEKRET", False), (last, False)):
        with listening(host, "/events", **{"Last-Event-ID": last_id}) as again:
            assert again.next()[2]["resumed"] is is_resumed
            assert b"SEKRET" not in again.raw
        host.ask("POST", "/samples", samples(1))


def test_streams_keep_no_idle_work_back_and_end_with_the_server(host: Hosted) -> None:
    with listening(host, "/events") as state, listening(host, "/events?topic=metrics") as metrics:
        state.next()
        metrics.next()
        host.ask("POST", "/samples", samples(20))
        state.until("model", lambda data: pick(data, "n_samples lazy_tags") == (80, 0))
        host.service.lifecycle.drain()
        for stream in (state, metrics):
            stream.until("bye")


def test_snapshots_and_restores_are_shown_while_they_go_on(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = type(host.service.disk.storage)
    for name in ("write", "write_instead"):  # given back at the end
        monkeypatch.setattr(storage, name, getattr(storage, name))
    newest = host.service.disk.newest_snapshot
    put = ("PUT", "/snapshot/file", newest.path.read_bytes())
    with listening(host, "/events") as stream:
        assert stream.next()[2]["work"] == []
        for kind, sent in (("snapshot", ("POST", "/snapshot")), ("restore", put)):
            gates = [Gate(storage, name) for name in ("write", "write_instead")]
            asked = threading.Thread(target=host.ask_bytes, args=sent)
            asked.start()
            shown = stream.until("work", lambda work: work and work[0]["progress"] >= 0.4)
            assert [one["kind"] for one in shown] == [kind]
            for gate in gates:
                gate.opened.set()
            asked.join()
            stream.until("work", lambda work: work == [])


def test_metrics_come_with_rates(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oubli.app.http.monitoring.events, "_SECOND", 0.3)
    with listening(host, "/events?topic=metrics") as stream, listening(host, "/events?topic=metrics") as other:
        *head, line = stream.next()
        assert head == ["metrics", None]
        require_conforms(MetricsEvent, json.dumps(line))
        assert line["predict"] == {"per_second": None, "p50_ms": None, "p99_ms": None}
        assert {host.ask("POST", "/predict", {"instances": rows(1)})[0] for _ in range(5)} == {200}
        host.ask("DELETE", "/samples/c1")
        host.ask("POST", "/predict", {"instances": []})  # refused: not counted
        seen = []
        while sum(one["delete"]["per_second"] for one in seen) == 0:
            seen.append(stream.until("metrics"))
        asked = [one["predict"] for one in seen if one["predict"]["per_second"]]
        assert asked
        assert all(0 < one["p50_ms"] <= one["p99_ms"] for one in asked)
        assert seen[-1]["erasures"]["pending"] == 1
        assert seen[-1]["memory"]["model_bytes"] > 0
        assert other.next()[2]["at"] in [one["at"] for one in (line, *seen)]


def test_quantiles_are_read_off_buckets() -> None:
    edges, histogram = Histogram(), Histogram()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1], 2 * BOUNDS[-1]):
        edges.observe(seconds)
    assert edges.counts == [2, 1, *[0] * (len(BOUNDS) - 3), 1, 1]
    assert quantile_ms(histogram.counts, 0.5) is None
    for _ in range(99):
        histogram.observe(60e-6)
    histogram.observe(100.0)
    assert quantile_ms(histogram.counts, 0.5) == pytest.approx(1000 * (50e-6 + 50e-6 * 50 / 99), abs=1e-3)
    assert quantile_ms(histogram.counts, 0.999) == 1000 * BOUNDS[-1]


STREAMS = ("/events", "/events?topic=metrics", "job")


@pytest.mark.parametrize(("path", "how"), covering(STREAMS, ("revoked", "expired", "replaced")))
async def test_a_stream_ends_with_its_key_and_another_goes_on(tmp_path, monkeypatch, path, how):
    monkeypatch.setattr("oubli.app.http.middleware._LOOK", 0.001)
    keys, owner, now = tmp_path / FILE_NAME, tmp_path / "key", now_ms() + 60_000
    owner.write_text("0123456789abcdef-key")
    key, text = create_key(keys, name="n", scopes=["admin"], expires_ms=now + 1 if how == "expired" else None)
    _, other = create_key(keys, name="other", scopes=["admin"], expires_ms=None)
    text, is_over = owner.read_text() if how == "replaced" else text, asyncio.Event()
    async with hosting(make_service(), data_dir=tmp_path, api_key_file=owner) as host:
        rules, seconds = host.app.state.rules, time.monotonic()
        rules.access_keys._now_ms, rules.access_keys.monotonic = lambda: now, lambda: seconds
        if path == "job":
            path = f"/jobs/{host.service.jobs.board.start('verify', lambda report: is_over.wait()).id}/events"
        ending, lasting = host.connect(), host.connect()
        for connection, given in ((ending, text), (lasting, other)):
            connection.send(request("GET", path, headers=(("Host", "127.0.0.1"), ("X-API-Key", given))))
            await until(lambda connection=connection: b"\r\n\r\n" in connection.transport.written)
        if how == "revoked":
            revoke_key(keys, key.id)
        elif how == "replaced":
            rules.set_api_key("another-key-0123456789")
        now, seconds = now + 1, seconds + 1
        await until(lambda: ending.transport.closed)
        assert ending.transport.written.startswith(b"HTTP/1.1 200")
        assert not lasting.transport.closed
        is_over.set()
        host.service.lifecycle.drain()


pytestmark = pytest.mark.anyio


class Numbers:
    """Tells a number at each look, or what it is given."""

    n_looks, is_quiet = 0, False
    error: Exception | None = None

    def look(self) -> bytes:
        if self.error is not None:
            raise self.error
        self.n_looks += 1
        return b"" if self.is_quiet else b"%d;" % self.n_looks

    def hello(self, last_id: str | None) -> bytes:
        return f"hello {last_id};".encode()


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams look often, so that tests wait for little."""
    monkeypatch.setattr(oubli.app.http.monitoring.events, "TICK", 0.005)


async def test_all_listeners_get_the_same_bytes_of_one_look_and_without_listeners_there_is_none() -> None:
    source = Numbers()
    feed = Feed(source, lambda: False)
    async with aclosing(feed.listen("7")) as one, aclosing(feed.listen()) as other:
        assert [await anext(one), await anext(other)] == [b"hello 7;", b"hello None;"]
        first = await anext(one)
        assert first.startswith(b"2;")  # the look when the other one came
        while not first.endswith(b"9;"):
            first += await anext(one)
        second = await anext(other)
        assert second.startswith(b"3;")
        assert second[:6] in first
        assert (feed.n_listeners, feed.is_running) == (2, True)
        assert source.n_looks < 30
    await until(lambda: not feed.is_running)
    seen = source.n_looks
    await asyncio.sleep(0.02)
    assert (source.n_looks, feed.n_listeners) == (seen, 0)
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

    is_paused = False

    def __init__(self) -> None:
        self.read: list[bytes] = []

    def push(self, chunk: bytes) -> bool:
        if self.is_paused:
            return False
        size, _, rest = chunk.partition(b"\r\n")
        assert (len(rest), rest[-2:]) == (int(size, 16) + 2, b"\r\n")
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
    await until(lambda: len(client.read) >= 5)
    n_yielded, client.is_paused = len(yielded), True
    await until(lambda: len(yielded) > n_yielded)
    n_read, client.is_paused = len(client.read), False
    await until(lambda: len(client.read) >= n_read + 5)
    is_ending = True
    await sending
    assert yielded[0] == b"hello None;"
    assert client.read[-1] == BYE
    told = b"".join([*yielded[1:], *client.read[:-1]])
    assert sorted(int(number) for number in told.split(b";") if number) == list(range(2, source.n_looks + 1))
    pushed = [int(number) for number in b"".join(client.read[:-1]).split(b";") if number]
    assert pushed == sorted(pushed)


async def test_silence_is_broken_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oubli.app.http.monitoring.events, "HEARTBEAT", 0.01)
    source = Numbers()
    source.is_quiet = True
    async with aclosing(Feed(source, lambda: False).listen()) as stream:
        await anext(stream)
        assert [await anext(stream), await anext(stream)] == [COMMENT] * 2


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
