"""Bodies that come compressed: any pieces, several members, damage, and bombs."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import oubli.app.http.formats
from oubli.app.http.formats import decoded
from oubli.app.http.problems import ProblemError
from tests.lines import failing_line
from tests.unit.app.http.connections import request
from tests.unit.app.support import JSON, problem_of, samples, served

ZSTD = zstandard.ZstdCompressor().compress
ENCODE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": ZSTD}
LIMIT = 300_000


async def read(pieces: Iterable[bytes], encoding: str, limit: int) -> bytes:
    messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Any:
        return messages.pop(0)

    body, decode = b"", decoded(receive, encoding.encode(), limit)
    while True:
        message = await decode()
        body += message["body"]
        if not message["more_body"]:
            return body


def received(pieces: Iterable[bytes], encoding: str, limit: int = LIMIT) -> bytes:
    """What an application receives of a body in pieces."""
    return asyncio.run(read(pieces, encoding, limit))


def refused(pieces: Iterable[bytes], encoding: str) -> tuple[str, int]:
    with pytest.raises(ProblemError) as caught:
        received(pieces, encoding)
    return caught.value.kind.slug, caught.value.kind.status


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted(place % (len(data) + 1) for place in places)
    return [data[start:end] for start, end in zip([0, *ends], [*ends, len(data)], strict=True)]


@given(st.lists(st.binary(max_size=200), max_size=4), st.lists(st.integers(0, 10_000), max_size=6), st.booleans())
def test_a_body_in_any_pieces_is_decoded(members: list[bytes], places: list[int], repeat: bool) -> None:
    members = [member * (30 if repeat and len(member) < 1000 else 1) for member in members]
    for name, encode in ENCODE.items():
        assert received(cut(b"".join(map(encode, members)), places), name) == b"".join(members)


@pytest.mark.parametrize("name", ENCODE)
def test_long_runs_are_decoded_in_several_pieces_up_to_the_limit(name: str) -> None:
    for n, places in product((0, 65_535, 65_536, 65_537, 131_072, LIMIT), ([], [3], [40, 50])):
        assert len(received(cut(ENCODE[name](bytes(n)), places), name)) == n
    for n in (LIMIT + 1, 50_000_000):
        assert refused([ENCODE[name](bytes(n))], name) == ("body-too-large", 413)


def empties(name: str, n_bytes: int) -> bytes:
    return ENCODE[name](b"") * (n_bytes // len(ENCODE[name](b"")))


SKIPPED = b"\x50\x2a\x4d\x18\0\0\0\0"  # a zstd frame that decoders pass over


@pytest.mark.parametrize("name", ENCODE)
@pytest.mark.parametrize("size", [10**6, 65_536, 1000])
def test_frames_that_hold_nothing_are_refused_after_a_thousand_and_no_others(name: str, size: int) -> None:
    bodies = [empties(name, 2**20), b"".join(ENCODE[name](b"x") for _ in range(2000))]
    if name == "zstd":
        bodies.append(SKIPPED * 100_000)
    for data in bodies:
        pieces = [data[start : start + size] for start in range(0, len(data), size)]
        assert refused(pieces, name) == ("too-many-frames", 400)
    # As many as there is something in pass.
    few = b"".join(ENCODE[name](b"%d" % number) for number in range(990))
    assert received([few], name) == b"".join(b"%d" % number for number in range(990))
    assert len(received([ENCODE[name](bytes(256)) * 3000], name, 10**6)) == 3000 * 256


@pytest.mark.parametrize("name", ENCODE)
@pytest.mark.parametrize("kind", ["empty", "bomb"])
def test_others_are_served_while_a_body_is_decoded(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oubli.app.http.formats, "MOST_FRAMES", 10**9)
    data = empties(name, 2**18) if kind == "empty" else ENCODE[name](bytes(2**23))

    async def work() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        await read([data], name, 2**23)
        other.cancel()
        return turns

    assert asyncio.run(work()) >= 2**18 // 4096, "another task has a turn for every few KB"


def test_what_is_not_encoded_passes_and_what_is_unknown_damaged_or_needs_a_large_window_is_refused() -> None:
    for name in ("identity", "", " Identity "):
        assert received([b"abc"], name) == b"abc"
    for name in ("br", "deflate", "gzip, gzip", "\xe9"):
        assert refused([b"abc"], name) == ("unsupported-encoding", 415)
    for name, encode in ENCODE.items():
        data = encode(bytes(range(256)) * 5)
        for damaged in (data[:-1], data[:20], b"x" + data):
            assert refused([damaged], name)[0] == "broken-encoding"
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    wide = compressor.compress(bytes(1000)) + compressor.flush()  # a larger window than HTTP allows
    assert refused([wide], "zstd")[0] == "broken-encoding"


def test_requests_and_answers_are_encoded_over_http() -> None:
    with served(max_body_bytes=100_000) as client:
        body = json.dumps(samples(200, "z")).encode()
        for name, encode in ENCODE.items():
            headers = {**JSON, "Content-Encoding": name, "Accept-Encoding": name}
            assert client.post("/samples", content=encode(body), headers=headers).is_success
            listed = client.get("/samples?limit=50", headers={"Accept-Encoding": name})
            assert (listed.headers["content-encoding"], len(listed.json()["samples"])) == (name, 50)
            assert client.get("/healthz", headers=headers).headers.get("content-encoding") is None
            large = client.post("/predict", content=encode(bytes(100_001)), headers=headers)
            assert problem_of(large) == (413, "body-too-large")
            for kind in ("application/json", "text/csv"):
                sent = {**headers, "Content-Type": kind}
                empty = client.post("/samples", content=empties(name, 30_000), headers=sent)
                assert problem_of(empty) == (400, "too-many-frames")
        unknown = client.post("/samples", content=body, headers={**JSON, "Content-Encoding": "br"})
        assert problem_of(unknown) == (415, "unsupported-encoding")
        assert "gzip" in unknown.json()["detail"]


@pytest.mark.anyio
@pytest.mark.parametrize("name", ENCODE)
@pytest.mark.parametrize(("error", "status"), [(MemoryError, 503), (ValueError, 500)])
async def test_an_exception_anywhere_while_a_body_is_decoded_changes_nothing(host, name, error, status, caplog):
    """At each line of the decoder in turn; the body comes in two pieces."""
    body = ENCODE[name](json.dumps(samples(1, "SECRET")).encode())
    sent = request("POST", "/samples", body, more={"Content-Encoding": name})
    for line in range(1000):
        connection = host.connect()
        with failing_line(line, error, oubli.app.http.formats.__file__):
            for piece in (sent[:-20], sent[-20:]):
                connection.send(piece)
                await host.settle(20)
            await host.settle()
        host.forget(connection)
        if connection.statuses == [201]:
            break  # there is no such line
        assert connection.statuses == [status], line
        assert b"SECRET" not in connection.transport.written
        assert (host.service.model.state.version, host.service.model.state.model.n_samples_) == (1, 60)
        assert host.service.model.idle._in_flight == 0
    assert line > 20
    assert host.service.model.state.model.n_samples_ == 61
    assert "SECRET" not in caplog.text
