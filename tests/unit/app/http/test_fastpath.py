"""The short way in and the ordinary one answer every request alike, and leave the same model behind.

Two servers that differ in nothing but uvicorn's protocol get the same bytes, in the same pieces: chosen ones, and
thousands of right and wrong ones. Nothing hangs, and no error repeats a value.
"""

import asyncio
import json
import logging
import os
import random
import re
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from oubli.app.access.keys import FILE_NAME, now_ms, revoke_key
from oubli.app.access.scopes import SCOPES
from oubli.app.errors import StopReason
from oubli.app.http.connection.protocol import BODY
from oubli.app.service.erasure.checkpoint import CheckpointPolicy
from oubli.app.service.service import Service
from tests.unit.app.http.connections import KEY, Answered, Connection, Host, hosting, make_key, request
from tests.unit.app.http.http_cases import SECRETS, Cases
from tests.unit.app.support import NUMBERS, TENSORS, forest, make_service

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("patient")]

Sent = list[list[bytes]]  # pieces that come without a wait, and are waited for together
MODELS = {"classes": forest(), "numbers": forest(schema=NUMBERS), "empty": forest(0)}


@dataclass(frozen=True)
class Seen:
    """What can be told of a server after some requests."""

    answers: list[Answered]
    closed: bool
    samples: list[Any]
    next_id: int
    version: int
    n_hot: int = 0


async def enter(state: str, service: Service, stack: AsyncExitStack) -> None:
    """Put a service into a state until the stack is closed."""
    if state == "stopping":
        service.lifecycle.drain()
    elif state == "failed":
        service.model.state.halt(StopReason.DISK_FAILED)
        stack.callback(setattr, service.model.state, "halted", None)
    elif state == "busy":
        await stack.enter_async_context(service.model.lock.mutation())
    elif state == "read":
        stack.enter_context(service.model.lock.reading())


async def both_ways_of(model: Any, sent: Sent, state: str = "ready", max_queue: int = 0, **more: Any) -> Seen:
    """See that both ways answer alike, byte for byte, and return what the short one has done."""
    found = []
    for hot in (True, False):
        service = make_service(model.copy(), max_queue=max_queue)
        service.model.state.epoch = 1  # else drawn; cursors tell it
        limits = {"max_body_bytes": 3000, "max_rows": 12, **more}
        async with hosting(service, hot=hot, start=state != "starting", **limits) as host:
            noted = host.count_hot()
            one = await play(host, sent, state)
            found.append(replace(one, n_hot=sum(noted)))
    short, ordinary = found
    assert ordinary == replace(short, n_hot=0), sent
    return short


@pytest.mark.parametrize("state", ["starting", "stopping", "failed", "busy", "read"])
async def test_both_ways_answer_alike(key_file: Path, state: str) -> None:
    """In every state of the service; `test_a_share_of_the_cases` sends to one that is ready."""
    draw = random.Random(state)
    for seed in range(12):
        cases = Cases(seed, ["", KEY, "wrong"])
        sent = [cases.connection()[1] for _ in range(draw.randint(1, 3))]
        model = MODELS[draw.choice(["classes", "classes", "classes", "numbers", "empty"])]
        queue, keys = draw.choice([0, 1, 1024]), draw.choice([None, key_file])
        await both_ways_of(model, sent, state=state, max_queue=queue, api_key_file=keys)


def infer(content: dict[str, Any], behind: bytes = b"") -> bytes:
    """A request of the inference protocol, with bytes behind its JSON or without."""
    header = json.dumps(content).encode()
    headers = (("Host", "127.0.0.1"), ("Content-Length", str(len(header + behind))))
    more = {"Inference-Header-Content-Length": str(len(header))} if behind else {}
    return request(target="/v2/models/oubli/infer", body=header + behind, headers=headers, more=more)


