"""Snapshot files on their way in: under no name, not for ever, and not beyond an erasure."""

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncIterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

import oubli.app.service.recovery.uploads as module
from oubli.app.errors import UploadError
from oubli.app.service.erasure.holders import Holders
from oubli.app.service.model.state import ModelState
from oubli.app.service.recovery.uploads import UploadPolicy, Uploads
from oubli.app.storage.directory import DataDirectory
from tests.unit.app.hosted import hosted
from tests.unit.app.support import forest, make_service


@pytest.fixture
def holders() -> Holders:
    return Holders(ModelState(forest(0), 1, 0))


async def pieces(*contents: bytes, pause: float = 0.0) -> AsyncIterator[bytes]:
    for content in contents:
        await asyncio.sleep(pause)
        yield content


def take(uploads: Uploads, stream: Any) -> bytes:
    """Take a file in; return what is found under its path."""

    async def work() -> bytes:
        with uploads.open() as upload:
            length, place = await upload.take(stream), os.lseek(int(upload.path.name), 0, os.SEEK_CUR)
            assert place == 0, "on macOS, a file that is opened by this path is read from there"
            content = upload.path.read_bytes()
            assert length == len(content)
            return content

    return asyncio.run(work())


def test_a_file_is_whole_and_has_no_name_and_buffers_are_overwritten(tmp_path, holders, monkeypatch):
    uploads = Uploads(tmp_path, holders, UploadPolicy())
    seen, buffers, empty = list[list[Path]](), list[bytearray](), module._empty

    def emptied(buffer: bytearray) -> None:
        buffers.append(buffer)
        empty(buffer)

    async def stream() -> AsyncIterator[bytes]:
        for i in range(5):
            seen.append(list(tmp_path.iterdir()))
            yield bytes([i]) * 3_000_000

    monkeypatch.setattr(module, "_empty", emptied)
    assert take(uploads, stream()) == b"".join(bytes([i]) * 3_000_000 for i in range(5))
    assert seen == [[]] * 5
    assert [any(buffer) for buffer in buffers] == [False] * 3, "after each piece that is written, and at the end"
    assert take(Uploads(None, holders, UploadPolicy()), pieces(b"a", b"b")) == b"ab"


def test_the_name_is_gone_for_good_before_anything_is_written(tmp_path, holders, monkeypatch):
    """Otherwise a power loss could bring it back, with whatever had come in."""
    steps: list[tuple[str, list[Path]]] = []

    def noted(name: str, work: Any) -> Any:
        def noting(*arguments: Any) -> None:
            steps.append((name, list(tmp_path.iterdir())))
            work(*arguments)

        return noting

    for name in ("flush_directory", "_write_all"):
        monkeypatch.setattr(module, name, noted(name, getattr(module, name)))
    assert take(Uploads(tmp_path, holders, UploadPolicy()), pieces(b"a")) == b"a"
    assert steps == [("flush_directory", []), ("_write_all", [])]


def test_a_snapshot_that_is_finished_meanwhile_may_remove_the_name_first(tmp_path, holders, monkeypatch):
    directory, make = DataDirectory(tmp_path), tempfile.mkstemp

    def raced(*arguments: Any, **options: Any) -> tuple[int, str]:
        made = make(*arguments, **options)
        directory.remove_unfinished()
        return made

    monkeypatch.setattr(tempfile, "mkstemp", raced)
    assert take(Uploads(tmp_path, holders, UploadPolicy()), pieces(b"a")) == b"a"
    directory.close()


@pytest.mark.parametrize(("policy", "pause"), [(UploadPolicy(pause=0.05), 5.0), (UploadPolicy(deadline=0.2), 0.05)])
def test_one_that_takes_too_long_is_dropped(tmp_path, holders, policy, pause):
    with pytest.raises(UploadError, match="slow"):
        take(Uploads(tmp_path, holders, policy), pieces(*[b"a"] * 20, pause=pause))
    assert holders.is_rid(holders.period)


@pytest.mark.anyio
async def test_an_upload_that_ends_early_closes_its_file_after_the_write(tmp_path, holders, monkeypatch):
    """A descriptor must not be closed, and used again, while a thread writes to it."""
    written, writing, gone = [], threading.Event(), threading.Event()

    def slowly(file: Any, buffer: bytearray) -> None:
        writing.set()
        assert gone.wait(30)
        written.append(os.write(file.fileno(), buffer))

    monkeypatch.setattr(module, "_write_all", slowly)
    with Uploads(tmp_path, holders, UploadPolicy()).open() as upload:
        taking = asyncio.ensure_future(upload.take(pieces(b"a" * 5_000_000, b"b")))
        await asyncio.to_thread(writing.wait, 30)
        taking.cancel()
        await asyncio.sleep(0)
        gone.set()
        with pytest.raises(asyncio.CancelledError):
            await taking
    assert written == [5_000_000]


def test_a_stalled_upload_is_answered(tmp_path):
    with hosted(make_service(directory=tmp_path / "data", uploads=UploadPolicy(pause=0.2))) as host:
        with host.connect() as client:
            client.sendall(b"PUT /snapshot/file HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nhalf")
            answer = HTTPResponse(client)
            answer.begin()
            assert (answer.status, b"upload-slow" in answer.read()) == (408, True)
        assert host.ask("GET", "/model")[1]["n_samples"] == 60
        assert not list((tmp_path / "data").glob(".*"))
