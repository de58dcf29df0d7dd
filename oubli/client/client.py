"""`Client` waits and `AsyncClient` awaits. Both have the functions of `operations` as methods."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from oubli.api.ledger import PublicKey
from oubli.client.messages import Emits, Flow
from oubli.client.operations import evidence, predictions, requests
from oubli.client.operations import jobs as jobs_
from oubli.client.operations import model as model_
from oubli.client.operations import samples as samples_
from oubli.client.session import Retries, Servers, Session
from oubli.client.transport import AsyncTransport, Transport, address, timeouts

if TYPE_CHECKING:
    import ssl

    import httpx2

P = ParamSpec("P")
T = TypeVar("T")


class _Method:
    """An operation as a method of both clients: a client has its transport carry out the flow."""

    def __init__(self, operation: Callable[..., Any], carry_out: str) -> None:
        @wraps(operation)
        def method(client: Client | AsyncClient, /, *args: Any, **kwargs: Any) -> Any:
            return getattr(client.transport, carry_out)(operation(client.session, *args, **kwargs))

        self._method = method

    def bound(self, client: Client | AsyncClient | None) -> Callable[..., Any]:
        """Return the method of a client; without one its function."""
        return self._method if client is None else MethodType(self._method, client)


class _Operation(_Method, Generic[P, T]):
    """An operation with one result: `Client` returns it, `AsyncClient` returns a coroutine of it."""

    def __init__(self, operation: Callable[Concatenate[Session, P], Flow[T]]) -> None:
        super().__init__(operation, "run")

    @overload
    def __get__(self, client: None, owner: type[_Shared]) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: Client, owner: type[_Shared]) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type[_Shared]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: type[_Shared]) -> Any:
        return self.bound(client)


class _Iteration(_Method, Generic[P, T]):
    """An operation that is iterated over, with `for` or with `async for`."""

    def __init__(self, operation: Callable[Concatenate[Session, P], Emits[T]]) -> None:
        super().__init__(operation, "iterate")

    @overload
    def __get__(self, client: None, owner: type[_Shared]) -> Callable[..., Any]: ...
    @overload
    def __get__(self, client: Client, owner: type[_Shared]) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncClient, owner: type[_Shared]) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: type[_Shared]) -> Any:
        return self.bound(client)


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

        So a client reads its own writes whichever node of a cluster answers. A server that was restored to an older
        state answers 503 (`UnavailableError` of the kind `behind`); see `forget_version`.
        """
        return self.session.min_version

    def forget_version(self) -> None:
        """Forget the newest version, for a server that was restored to an older state on purpose.

        Examples
        --------
        >>> client.forget_version()
        >>> client.min_version
        0
        """
        self.session.forget_version()

    send = _Operation(requests.send)
    predict = _Operation(predictions.predict)
    predict_signed = _Operation(predictions.predict_signed)
    explain = _Operation(predictions.explain)
    influence = _Operation(predictions.influence)
    predict_without = _Operation(model_.predict_without)
    importances = _Operation(model_.importances)
    tree = _Operation(model_.tree)
    columns = _Operation(model_.columns)
    access = _Operation(model_.access)
    add = _Operation(samples_.add)
    get = _Operation(samples_.get)
    samples = _Iteration(samples_.samples)
    samples_frame = _Operation(samples_.samples_frame)
    replace = _Operation(samples_.replace)
    delete = _Operation(samples_.delete)
    delete_listing = _Operation(samples_.delete_listing)
    restrict = _Operation(samples_.restrict)
    release = _Operation(samples_.release)
    retain = _Operation(samples_.retain)
    export = _Operation(samples_.export)
    model = _Operation(model_.model)
    schema = _Operation(model_.schema)
    fit = _Operation(model_.fit)
    verify = _Operation(model_.verify)
    scrub = _Operation(model_.scrub)
    confirm_expiry = _Operation(model_.confirm_expiry)
    job = _Operation(jobs_.job)
    jobs = _Operation(jobs_.jobs)
    cancel = _Operation(jobs_.cancel)
    watch = _Iteration(jobs_.watch)
    wait = _Operation(jobs_.wait)
    erasure = _Operation(evidence.erasure)
    erasures = _Operation(evidence.erasures)
    wait_erased = _Operation(evidence.wait_erased)
    dead_letters = _Iteration(evidence.dead_letters)
    redeliver = _Operation(evidence.redeliver)
    keys = _Operation(evidence.keys)
    verify_receipt = _Operation(evidence.verify_receipt)
    ledger = _Iteration(evidence.ledger)
    tell_state = _Operation(model_.tell_state)
    states = _Iteration(model_.states)
    state = _Operation(model_.state)
    prove_absence = _Operation(model_.prove_absence)
    snapshot = _Operation(model_.snapshot)
    newest_snapshot = _Operation(model_.newest_snapshot)
    download_snapshot = _Operation(model_.download_snapshot)
    restore_snapshot = _Operation(model_.restore_snapshot)
    is_alive = _Operation(model_.is_alive)
    ready = _Operation(model_.ready)
    wait_ready = _Operation(model_.wait_ready)
    cluster = _Operation(model_.cluster)
    remove_node = _Operation(model_.remove_node)


