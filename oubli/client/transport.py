"""Transports: they carry out the steps of flows with httpx2, one waiting, one awaiting. All I/O of the client is here.

`Transport(http, url, headers).run(flow)` returns the flow's result, `iterate(flow)` gives what it emits;
`AsyncTransport` does the same for `await` and `async for`. `send(request)` sends one request, without retries.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any, TypeVar

try:
    import anyio
    import anyio.to_thread
    import httpx2
except ImportError as error:
    raise ImportError(
        "the client needs httpx2, which is not installed: run `pip install 'oubli-server[client]'`", name=error.name
    ) from None

from oubli.client.errors import ClientError, NoAnswerError, TimedOutError
from oubli.client.messages import (
    Answer,
    Close,
    Emit,
    Emits,
    Flow,
    NextChunk,
    NextEvent,
    Request,
    Send,
    Sleep,
    Step,
    Work,
)

T = TypeVar("T")
_LONGEST_CONNECT = 5.0  # seconds
_CHUNK = 1 << 20
_FILE_TYPE = "application/octet-stream"
# What fails before a byte of the request is on its way.
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
_VISIBLE = frozenset(map(chr, range(33, 127)))


def timeouts(timeout: float | httpx2.Timeout) -> httpx2.Timeout:
    """Return the times to wait: a number is that for bytes of an answer, and for a connection at most 5 seconds."""
    if isinstance(timeout, httpx2.Timeout):
        return timeout
    return httpx2.Timeout(timeout, connect=min(timeout, _LONGEST_CONNECT))


def address(url: str) -> str:
    """Return the address of a server as requests begin with it.

    Raises
    ------
    ValueError
        When it is none.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError("the server's address must begin with http:// or https://")
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL:
        raise ValueError("the server's address is no valid URL") from None
    if parts.userinfo or parts.query or parts.fragment:  # errors name the address, and it must hold no secret
        raise ValueError("the server's address must have no user name, query or fragment: pass the key as api_key")
    return url.rstrip("/")


class _Common:
    """What both transports do alike.

    Parameters
    ----------
    url
        Of the server that requests go to unless they name another; what it has of a path comes in front of all paths.
    headers
        Of every request.

    Raises
    ------
    ValueError
        When the address is none.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.url = address(url)
        self._headers = dict(headers)
        # The errors of httpx2 would repeat them, and a key is among them.
        if not all(_VISIBLE.issuperset(value.replace(" ", "")) for value in self._headers.values()):
            raise ValueError("the API key or another header holds characters that no header may hold")

    def _built(
        self, http: httpx2.Client | httpx2.AsyncClient, request: Request, content: Any, server: str
    ) -> httpx2.Request:
        headers = {**self._headers, **request.headers}
        if isinstance(request.body, Path):
            length = str(request.body.stat().st_size)
            headers = {"Content-Type": _FILE_TYPE, **headers, "Content-Length": length}
        # An empty dictionary of parameters would take away a query.
        params = request.query or None
        return http.build_request(
            request.method, server + request.path, params=params, headers=headers, content=content
        )

    def _failure(self, error: Exception, server: str | None = None) -> ClientError:
        """Return what an exception of httpx2 means."""
        server = server or self.url
        reason = str(error) or type(error).__name__
        if isinstance(error, _NOT_SENT):
            text = f"no server answers at {server} ({reason})"
            kind = TimedOutError if isinstance(error, httpx2.TimeoutException) else NoAnswerError
            return kind(text, may_have_been_applied=False)
        if isinstance(error, httpx2.TimeoutException):
            return TimedOutError(f"{server} did not answer in time", may_have_been_applied=True)
        return NoAnswerError(f"{server} sent no whole answer ({reason})", may_have_been_applied=True)


def _headers_of(response: httpx2.Response) -> dict[str, str]:
    """Return the headers by name: cheaper than the mapping of httpx2, which joins those that are repeated."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers.raw}


def _server_of(step: Step) -> str | None:
    """Return the server that a step reads from."""
    return step.stream.server if isinstance(step, NextEvent | NextChunk | Close) else None


class _Stream:
    """An answer whose body is read piece by piece, by a waiting transport."""

    def __init__(self, response: httpx2.Response, server: str | None) -> None:
        self.response, self.server = response, server
        self.events = iter(httpx2.EventSource(response))
        self.chunks = response.iter_bytes(_CHUNK)


