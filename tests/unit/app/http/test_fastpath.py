"""The short way in and the ordinary one answer every request alike, and leave the same model behind.

Two servers that differ in nothing but uvicorn's protocol get the same bytes, in the same pieces. Compared are all
answers (status, headers, bodies without the time of day), whether the connection was closed, and the samples held.
"""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oubli.app.errors import StopReason
from oubli.app.http.fastpath import LARGEST_BODY
from oubli.app.service.model_service import ModelService
from tests.unit.app.http.connections import Answered, Host, hosting, request
from tests.unit.app.support import CLASSES, NUMBERS, forest, make_service

KEY = "0123456789abcdef-key"
MAX_BODY, MAX_ROWS = 3000, 12
MODELS = {"classes": forest(), "numbers": forest(schema=NUMBERS), "empty": forest(0)}
assert MODELS["classes"].schema_.names == CLASSES.names

# --- bodies

good_rows = st.tuples(
    st.one_of(st.integers(-50, 50), st.floats(-9, 9, width=32), st.none()),
    st.sampled_from(["a", "b", "c", "new", "é", None]),
    st.sampled_from([True, False, None, 1, 0]),
).map(list)
odd_cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**24, 2**24 + 1, -(2**24) - 1, 1e39, -1e39, 0.1, -0.0, 1e-50]),
    st.text(max_size=4),
    st.just([]),
    st.just({"a": [1]}),
)
odd_rows = st.one_of(
    st.lists(odd_cells, max_size=4),
    st.tuples(odd_cells, odd_cells, odd_cells).map(list),
    st.dictionaries(st.sampled_from(["age", "job", "member", "who"]), odd_cells, max_size=4),
    odd_cells,
)
named_rows = good_rows.map(lambda row: dict(zip(CLASSES.names, row, strict=True)))
rows = st.one_of(good_rows, good_rows, good_rows, named_rows, odd_rows)
ids = st.one_of(
    st.sampled_from(["c1", "c2", "c3", "n1", "n2", "a/b", "é", "x" * 257, "", 7, "7", None]), st.integers(0, 70)
)
labels = st.one_of(st.sampled_from(["yes", "no", "maybe", 1, 2.5, True, None]), st.integers(-(2**60), 2**60))
good_samples = st.fixed_dictionaries(
    {"features": good_rows, "label": st.sampled_from(["yes", "no", "new"])},
    optional={"id": st.sampled_from(["c1", "n1", "n2", 7, "7", None]), "subject": st.sampled_from(["s1", "new", None])},
)
number_samples = st.fixed_dictionaries({"features": good_rows, "label": st.floats(-9, 9)})
odd_samples = st.fixed_dictionaries(
    {},
    optional={
        "features": rows,
        "label": labels,
        "id": ids,
        "subject": ids,
        "readd": st.sampled_from([True, False, 1]),
        "expires_at": st.just("2030-01-01"),
        "color": st.just("red"),
    },
)
samples = st.one_of(good_samples, good_samples, number_samples, odd_samples, odd_cells)


def lists_of(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(items, min_size=1, max_size=1),
        st.lists(items, max_size=4),
        st.lists(items, min_size=MAX_ROWS - 1, max_size=MAX_ROWS + 1),
    )