OF_C1 = b'"features": [7, "b", false], "label": "yes"'
AGE = {"name": "age", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}
BINARY = {"inputs": [AGE, *TENSORS[1:]], "parameters": {"binary_data_output": True}}
PREDICTED = [
    request(body=b'{"instances": [[1, "a", true]]}'),
    request(body=b'{"instances": [{"age": 1, "job": null, "member": false}, [2.5, "never seen", null]]}'),
    request(body=b'{"instances": [[16777217, "a", true], [1e39, "a", true], [9007199254740993, "a", true]]}'),
    *(request(body=json.dumps({"instances": [[35, "a", True]] * n}).encode()) for n in (8, 60)),
    infer({"id": "1", "inputs": TENSORS}), infer({"id": "12", "inputs": TENSORS}),  # a known head
    infer(BINARY, b"\x00\x00\xc0\x3f"), infer(BINARY, b"\x00\x00\xc0\x7f"),
    infer({"id": "1", "inputs": TENSORS, "parameters": {"min_version": 1}}),
]  # fmt: skip
CHANGED = [
    request(target="/samples", body=b'{"samples": [{"features": [1, "a", true], "label": "new"}]}'),
    request(target="/samples", body=b'{"samples": [{"features": [16777217, "a", true], "label": "yes"}]}'),
    request(target="/samples", body=b'{"samples": [{"id": "c1", "subject": "s1", %b}]}' % OF_C1),
    request("DELETE", "/samples/c2", headers=(("Host", "localhost:80"), ("Connection", "Keep-Alive"))),
    request("DELETE", "/samples/a%2Fb", headers=(("Host", "localhost:80"), ("Content-Length", "0"))),
]
LEFT = [  # to the ordinary way
    infer({"inputs": TENSORS, "parameters": {"min_version": 9}}), infer(BINARY, b"\x00\x00\xc0"),
    infer({"inputs": TENSORS[:2]}),
    request(target="/v2/models/oubli/versions/4/infer", body=json.dumps({"inputs": TENSORS}).encode()),
]  # fmt: skip


@pytest.mark.parametrize("with_key", [False, True])
async def test_what_is_common_takes_the_short_way(key_file: Path, with_key: bool) -> None:
    """So that the comparison above compares something."""
    given = b"\r\nX-API-Key: %b\r\n" % KEY.encode() if with_key else b"\r\n"
    sent = [[data.replace(b"\r\n", given, 1)] for data in (*PREDICTED, *CHANGED, *LEFT)]
    file = key_file if with_key else None
    short = await both_ways_of(MODELS["classes"], sent, max_rows=60, api_key_file=file)
    assert short.n_hot == len(PREDICTED) + len(CHANGED)
    expected = [200] * len(PREDICTED) + [201, 201, 200, 200, 200, 503, 422, 422, 200]
    assert [int(answer.status[9:12]) for answer in short.answers] == expected
    assert sum(b'"id":"12"' in answer.body for answer in short.answers) == 1
    is_long = [len(answer.body) >= 1024 for answer in short.answers]
    assert {*is_long} == {False, True}
    varies = [any(line.startswith(b"vary: ") for line in answer.headers) for answer in short.answers]
    assert varies == is_long, "long answers say that they may be compressed"


# Times and chance.
_OWN = re.compile(
    rb'"(bytes|ledger_index|lazy_tags|memory_bytes)":\d+'
    rb'|"(created_at|erased_at|next|nonce|positions_key|way)":"[^"]*"'
    rb'|"(set_root|positions_key_hash|previous|at|hash|digest_hash)":"[^"]*"|"(state|proof)":"c2sp[^"]*"'
)
N_SLOW = int(os.environ.get("OUBLI_TEST_HTTP_CASES", "20000"))


def waits_for_body(connection: Connection) -> bool:
    protocol = connection.protocol
    cycle = protocol.cycle
    if protocol._reading != BODY or cycle.response_complete:
        return False
    if cycle.response_started and cycle.scope["method"] == "GET":
        return False  # a file is being sent; that it also listens for the end of the connection is no wish for a body
    # Or it works in a thread, and answers without the body.
    return bool(cycle.message_event._waiters)


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