class Transport(_Common):
    """Carries out flows and waits.

    Parameters
    ----------
    http
        Sends; not closed here.
    url, headers
        See `_Common`.
    """

    def __init__(self, http: httpx2.Client, url: str, headers: Mapping[str, str]) -> None:
        super().__init__(url, headers)
        self.http = http

    def run(self, flow: Flow[T]) -> T:
        """Return the result of a flow."""
        given: Any = None
        error: BaseException | None = None
        with ExitStack() as streams:
            while True:
                try:
                    step = flow.send(given) if error is None else flow.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                given, error = self._tried(step, streams)

    def iterate(self, flow: Emits[T]) -> Iterator[T]:
        """Yield what a flow emits."""
        given: Any = None
        error: BaseException | None = None
        with ExitStack() as streams:
            while True:
                try:
                    step = flow.send(given) if error is None else flow.throw(error)
                except StopIteration:
                    return
                if isinstance(step, Emit):
                    yield step.item
                    given, error = None, None
                else:
                    given, error = self._tried(step, streams)

    def send(self, request: Request, server: str | None = None, streams: ExitStack | None = None) -> Answer:
        """Send a request once, to the first server or another one.

        Raises
        ------
        NoAnswerError
            When no whole answer came.
        """
        with ExitStack() as files:
            content: Any = request.body
            if isinstance(content, Path):
                content = files.enter_context(content.open("rb"))
            try:
                built = self._built(self.http, request, content, server or self.url)
                response = self.http.send(built, stream=True, follow_redirects=False)
                keeps = request.is_streamed and response.is_success and streams is not None
                if keeps and streams is not None:
                    streams.callback(response.close)
                else:
                    try:
                        response.read()
                    finally:
                        response.close()
            except httpx2.RequestError as error:
                raise self._failure(error, server) from None
        headers = _headers_of(response)
        if keeps:
            return Answer(response.status_code, headers, stream=_Stream(response, server))
        return Answer(response.status_code, headers, response.content)

    def _tried(self, step: Step, streams: ExitStack) -> tuple[Any, BaseException | None]:
        try:
            return self._take(step, streams), None
        except httpx2.RequestError as error:
            return None, self._failure(error, _server_of(step))
        except Exception as error:
            return None, error

    def _take(self, step: Step, streams: ExitStack) -> Any:
        match step:
            case Send(request, server):
                return self.send(request, server, streams)
            case Sleep(seconds):
                return time.sleep(seconds)
            case NextEvent(stream):
                event = next(stream.events, None)
                return None if event is None else event.data
            case NextChunk(stream):
                return next(stream.chunks, None)
            case Close(stream):
                return stream.response.close()
            case Work(function):
                return function()


class _AsyncStream:
    """An answer whose body is read piece by piece, by an awaiting transport."""

    def __init__(self, response: httpx2.Response, server: str | None) -> None:
        self.response, self.server = response, server
        self.events = aiter(httpx2.EventSource(response))
        self.chunks = response.aiter_bytes(_CHUNK)


class AsyncTransport(_Common):
    """Carries out flows and awaits, on asyncio or trio.

    Parameters
    ----------
    http
        Sends; not closed here.
    url, headers
        See `_Common`.
    """

    def __init__(self, http: httpx2.AsyncClient, url: str, headers: Mapping[str, str]) -> None:
        super().__init__(url, headers)
        self.http = http

    async def run(self, flow: Flow[T]) -> T:
        """Return the result of a flow."""
        given: Any = None
        error: BaseException | None = None
        async with AsyncExitStack() as streams:
            while True:
                try:
                    step = flow.send(given) if error is None else flow.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                given, error = await self._tried(step, streams)

    async def iterate(self, flow: Emits[T]) -> AsyncIterator[T]:
        """Yield what a flow emits."""
        given: Any = None
        error: BaseException | None = None
        async with AsyncExitStack() as streams:
            while True:
                try:
                    step = flow.send(given) if error is None else flow.throw(error)
                except StopIteration:
                    return
                if isinstance(step, Emit):
                    yield step.item
                    given, error = None, None
                else:
                    given, error = await self._tried(step, streams)

    async def send(self, request: Request, server: str | None = None, streams: AsyncExitStack | None = None) -> Answer:
        """Send a request once, to the first server or another one.

        Raises
        ------
        NoAnswerError
            When no whole answer came.
        """
        content: Any = request.body
        if isinstance(content, Path):
            content = _pieces(content)
        try:
            built = self._built(self.http, request, content, server or self.url)
            response = await self.http.send(built, stream=True, follow_redirects=False)
            keeps = request.is_streamed and response.is_success and streams is not None
            if keeps and streams is not None:
                streams.push_async_callback(response.aclose)
            else:
                try:
                    await response.aread()
                finally:
                    await response.aclose()
        except httpx2.RequestError as error:
            raise self._failure(error, server) from None
        headers = _headers_of(response)
        if keeps:
            return Answer(response.status_code, headers, stream=_AsyncStream(response, server))
        return Answer(response.status_code, headers, response.content)

    async def _tried(self, step: Step, streams: AsyncExitStack) -> tuple[Any, BaseException | None]:
        try:
            return await self._take(step, streams), None
        except httpx2.RequestError as error:
            return None, self._failure(error, _server_of(step))
        except Exception as error:
            return None, error

    async def _take(self, step: Step, streams: AsyncExitStack) -> Any:
        match step:
            case Send(request, server):
                return await self.send(request, server, streams)
            case Sleep(seconds):
                return await anyio.sleep(seconds)
            case NextEvent(stream):
                event = await anext(stream.events, None)
                return None if event is None else event.data
            case NextChunk(stream):
                return await anext(stream.chunks, None)
            case Close(stream):
                return await stream.response.aclose()
            case Work(function):
                return await anyio.to_thread.run_sync(function)


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    async with await anyio.open_file(path, "rb") as file:
        while piece := await file.read(_CHUNK):
            yield piece