def bodies_of(key: str, items: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    contents = st.one_of(
        lists_of(items).map(lambda found: {key: found}),
        lists_of(items).map(lambda found: {key: found}),
        st.tuples(lists_of(items), odd_cells).map(lambda found: {key: found[0], "more": found[1]}),
        odd_cells.map(lambda found: {key: found}),
        st.just({}),
        odd_cells,
    )
    texts = contents.map(lambda content: json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    broken = st.tuples(texts, st.integers(0, 40)).map(lambda found: found[0][: -found[1]] if found[1] else b"")
    deep = st.just(b'{"%s": ' % key.encode() + b"[" * 40 + b"]" * 40 + b"}")
    padded = texts.map(lambda text: text + b" " * (MAX_BODY - len(text) + 1))
    return st.one_of(texts, texts, texts, texts, broken, deep, padded, st.just(b"\xff{}"), st.just(b'{"x": NaN}'))


# --- requests

usual_headers = {"Host": "127.0.0.1", "Content-Type": "application/json", "X-API-Key": KEY}
odd_headers = st.one_of(
    st.sampled_from(
        [
            ("Host", "127.0.0.1:8000"),
            ("Host", "LOCALHOST"),
            ("Host", "evil.example"),
            ("Host", ""),
            ("Host", "[::1]:80"),
            ("Content-Type", "application/json; charset=utf-8"),
            ("Content-Type", "Application/JSON"),
            ("Content-Type", "text/plain"),
            ("Content-Type", ""),
            ("X-API-Key", "wrong"),
            ("X-API-Key", ""),
            ("Authorization", f"Bearer {KEY}"),
            ("Authorization", "Bearer wrong"),
            ("Authorization", f"Basic {KEY}"),
            ("Origin", "http://localhost:3000"),
            ("Origin", "http://evil.example"),
            ("Origin", "null"),
            ("Origin", "http://["),
            ("Connection", "keep-alive"),
            ("Connection", "Keep-Alive"),
            ("Connection", "close"),
            ("Connection", "keep-alive, close"),
            ("Upgrade", "websocket"),
            ("Expect", "100-continue"),
            ("Accept", "*/*"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("Content-Length", "3"),
            ("Transfer-Encoding", "chunked"),
        ]
    )
)
targets = st.sampled_from(
    ["/predict", "/predict?x=1", "/predict/", "/predict#a", "/PREDICT", "http://127.0.0.1/predict", "//predict"]
)
quoted_ids = st.one_of(
    st.sampled_from(["c1", "c2", "c3", "c4", "nobody", "7", "a/b", "search", "batch-delete", "a%2Fb", "%C3%A9", "%ff"]),
    st.text(min_size=1, max_size=5).map(lambda text: urllib.parse.quote(text.encode("utf-8", "surrogatepass"))),
    st.sampled_from(["c1?ref=x", "c1?ref=6f1c0d0a-0000-4000-8000-000000000000", "c1#x", "", "%00", "x" * 300, "a b"]),
)


@st.composite
def requests(draw: Any) -> bytes:
    kind = draw(st.sampled_from(["predict", "predict", "add", "add", "delete", "delete", "other"]))
    method, body = "POST", b""
    if kind == "predict":
        target = draw(st.one_of(st.just("/predict"), st.just("/predict"), targets))
        body = draw(bodies_of("instances", rows))
    elif kind == "add":
        target, body = "/samples", draw(bodies_of("samples", samples))
    elif kind == "delete":
        method, target = "DELETE", "/samples/" + draw(quoted_ids)
        body = draw(st.sampled_from([b"", b"", b"", b"{}"]))
    else:
        method = draw(st.sampled_from(["GET", "PUT", "OPTIONS", "PATCH", "DELETE"]))
        target = draw(st.sampled_from(["/predict", "/samples", "/samples/c1", "/readyz", "/nowhere"]))
    headers = dict(usual_headers)
    if method == "DELETE":
        headers.pop("Content-Type")
    if body or method == "POST":
        headers["Content-Length"] = str(len(body))
    for name in draw(st.lists(st.sampled_from(sorted(usual_headers)), max_size=1)):
        if draw(st.booleans()):
            headers.pop(name, None)
    listed = list(headers.items())
    for name, value in draw(st.one_of(st.just([]), st.just([]), st.lists(odd_headers, max_size=2))):
        if draw(st.booleans()):
            listed = [header for header in listed if header[0] != name]
        listed.insert(draw(st.integers(0, len(listed))), (name, value))
    if ("Transfer-Encoding", "chunked") in listed:
        listed = [header for header in listed if header[0] != "Content-Length"]
        cut = draw(st.integers(0, len(body)))
        parts = [part for part in (body[:cut], body[cut:]) if part]
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    if draw(st.booleans()):
        listed = [(name.lower(), value) for name, value in listed]
    version = draw(st.sampled_from(["1.1"] * 9 + ["1.0"]))
    return request(method, target, body, headers=tuple(listed), version=version)


@dataclass(frozen=True)
class Seen:
    """What can be told of a server after some requests."""

    answers: list[Answered]
    closed: bool
    samples: list[Any]
    next_id: int
    version: int
    n_hot: int


async def enter(state: str, service: ModelService, stack: AsyncExitStack) -> None:
    """Put a service into a state until the stack is closed."""
    if state == "stopping":
        service.drain()
    elif state == "failed":
        service.state.halt(StopReason.DISK_FAILED)
        stack.callback(setattr, service.state, "halted", None)
    elif state == "busy":
        await stack.enter_async_context(service.lock.mutation())
    elif state == "read":
        stack.enter_context(service.lock.reading())


def count_hot(host: Host) -> list[bool]:
    """Note from now on which requests were answered on the short way."""
    noted: list[bool] = []
    answer = host.hot.answer

    def noting(*arguments: Any) -> Any:
        found = answer(*arguments)
        noted.append(found is not None)
        return found

    host.hot.answer = noting
    return noted


async def observe(
    model: Any,
    sent: Iterable[Sequence[bytes]],
    *,
    hot: bool = True,
    state: str = "ready",
    directory: Path | None = None,
    max_queue: int = 1024,
    **limits: Any,
) -> Seen:
    """Send requests, each in pieces, and return what can be told afterwards."""
    service = make_service(model.copy(), directory, max_queue=max_queue)
    service.state.epoch = 1  # else drawn; cursors tell it
    limits = {"max_body_bytes": MAX_BODY, "max_rows": MAX_ROWS, **limits}
    async with hosting(service, hot=hot, start=state != "starting", **limits) as host:
        connection, noted = host.connect(), count_hot(host)
        async with AsyncExitStack() as stack:
            await enter(state, service, stack)
            for pieces in sent:
                for piece in pieces:
                    connection.send(piece)
                    await asyncio.sleep(0)
                # In other states there is no answer until the state has ended.
                is_answered = state == "ready" or directory is not None
                await host.settle(most=None if is_answered else 100)
        await host.settle()
        held = service.state.model.samples_
        return Seen(
            connection.answers,
            connection.transport.closed,
            [held.get(name) for name in held.ids()],
            held.next_id,
            service.state.version,
            sum(noted),
        )


def in_pieces(data: bytes, cuts: Sequence[float]) -> list[bytes]:
    """Cut bytes at shares of their length."""
    places = sorted({0, len(data), *(int(cut * len(data)) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


STATES = ["ready"] * 6 + ["starting", "stopping", "failed", "busy", "read"]


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key"
    path.write_text(KEY + "\n")
    return path


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sent=st.lists(requests(), min_size=1, max_size=5),
    cuts=st.lists(st.floats(0, 1), max_size=2),
    model=st.sampled_from(["classes", "classes", "classes", "numbers", "empty"]),
    state=st.sampled_from(STATES),
    with_key=st.booleans(),
    max_queue=st.sampled_from([0, 1, 1024]),
    times=st.sampled_from([1, 1, 2]),
)
def test_both_ways_answer_alike(
    key_file: Path,
    sent: list[bytes],
    cuts: list[float],
    model: str,
    state: str,
    with_key: bool,
    max_queue: int,
    times: int,
) -> None:
    pieces = [in_pieces(data, cuts) for data in sent for _ in range(times)]  # repeated, their heads are known
    key = key_file if with_key else None
    short, ordinary = (
        asyncio.run(observe(MODELS[model], pieces, hot=hot, state=state, max_queue=max_queue, api_key_file=key))
        for hot in (True, False)
    )
    assert ordinary.n_hot == 0
    assert short.answers == ordinary.answers
    assert replace(short, n_hot=0) == ordinary


def test_what_is_common_takes_the_short_way(key_file: Path) -> None:
    """So that the comparison above compares something."""
    bodies = [
        request(body=b'{"instances": [[1, "a", true]]}', headers=None),
        request(body=b'{"instances": [{"age": 1, "job": null, "member": false}, [2.5, "never seen", null]]}'),
        request(target="/samples", body=b'{"samples": [{"features": [1, "a", true], "label": "new"}]}'),
        request(
            target="/samples",
            body=b'{"samples": [{"id": "c1", "subject": "s1", "features": [7, "b", false], "label": "yes"}]}',
        ),
        request("DELETE", "/samples/c2", headers=(("Host", "localhost:80"), ("Connection", "Keep-Alive"))),
        request("DELETE", "/samples/a%2Fb", headers=(("Host", "localhost:80"), ("Content-Length", "0"))),
    ]
    with_key = [data.replace(b"\r\n", b"\r\nX-API-Key: %b\r\n" % KEY.encode(), 1) for data in bodies]
    for sent, file in ((bodies, None), (with_key, key_file)):
        seen = asyncio.run(observe(MODELS["classes"], [[data] for data in sent], max_queue=0, api_key_file=file))
        assert [answer.status[9:12] for answer in seen.answers] == [b"200", b"200", b"201", b"200", b"200", b"200"]
        assert seen.n_hot == 5, "what is not held may have a receipt, which is in a file"


@pytest.mark.parametrize(
    "data",
    [
        request(body=b'{"instances": [[1, "a", "text"]]}'),
        request(body=b'{"instances": ['),
        request(body=b'{"instances": [[1, "a", true]]}', version="1.0"),
        request(body=b'{"instances": [[1, "a", true]]}').replace(b"127.0.0.1", b"evil.example"),
        request(body=b'{"instances": [[1, "a", true]]}').replace(b"Host", b"Expect: 100-continue\r\nHost"),
        request(body=b'{"instances": [[1, "a", true]]}').replace(b"Host", b"Connection: close\r\nHost"),
        request(body=b'{"instances": [[1, "a", true]]' + b" " * LARGEST_BODY + b"}"),
        request("DELETE", "/samples/c1?ref=6f1c0d0a-0000-4000-8000-000000000000"),
        request("GET", "/model"),
    ],
)
def test_what_is_not_common_takes_the_ordinary_way(data: bytes) -> None:
    async def run() -> None:
        async with hosting(make_service(MODELS["classes"].copy())) as host:
            connection = host.connect()
            connection.send(data)
            assert connection.protocol.cycle is not None
            await host.settle()
            assert connection.transport.written

    asyncio.run(run())


@pytest.mark.parametrize("hot", [True, False])
def test_what_waits_for_the_disk_is_answered_in_its_order(tmp_path: Path, hot: bool) -> None:
    """Requests of one connection behind a mutation wait for it, on either way."""
    add = request(target="/samples", body=b'{"samples": [{"features": [1, "a", true], "label": "yes"}]}')
    ask = request(target="/predict", body=b'{"instances": [[1, "a", true]]}')
    delete = request(method="DELETE", target="/samples/c1", body=b"")
    sent = [[add], [add + ask + delete + ask + add]]
    seen = asyncio.run(observe(MODELS["classes"], sent, hot=hot, directory=tmp_path / "d"))
    answers = [json.loads(answer.body) for answer in seen.answers]
    assert [answer["model_version"] for answer in answers] == [2, 3, 3, 4, 4, 5]
    assert [answers[i]["ids"] for i in (0, 1, 5)] == [["0"], ["1"], ["2"]]
    assert answers[3]["status"] == "unlearned"
    assert answers[3]["signature"]
    assert (seen.n_hot > 0) == hot