async def play(host: Host, sent: Sent, state: str = "ready") -> Seen:
    """Send requests in a state of the service, let it end and time pass, and return what can be told."""
    connection = host.connect()
    async with AsyncExitStack() as stack:
        await enter(state, host.service, stack)
        for pieces in sent:
            for piece in pieces:
                connection.send(piece)
                await asyncio.sleep(0)
            # In other states there may be no answer until the state has ended.
            if state in ("ready", "stopping", "failed"):
                await settle(host, connection)
            else:
                await host.settle(most=100)
    await settle(host, connection)
    protocol = connection.protocol
    for _ in range(2):  # what has not come to its end by now never does
        protocol.look(time.monotonic(), 1.0)  # notes what is being read
        protocol._began -= 10_000
        protocol.look(time.monotonic(), 1.0)
        await settle(host, connection)
    is_closed = connection.transport.closed
    if not is_closed:
        assert protocol.is_idle
        protocol.idle_since -= 10_000
        protocol.look(time.monotonic(), 1.0)
        assert connection.transport.closed
    protocol.connection_lost(None)
    host.forget(connection)
    held, now = host.service.model.state.model.samples_, host.service.model.state.version
    samples = [held.get(name) for name in held.ids()]
    # A retention period counts from the moment of its request, which differs between servers: days are compared.
    samples = [replace(one, expires_ms=one.expires_ms and one.expires_ms // 86_400_000) for one in samples]
    return Seen(connection.answers, is_closed, samples, held.next_id, now)


def plain(one: Seen) -> Seen:
    """What was seen without what differs between two servers that wrote the same snapshots."""
    return replace(one, answers=[*map(plain_answer, one.answers)])


def plain_answer(answer: Answered) -> Answered:
    if b"content-type: application/octet-stream" in answer.headers:
        return replace(answer, headers=(), body=b"")
    body = _OWN.sub(b"", answer.body)
    headers = tuple(header for header in answer.headers if not header.startswith(b"next-cursor"))
    return replace(answer, headers=headers if body == answer.body else (), body=body)


def make_keys(directory: Path) -> list[str]:
    """Keys of all scopes, and such as open nothing."""
    directory.mkdir(exist_ok=True)
    keys = [make_key(directory, scope) for scope in SCOPES] + [make_key(directory, "admin") for _ in range(3)] * 4
    expired, revoked = make_key(directory, "admin", expires_ms=now_ms() - 1), make_key(directory, "admin")
    revoke_key(directory / FILE_NAME, revoked.split("_")[1])
    return [*keys, expired, revoked, keys[0][:-1] + "0", "SEKRET", ""]


async def compare(seed: int, n_cases: int, folder: Path, *, with_keys: bool, durable: bool) -> None:
    """Send the same to two servers that differ in the short way in only."""
    keys = make_keys(folder / "keys") if with_keys else [""]
    limits: dict[str, Any] = {"max_body_bytes": 16_384, "max_snapshot_bytes": 16_384, "max_rows": 12}
    if with_keys:
        limits["data_dir"] = folder / "keys"  # where the keys are looked for
    async with AsyncExitStack() as stack:
        hosts = []
        for hot in (True, False):
            directory = folder / f"{hot}-{seed}" if durable else None
            policy = CheckpointPolicy(erasure_deadline=86_400)  # snapshots are written when they are asked for
            service = make_service(directory=directory, policy=policy)
            hosts.append(await stack.enter_async_context(hosting(service, hot=hot, **limits)))
        cases = Cases(seed, keys)
        sent = 0
        while sent < n_cases:
            n, pieces = cases.connection()
            sent += n
            short, ordinary = [plain(await play(host, [[piece] for piece in pieces])) for host in hosts]
            assert short == ordinary, (seed, sent, pieces)
            for answer in short.answers:
                status = int(answer.status[9:12])
                assert status != 500, (seed, sent, pieces)
                if status >= 400:
                    everything = b"".join((answer.status, *answer.headers, answer.body))
                    assert not any(secret in everything for secret in SECRETS), (seed, sent, pieces)
                    is_problem = b"content-type: application/problem+json" in answer.headers
                    assert is_problem or list(json.loads(answer.body or "{}")) in (["error"], []), (seed, sent, pieces)


def fuzz(seeds: range, n_cases: int, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for seed in seeds:
            asyncio.run(compare(seed, n_cases // len(seeds), folder, with_keys=seed % 2 == 0, durable=seed % 4 == 3))
    assert "request failed" not in caplog.text
    assert not any(secret.decode() in caplog.text for secret in SECRETS)


def test_a_share_of_the_cases(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fuzz(range(2), 1500, tmp_path, caplog)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_cases(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fuzz(range(100, 120), N_SLOW, tmp_path, caplog)
