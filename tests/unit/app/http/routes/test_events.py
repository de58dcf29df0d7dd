"""The streams of events over HTTP: what they tell, and that nothing of a sample is in them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import oubli.app.http.metrics_events
from oubli.app.http.metrics_events import quantile_ms
from oubli.app.http.schemas.inspection import MetricsEvent, StateEvent
from oubli.app.service.checkpoint import CheckpointPolicy
from oubli.app.service.durations import BOUNDS, Histogram
from tests.unit.app.hosted import Hosted, hosted
from tests.unit.app.support import make_service, rows, samples

SECTIONS = {"model", "changes", "expiry", "erasures", "snapshot", "check", "scrub", "ledger", "jobs", "work"}


class Stream:
    """Reads server-sent events off a socket."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.text = b""
        self.raw = b""
        while b"\r\n\r\n" not in self.text:
            self._read()
        self.head, _, self.text = self.text.partition(b"\r\n\r\n")

    def _read(self) -> bool:
        piece = self.client.recv(2**16)
        self.raw += piece
        self.text += piece
        return bool(piece)

    def next(self) -> tuple[str, str | None, Any]:
        """Name, id and data of the next event."""
        while True:
            block, end, rest = self.text.partition(b"\n\n")
            if not end:
                assert self._read(), "the stream has ended"
                continue
            self.text = rest
            # Chunks are framed by lines of their own.
            lines = [line.strip(b"\r") for line in block.splitlines()]
            fields = dict(line.split(b": ", 1) for line in lines if b": " in line)
            if b"event" in fields:
                name = fields.get(b"id")
                return fields[b"event"].decode(), name and name.decode(), json.loads(fields[b"data"])

    def until(self, name: str, fits: Any = lambda data: True) -> Any:
        while True:
            found, _, data = self.next()
            if found == name and fits(data):
                return data


@contextmanager
def listening(host: Hosted, path: str, **headers: str) -> Iterator[Stream]:
    client = host.connect()
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept-Encoding: gzip, zstd\r\n{lines}\r\n".encode())
    try:
        yield Stream(client)
    finally:
        client.close()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Hosted]:
    policy = CheckpointPolicy(erasure_deadline=600.0)
    with hosted(make_service(directory=tmp_path / "d", idle_resolve=True, policy=policy)) as found:
        yield found


def test_the_state_is_told_whole_and_then_as_it_changes(host: Hosted) -> None:
    with listening(host, "/events") as stream:
        assert b"content-type: text/event-stream" in stream.head
        assert b"content-encoding" not in stream.head
        name, first_id, hello = stream.next()
        assert name == "hello"
        StateEvent.model_validate_json(json.dumps(hello))
        assert hello.keys() >= SECTIONS
        assert (hello["model"]["n_samples"], hello["resumed"]) == (60, False)
        assert host.ask("POST", "/samples", samples(3))[0] == 201
        changed = stream.until("model", lambda data: data["n_samples"] == 63)
        assert changed["model_version"] == hello["model"]["model_version"] + 1
        status, receipt = host.ask("DELETE", "/samples/n1")
        assert status == 200
        pending = stream.until("erasures", lambda data: data["pending"] == 1)
        assert pending["next_deadline_at"] is not None
        job = host.ask("POST", "/model/scrub")[1]
        stream.until("jobs", lambda data: data[-1]["status"] == "succeeded" and data[-1]["id"] == job["id"])
        with listening(host, "/events", **{"Last-Event-ID": str(first_id)}) as later:
            now = later.next()[2]
        assert (now["resumed"], now["erasures"]["pending"], now["erasures"]["erased"]) == (False, 0, 1)
        assert now["scrub"] is not None
        assert now["snapshot"]["model_version"] == now["model"]["model_version"]
        for word in (b"n1", b"s1", receipt["id"].encode(), b"abc"):
            assert word not in stream.raw


def test_who_comes_back_is_told_whether_anything_was_missed(host: Hosted) -> None:
    with listening(host, "/events") as stream:
        last = stream.next()[1]
    with listening(host, "/events", **{"Last-Event-ID": str(last)}) as again:
        assert again.next()[2]["resumed"] is True
    host.ask("POST", "/samples", samples(1))
    with listening(host, "/events", **{"Last-Event-ID": str(last)}) as again:
        assert again.next()[2]["resumed"] is False
    with listening(host, "/events", **{"Last-Event-ID": "SEKRET"}) as again:
        assert again.next()[2]["resumed"] is False
        assert b"SEKRET" not in again.raw


def test_streams_keep_no_idle_work_back_and_end_with_the_server(host: Hosted) -> None:
    with listening(host, "/events") as state, listening(host, "/metrics/events") as metrics:
        state.next()
        metrics.next()
        host.ask("POST", "/samples", samples(20))
        state.until("model", lambda data: data["n_samples"] == 80 and data["lazy_tags"] == 0)
        host.service.drain()
        state.until("bye")
        metrics.until("bye")


def test_snapshots_and_restores_are_shown_while_they_go_on(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, storage = threading.Event(), host.service.storage
    for name in ("write", "write_instead"):
        work = getattr(storage, name)

        def held(*arguments: Any, work: Any = work, **options: Any) -> Any:
            assert gate.wait(60)
            return work(*arguments, **options)

        monkeypatch.setattr(type(storage), name, lambda self, *a, held=held, **o: held(*a, **o))
    newest = host.service.newest_snapshot
    assert newest is not None
    file = newest.path.read_bytes()
    with listening(host, "/events") as stream:
        assert stream.next()[2]["work"] == []
        for method, path, body, kind in (
            ("POST", "/snapshot", None, "snapshot"),
            ("PUT", "/snapshot/file", file, "restore"),
        ):
            gate.clear()
            asked = threading.Thread(target=host.ask_bytes, args=(method, path, body))
            asked.start()
            shown = stream.until("work", lambda work: work and work[0]["progress"] >= 0.4)
            assert [one["kind"] for one in shown] == [kind]
            gate.set()
            asked.join()
            stream.until("work", lambda work: work == [])


def test_metrics_come_with_rates(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oubli.app.http.metrics_events, "_SECOND", 0.3)
    with listening(host, "/metrics/events") as stream, listening(host, "/metrics/events") as other:
        name, event_id, line = stream.next()
        assert (name, event_id) == ("metrics", None)
        MetricsEvent.model_validate_json(json.dumps(line))
        assert line["predict"] == {"per_second": None, "p50_ms": None, "p99_ms": None}
        for _ in range(5):
            assert host.ask("POST", "/predict", {"instances": rows(1)})[0] == 200
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
        times = [line["at"], *(one["at"] for one in seen)]
        assert other.next()[2]["at"] in times


def test_quantiles_are_read_off_buckets() -> None:
    histogram = Histogram()
    assert quantile_ms(histogram.counts, 0.5) is None
    for _ in range(99):
        histogram.observe(60e-6)
    histogram.observe(100.0)
    assert quantile_ms(histogram.counts, 0.5) == pytest.approx(1000 * (50e-6 + 50e-6 * 50 / 99), abs=1e-3)
    assert quantile_ms(histogram.counts, 0.999) == 1000 * BOUNDS[-1]


@pytest.mark.parametrize("path", ["/events", "/metrics/events"])
def test_a_head_ends_at_once(host: Hosted, path: str) -> None:
    assert host.ask_bytes("HEAD", path) == (200, b"")
    assert host.ask("POST", path, {})[0] == 405
