"""`Client` and `AsyncClient`: the operations as methods, one waiting, one awaiting. Their logic is in `operations`."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from oubli.client.messages import Emits, Flow
from oubli.client.operations import (
    evidence,
    health,
    inspection,
    job_progress,
    model_states,
    predictions,
    requests,
    sample_set,
    snapshots,
    subject_rights,
    training,
)
from oubli.client.results import PublicKey
from oubli.client.servers import Servers
from oubli.client.session import Retries, Session
from oubli.client.transport import AsyncTransport, Transport, address, timeouts

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
    >>> with Client("http://127.0.0.1:8000") as client:  # doctest: +SKIP
    ...     client.add([[39, "State-gov"]], ["<=50K"], ids=["ada-1"], subjects="ada")
    ...     client.predict([[39, "State-gov"]]).predictions
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
        """Close the connections."""
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    send = _waiting(requests.send)
    predict = _waiting(predictions.predict)
    predict_signed = _waiting(predictions.predict_signed)
    influence = _waiting(predictions.influence)
    predict_without = _waiting(inspection.predict_without)
    importances = _waiting(inspection.importances)
    tree = _waiting(inspection.tree)
    columns = _waiting(inspection.columns)
    access = _waiting(inspection.access)
    add = _waiting(sample_set.add)
    get = _waiting(sample_set.get)
    samples = _iterated(sample_set.samples)
    samples_frame = _waiting(sample_set.samples_frame)
    replace = _waiting(sample_set.replace)
    delete = _waiting(sample_set.delete)
    delete_listing = _waiting(sample_set.delete_listing)
    restrict = _waiting(subject_rights.restrict)
    release = _waiting(subject_rights.release)
    retain = _waiting(subject_rights.retain)
    export = _waiting(subject_rights.export)
    model = _waiting(training.model)
    schema = _waiting(training.schema)
    fit = _waiting(training.fit)
    verify = _waiting(training.verify)
    scrub = _waiting(training.scrub)
    confirm_expiry = _waiting(training.confirm_expiry)
    job = _waiting(job_progress.job)
    jobs = _waiting(job_progress.jobs)
    watch = _iterated(job_progress.watch)
    wait = _waiting(job_progress.wait)
    erasure = _waiting(evidence.erasure)
    erasures = _waiting(evidence.erasures)
    wait_erased = _waiting(evidence.wait_erased)
    dead_letters = _iterated(evidence.dead_letters)
    redeliver = _waiting(evidence.redeliver)
    keys = _waiting(evidence.keys)
    verify_receipt = _waiting(evidence.verify_receipt)
    ledger = _iterated(evidence.ledger)
    tell_state = _waiting(model_states.tell_state)
    states = _iterated(model_states.states)
    state = _waiting(model_states.state)
    prove_absence = _waiting(model_states.prove_absence)
    snapshot = _waiting(snapshots.snapshot)
    newest_snapshot = _waiting(snapshots.newest_snapshot)
    download_snapshot = _waiting(snapshots.download_snapshot)
    restore_snapshot = _waiting(snapshots.restore_snapshot)
    is_alive = _waiting(health.is_alive)
    ready = _waiting(health.ready)
    wait_ready = _waiting(health.wait_ready)
    cluster = _waiting(health.cluster)
    remove_node = _waiting(health.remove_node)


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
        """Close the connections."""
        if self._owned is not None:
            await self._owned.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    send = _awaiting(requests.send)
    predict = _awaiting(predictions.predict)
    predict_signed = _awaiting(predictions.predict_signed)
    influence = _awaiting(predictions.influence)
    predict_without = _awaiting(inspection.predict_without)
    importances = _awaiting(inspection.importances)
    tree = _awaiting(inspection.tree)
    columns = _awaiting(inspection.columns)
    access = _awaiting(inspection.access)
    add = _awaiting(sample_set.add)
    get = _awaiting(sample_set.get)
    samples = _async_iterated(sample_set.samples)
    samples_frame = _awaiting(sample_set.samples_frame)
    replace = _awaiting(sample_set.replace)
    delete = _awaiting(sample_set.delete)
    delete_listing = _awaiting(sample_set.delete_listing)
    restrict = _awaiting(subject_rights.restrict)
    release = _awaiting(subject_rights.release)
    retain = _awaiting(subject_rights.retain)
    export = _awaiting(subject_rights.export)
    model = _awaiting(training.model)
    schema = _awaiting(training.schema)
    fit = _awaiting(training.fit)
    verify = _awaiting(training.verify)
    scrub = _awaiting(training.scrub)
    confirm_expiry = _awaiting(training.confirm_expiry)
    job = _awaiting(job_progress.job)
    jobs = _awaiting(job_progress.jobs)
    watch = _async_iterated(job_progress.watch)
    wait = _awaiting(job_progress.wait)
    erasure = _awaiting(evidence.erasure)
    erasures = _awaiting(evidence.erasures)
    wait_erased = _awaiting(evidence.wait_erased)
    dead_letters = _async_iterated(evidence.dead_letters)
    redeliver = _awaiting(evidence.redeliver)
    keys = _awaiting(evidence.keys)
    verify_receipt = _awaiting(evidence.verify_receipt)
    ledger = _async_iterated(evidence.ledger)
    tell_state = _awaiting(model_states.tell_state)
    states = _async_iterated(model_states.states)
    state = _awaiting(model_states.state)
    prove_absence = _awaiting(model_states.prove_absence)
    snapshot = _awaiting(snapshots.snapshot)
    newest_snapshot = _awaiting(snapshots.newest_snapshot)
    download_snapshot = _awaiting(snapshots.download_snapshot)
    restore_snapshot = _awaiting(snapshots.restore_snapshot)
    is_alive = _awaiting(health.is_alive)
    ready = _awaiting(health.ready)
    wait_ready = _awaiting(health.wait_ready)
    cluster = _awaiting(health.cluster)
    remove_node = _awaiting(health.remove_node)
