"""`Client` and `AsyncClient`: the operations as methods, one waiting, one awaiting. Their logic is in `operations`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from oubli.client import operations
from oubli.client.messages import Emits, Flow
from oubli.client.results import PublicKey
from oubli.client.session import Retries, Session
from oubli.client.transport import AsyncTransport, Transport, timeouts

if TYPE_CHECKING:
    import ssl

    import httpx2

P = ParamSpec("P")
T = TypeVar("T")


class _Shared:
    """What both clients have.

    Attributes
    ----------
    session : Session
        What all requests share.
    """

    session: Session

    @property
    def min_version(self) -> int:
        """The newest model version that this client has seen. Later requests are answered by this one or a newer.

        So a client reads its own writes whichever node of a cluster answers, and is told (503, `UnavailableError` of
        the kind `behind`) when a server was put back to an older state. `forget_version` begins anew.
        """
        return self.session.min_version

    def forget_version(self) -> None:
        """Forget which model version was seen, for a server that was put back on purpose."""
        self.session.forget_version()


def _session(retries: Retries | int, trusted_keys: Iterable[PublicKey] | None) -> Session:
    trusted = None if trusted_keys is None else {key.key_id: key.public_key for key in trusted_keys}
    return Session(Retries(retries) if isinstance(retries, int) else retries, trusted)


def _headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    return {**({} if api_key is None else {"Authorization": f"Bearer {api_key.strip()}"}), **(headers or {})}


def _waiting(operation: Callable[Concatenate[Session, P], Flow[T]]) -> Callable[Concatenate[Client, P], T]:
    @wraps(operation)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client.transport.run(operation(client.session, *args, **kwargs))

    return method


def _iterated(
    operation: Callable[Concatenate[Session, P], Emits[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    @wraps(operation)
    def method(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return client.transport.iterate(operation(client.session, *args, **kwargs))

    return method


def _awaiting(
    operation: Callable[Concatenate[Session, P], Flow[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    @wraps(operation)
    async def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client.transport.run(operation(client.session, *args, **kwargs))

    return method


def _async_iterated(
    operation: Callable[Concatenate[Session, P], Emits[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    @wraps(operation)
    def method(client: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return client.transport.iterate(operation(client.session, *args, **kwargs))

    return method


class Client(_Shared):
    """A client of a server of Oubli, for programs with threads or without. One client serves many threads.

    Parameters
    ----------
    url : str
        Of the server, such as ``"http://127.0.0.1:8000"``.
    api_key : str, optional
        Where the server asks for one.
    timeout : float or httpx2.Timeout
        Seconds to wait for the next bytes of an answer, and for a connection (at most 5).
    retries : Retries or int
        When a request is sent again; an integer is the largest number of repetitions.
    trusted_keys : iterable of PublicKey, optional
        The keys that `verify_receipt` trusts, as `keys` returned them once; by default those published at the time.
    verify : bool or ssl.SSLContext
        How the server's certificate is checked: against the system's authorities, or those of a context.
    headers : dict, optional
        Further headers of every request.
    http_client : httpx2.Client, optional
        Sends the requests instead of one made here, with its own timeouts, proxies and certificates; not closed here.

    Attributes
    ----------
    transport : Transport
        Carries out flows, and sends single requests (`transport.send`).

    Examples
    --------
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     client.add([[39, "State-gov"]], ["<=50K"], ids=["ada-1"], subjects="ada")
    ...     client.predict([[39, "State-gov"]]).predictions
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float | httpx2.Timeout = 60.0,
        retries: Retries | int = Retries(),  # noqa: B008 - it is immutable
        trusted_keys: Iterable[PublicKey] | None = None,
        verify: bool | ssl.SSLContext = True,
        headers: Mapping[str, str] | None = None,
        http_client: httpx2.Client | None = None,
    ) -> None:
        import httpx2

        self.session = _session(retries, trusted_keys)
        self._owned = None if http_client is not None else httpx2.Client(timeout=timeouts(timeout), verify=verify)
        self.transport = Transport(http_client or self._owned, url, _headers(api_key, headers))  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the connections."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    send = _waiting(operations.send)
    predict = _waiting(operations.predict)
    influence = _waiting(operations.influence)
    add = _waiting(operations.add)
    get = _waiting(operations.get)
    samples = _iterated(operations.samples)
    samples_frame = _waiting(operations.samples_frame)
    replace = _waiting(operations.replace)
    delete = _waiting(operations.delete)
    model = _waiting(operations.model)
    schema = _waiting(operations.schema)
    fit = _waiting(operations.fit)
    verify = _waiting(operations.verify)
    scrub = _waiting(operations.scrub)
    confirm_expiry = _waiting(operations.confirm_expiry)
    job = _waiting(operations.job)
    jobs = _waiting(operations.jobs)
    watch = _iterated(operations.watch)
    wait = _waiting(operations.wait)
    erasure = _waiting(operations.erasure)
    erasures = _waiting(operations.erasures)
    wait_erased = _waiting(operations.wait_erased)
    keys = _waiting(operations.keys)
    verify_receipt = _waiting(operations.verify_receipt)
    ledger = _iterated(operations.ledger)
    snapshot = _waiting(operations.snapshot)
    newest_snapshot = _waiting(operations.newest_snapshot)
    download_snapshot = _waiting(operations.download_snapshot)
    restore_snapshot = _waiting(operations.restore_snapshot)
    is_alive = _waiting(operations.is_alive)
    ready = _waiting(operations.ready)
    wait_ready = _waiting(operations.wait_ready)