def _session(addresses: Sequence[str], retries: Retries | int, trusted_keys: Iterable[PublicKey] | None) -> Session:
    trusted = None if trusted_keys is None else {key.key_id: key.public_key for key in trusted_keys}
    # Chosen by chance, so that many clients with the same addresses do not all read from the first.
    servers = Servers(addresses, random.randrange(len(addresses)))  # noqa: S311 - no secret
    return Session(Retries(retries) if isinstance(retries, int) else retries, trusted, servers)


def _addresses(url: str | Sequence[str]) -> list[str]:
    """Return the addresses of a client, each of them once."""
    found = list(dict.fromkeys(map(address, [url] if isinstance(url, str) else url)))
    if not found:
        raise ValueError("the client needs the server's address")
    return found


def _headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    return {**({} if api_key is None else {"Authorization": f"Bearer {api_key.strip()}"}), **(headers or {})}


class Client(_Shared):
    """A client of a server of Oubli, for programs with threads or without. One client serves many threads.

    Parameters
    ----------
    url : str or list of str
        Of the server, such as ``"http://127.0.0.1:8000"``, or of several nodes of a cluster: changes go to the leader,
        everything else to any node that answers.
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
    >>> url = "http://127.0.0.1:8000"  # doctest: +SKIP
    >>> with Client(url) as client:
    ...     added = client.add([[39, "a", True]], ["yes"], ids=["eve-1"], subjects="eve")
    ...     print(client.predict([[39, "a", True]]).model_version >= added.model_version)
    True
    """

    def __init__(
        self,
        url: str | Sequence[str],
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

        addresses = _addresses(url)
        self.session = _session(addresses, retries, trusted_keys)
        self._owned = None if http_client is not None else httpx2.Client(timeout=timeouts(timeout), verify=verify)
        self.transport = Transport(http_client or self._owned, addresses[0], _headers(api_key, headers))  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the connections.

        Examples
        --------
        >>> client = Client(url)
        >>> client.close()
        """
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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

    Examples
    --------
    >>> async def forget(person: str) -> int:
    ...     async with AsyncClient("http://127.0.0.1:8000") as client:
    ...         receipt = await client.delete(subjects=person)
    ...         return receipt.unlearned
    """

    def __init__(
        self,
        url: str | Sequence[str],
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

        addresses = _addresses(url)
        self.session = _session(addresses, retries, trusted_keys)
        self._owned = None if http_client is not None else httpx2.AsyncClient(timeout=timeouts(timeout), verify=verify)
        self.transport = AsyncTransport(http_client or self._owned, addresses[0], _headers(api_key, headers))  # type: ignore[arg-type]

    async def close(self) -> None:
        """Close the connections.

        Examples
        --------
        >>> async def look() -> bool:
        ...     client = AsyncClient(url)
        ...     is_alive = await client.is_alive()
        ...     await client.close()
        ...     return is_alive
        >>> import asyncio
        >>> asyncio.run(look())
        True
        """
        if self._owned is not None:
            await self._owned.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
