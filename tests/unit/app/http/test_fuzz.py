"""Thousands of right and wrong requests: both ways in answer alike, nothing hangs, no error repeats a value."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import oubli.app.service.model.influence
from oubli.app.access.keys import FILE_NAME, create_key, now_ms, revoke_key
from oubli.app.access.scopes import SCOPES
from oubli.app.http.connection.protocol import BODY
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from tests.unit.app.http.connections import Answered, Connection, Host, hosting
from tests.unit.app.http.http_cases import SECRETS, Cases
from tests.unit.app.support import make_service

# Times and chance.
_OWN = re.compile(
    rb'"(bytes|ledger_index|lazy_tags|memory_bytes)":\d+'
    rb'|"(created_at|erased_at|next|nonce|positions_key|way)":"[^"]*"'
    rb'|"(set_root|positions_key_hash|previous|at|hash|digest_hash)":"[^"]*"|"(state|proof)":"c2sp[^"]*"'
)
N_ORDINARY = 1500
N_SLOW = int(os.environ.get("OUBLI_TEST_HTTP_CASES", "20000"))


@dataclass
class Seen:
    """What one server did with the requests of a connection."""

    answers: list[Any]
    closed: bool
    version: int
    n_samples: int


def waits_for_body(connection: Connection) -> bool:
    protocol = connection.protocol
    is_its_turn = protocol._reading == BODY and not protocol.cycle.response_complete
    # Or it works in a thread, and answers without the body.
    return bool(is_its_turn and protocol.cycle.message_event._waiters)


async def settle(host: Host, connection: Connection) -> None:
    """Wait until all is done but what waits for bytes."""
    until = time.monotonic() + 60
    while True:
        for _ in range(8):
            await asyncio.sleep(0)
        n_waiting = int(waits_for_body(connection))
        if len(host.state.tasks) <= n_waiting and (n_waiting or not connection.is_awaiting):
            return
        assert time.monotonic() < until, "a request is not answered"
        await asyncio.sleep(0.0005)


async def play(host: Host, pieces: list[bytes]) -> Seen:
    connection = host.connect()
    for piece in pieces:
        connection.send(piece)
        await settle(host, connection)
    protocol = connection.protocol
    for _ in range(2):  # what has not come to its end by now never does
        protocol.look(time.monotonic(), 1.0)  # notes what is being read
        protocol._began -= 10_000
        protocol.look(time.monotonic(), 1.0)
        await settle(host, connection)
    assert connection.transport.closed or protocol.is_idle
    if not connection.transport.closed:
        protocol.idle_since -= 10_000
        protocol.look(time.monotonic(), 1.0)
        assert connection.transport.closed
        closed = False
    else:
        closed = True
    protocol.connection_lost(None)
    host.forget(connection)
    service = host.service
    return Seen(
        [*map(plain, connection.answers)], closed, service.model.state.version, service.model.state.model.n_samples_
    )


def plain(answer: Answered) -> Answered:
    """An answer without what differs between two servers that wrote the same snapshots."""
    if b"content-type: application/octet-stream" in answer.headers:
        return replace(answer, headers=(), body=b"")
    body = _OWN.sub(b"", answer.body)
    headers = tuple(header for header in answer.headers if not header.startswith(b"next-cursor"))
    return replace(answer, headers=headers if body == answer.body else (), body=body)


def make_keys(directory: Path) -> list[str]:
    """Keys of all scopes, and such as open nothing."""
    directory.mkdir(exist_ok=True)
    path = directory / FILE_NAME
    keys = [create_key(path, name="n", scopes=[scope], expires_ms=None)[1] for scope in SCOPES]
    keys += [create_key(path, name="n", scopes=["admin"], expires_ms=None)[1] for _ in range(3)] * 4
    expired = create_key(path, name="n", scopes=["admin"], expires_ms=now_ms() - 1)[1]
    revoked = create_key(path, name="n", scopes=["admin"], expires_ms=None)[1]
    revoke_key(path, revoked.split("_")[1])
    return [*keys, expired, revoked, keys[0][:-1] + "0", "SEKRET", ""]


async def compare(seed: int, n_cases: int, folder: Path, *, with_keys: bool, durable: bool) -> None:
    """Send the same to two servers that differ in the short way in only."""
    async with AsyncExitStack() as stack:
        hosts = []
        keys = [""]
        if with_keys:
            keys = make_keys(folder / "keys")
        for hot in (True, False):
            directory = folder / f"{hot}-{seed}" if durable else None
            policy = CheckpointPolicy(erasure_deadline=86_400)  # snapshots are written when they are asked for
            service = make_service(directory=directory, policy=policy)
            limits = {"max_body_bytes": 16_384, "max_snapshot_bytes": 16_384, "max_rows": 12}
            if with_keys:
                limits["data_dir"] = folder / "keys"  # where the keys are looked for
            hosts.append(await stack.enter_async_context(hosting(service, hot=hot, **limits)))
        cases = Cases(seed, keys)
        sent = 0
        while sent < n_cases:
            n, pieces = cases.connection()
            sent += n
            short, ordinary = [await play(host, pieces) for host in hosts]
            for one, other in zip(short.answers, ordinary.answers, strict=False):
                assert one == other, (seed, sent, pieces)
            assert short == ordinary, (seed, sent, pieces)
            for answer in short.answers:
                status = int(answer.status[9:12])
                assert status != 500, (seed, sent, pieces)
                if status >= 400:
                    everything = b"".join((answer.status, *answer.headers, answer.body))
                    assert not any(secret in everything for secret in SECRETS), (seed, sent, pieces)
                    is_problem = b"content-type: application/problem+json" in answer.headers
                    assert is_problem or list(json.loads(answer.body or "{}")) in (["error"], []), (seed, sent, pieces)
        held = [
            [
                host.service.model.state.model.samples_.get(name)
                for name in host.service.model.state.model.samples_.ids()
            ]
            for host in hosts
        ]
        assert held[0] == held[1]


def fuzz(seeds: range, n_cases: int, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for seed in seeds:
            asyncio.run(compare(seed, n_cases // len(seeds), folder, with_keys=seed % 2 == 0, durable=seed % 4 == 3))
    assert "request failed" not in caplog.text
    assert not any(secret.decode() in caplog.text for secret in SECRETS)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a question becomes a job depends on how fast the machine is."""
    monkeypatch.setattr(oubli.app.service.model.influence, "_LONG", 120.0)


def test_a_share_of_the_cases(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fuzz(range(4), N_ORDINARY, tmp_path, caplog)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_cases(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fuzz(range(100, 120), N_SLOW, tmp_path, caplog)