class AsyncClient(_Shared):
    """A client of a server of Oubli, for asyncio and trio. Its methods are those of `Client`, awaited.

    Parameters
    ----------
    url, api_key, timeout, retries, trusted_keys, verify, headers
        As for `Client`.
    http_client : httpx2.AsyncClient, optional
        Sends the requests instead of one made here; not closed here.

    Attributes
    ----------
    transport : AsyncTransport
        Carries out flows, and sends single requests.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float | httpx2.Timeout = 60.0,
        retries: Retries | int = Retries(),  # noqa: B008 - it is immutable
        trusted_keys: Iterable[PublicKey] | None = None,
        verify: bool | ssl.SSLContext = True,
        headers: Mapping[str, str] | None = None,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        import httpx2

        self.session = _session(retries, trusted_keys)
        self._owned = None if http_client is not None else httpx2.AsyncClient(timeout=timeouts(timeout), verify=verify)
        self.transport = AsyncTransport(http_client or self._owned, url, _headers(api_key, headers))  # type: ignore[arg-type]

    async def close(self) -> None:
        """Close the connections."""
        if self._owned is not None:
            await self._owned.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    send = _awaiting(operations.send)
    predict = _awaiting(operations.predict)
    influence = _awaiting(operations.influence)
    add = _awaiting(operations.add)
    get = _awaiting(operations.get)
    samples = _async_iterated(operations.samples)
    samples_frame = _awaiting(operations.samples_frame)
    replace = _awaiting(operations.replace)
    delete = _awaiting(operations.delete)
    model = _awaiting(operations.model)
    schema = _awaiting(operations.schema)
    fit = _awaiting(operations.fit)
    verify = _awaiting(operations.verify)
    scrub = _awaiting(operations.scrub)
    confirm_expiry = _awaiting(operations.confirm_expiry)
    job = _awaiting(operations.job)
    jobs = _awaiting(operations.jobs)
    watch = _async_iterated(operations.watch)
    wait = _awaiting(operations.wait)
    erasure = _awaiting(operations.erasure)
    erasures = _awaiting(operations.erasures)
    wait_erased = _awaiting(operations.wait_erased)
    keys = _awaiting(operations.keys)
    verify_receipt = _awaiting(operations.verify_receipt)
    ledger = _async_iterated(operations.ledger)
    snapshot = _awaiting(operations.snapshot)
    newest_snapshot = _awaiting(operations.newest_snapshot)
    download_snapshot = _awaiting(operations.download_snapshot)
    restore_snapshot = _awaiting(operations.restore_snapshot)
    is_alive = _awaiting(operations.is_alive)
    ready = _awaiting(operations.ready)
    wait_ready = _awaiting(operations.wait_ready)
