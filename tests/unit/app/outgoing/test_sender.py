"""One attempt: to the address that was checked, for the name that was asked for, and what came of it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from oubli.app.outgoing.addresses import AddressRules, parse_endpoint
from oubli.app.outgoing.sender import Outcome, Sender
from tests.unit.app.outgoing.certificates import authority, certificate
from tests.unit.app.outgoing.receiver import ACCEPT, HANG, HANG_UP, Receiver, answer

SHORT = 0.3  # seconds that an attempt may take


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def sender(timeout: float = 5.0, **more: Any) -> Sender:
    return Sender(AddressRules(("127.0.0.0/8",), loopback), timeout, **more)


def posted(receiver: Receiver, by: Sender | None = None, path: str = "/hooks?key=a") -> Outcome:
    """Make one attempt at a receiver."""

    async def attempt() -> Outcome:
        async with receiver.listening():
            endpoint = parse_endpoint(f"http://privacy.example:{receiver.port}{path}", plain_http=True)
            sends = by or sender()
            outcome = await sends.post(endpoint, [("webhook-id", "one")], b'{"a":1}')
            sends.close()
            return outcome

    return asyncio.run(attempt())


def test_a_request_as_it_arrives(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    receiver = Receiver()
    assert posted(receiver) == Outcome(None, 202)
    (request,) = receiver.requests
    assert request.line == "POST /hooks?key=a HTTP/1.1"
    assert request.headers["host"] == f"privacy.example:{receiver.port}"
    assert request.headers["webhook-id"] == "one"
    assert request.headers["content-type"] == "application/json"
    assert request.body == b'{"a":1}'


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (answer(200), Outcome(None, 200)),
        (answer(204), Outcome(None, 204)),
        ("HTTP/1.1 103 Early Hints\r\n\r\n" + answer(200), Outcome(None, 200)),
        (answer(500), Outcome("status", 500)),
        (answer(404), Outcome("status", 404)),
        (answer(503, "Retry-After: 120"), Outcome("status", 503, 120.0)),
        (answer(503, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"), Outcome("status", 503)),
        (answer(429, "Retry-After: 99999999999999"), Outcome("status", 429)),
        ("HTTP/1.1 200 Fine\r\nContent-Length: 9999999\r\n\r\nbegun", Outcome(None, 200)),
        ("SSH-2.0-OpenSSH\r\n\r\n", Outcome("broken-answer")),
        ("HTTP/1.1 200 Fine\r\nX: " + 40_000 * "a" + "\r\n\r\n", Outcome("broken-answer")),
        (HANG_UP, Outcome("broken-answer")),
    ],
)
def test_what_comes_of_an_answer(said, outcome):
    assert posted(Receiver(lambda request: said)) == outcome


@pytest.mark.parametrize("said", [HANG, "HTTP/1.1 200 F"])
def test_a_receiver_that_hangs(said):
    assert posted(Receiver(lambda request: said), sender(SHORT)) == Outcome("timeout")


def test_one_connection_is_kept_of_requests_at_the_same_time():
    receiver = Receiver()

    async def attempts() -> int:
        async with receiver.listening():
            endpoint = parse_endpoint(f"http://privacy.example:{receiver.port}/hooks", plain_http=True)
            sends = sender()
            await asyncio.gather(*(sends.post(endpoint, [], b"{}") for _ in range(3)))
            await asyncio.sleep(0.05)
            n_open = sum(not writer.is_closing() for writer in receiver._writers)
            await sends.post(endpoint, [], b"{}")
            sends.close()
            return n_open

    assert asyncio.run(attempts()) == 1
    assert receiver.n_connections == 3


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status):
    receiver = Receiver(lambda request: answer(status, f"Location: http://127.0.0.1:{receiver.port}/other"))
    assert posted(receiver) == Outcome("status", status)
    assert len(receiver.requests) == 1


def test_nothing_reaches_an_address_that_is_refused():
    receiver = Receiver()
    assert posted(receiver, Sender(AddressRules((), loopback), 5.0)) == Outcome("refused-address")
    assert receiver.n_connections == 0


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(monkeypatch):
    """A name that answers otherwise the second time is not asked a second time."""
    asked = []

    async def changing(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    receiver = Receiver()  # listens on 127.0.0.1 only
    assert posted(receiver, Sender(AddressRules(("127.0.0.0/8",), changing), 5.0)) == Outcome("unreachable")
    assert asked == ["privacy.example"]
    assert receiver.n_connections == 0


def test_nobody_listens_and_nobody_is_there():
    async def attempt() -> tuple[Outcome, ...]:
        receiver = Receiver()
        async with receiver.listening():
            pass
        endpoint = parse_endpoint(f"http://privacy.example:{receiver.port}/", plain_http=True)

        async def none(host: str, port: int) -> list[str]:
            return []

        return await sender().post(endpoint, [], b""), await Sender(AddressRules((), none), 5.0).post(endpoint, [], b"")

    assert asyncio.run(attempt()) == (Outcome("unreachable"), Outcome("unresolved"))


def test_a_name_that_takes_for_ever_to_resolve():
    async def never(host: str, port: int) -> list[str]:
        await asyncio.sleep(1000)
        return []

    assert posted(Receiver(), Sender(AddressRules((), never), SHORT)) == Outcome("timeout")


def both(work: Callable[[Receiver, Sender, Any], Coroutine[Any, Any, None]], **more: Any) -> Receiver:
    async def run() -> Receiver:
        receiver, sends = Receiver(**more), sender()
        async with receiver.listening():
            await work(receiver, sends, parse_endpoint(f"http://privacy.example:{receiver.port}/", plain_http=True))
        sends.close()
        return receiver

    return asyncio.run(run())


def test_a_connection_serves_many_requests():
    async def five(receiver: Receiver, sends: Sender, endpoint: Any) -> None:
        for _ in range(5):
            assert (await sends.post(endpoint, [], b"{}")).failure is None

    receiver = both(five)
    assert (receiver.n_connections, len(receiver.requests)) == (1, 5)


def test_a_connection_that_was_closed_meanwhile_is_replaced():
    async def two(receiver: Receiver, sends: Sender, endpoint: Any) -> None:
        assert (await sends.post(endpoint, [], b"{}")).failure is None
        assert (await sends.post(endpoint, [], b"{}")).failure is None

    # The second request meets a receiver that hangs up once.
    said = iter((ACCEPT, HANG_UP, ACCEPT))
    receiver = both(two, answers=lambda request: next(said))
    assert (receiver.n_connections, len(receiver.requests)) == (2, 3)


@pytest.mark.parametrize(("name", "outcome"), [("privacy.example", None), ("other.example", "untrusted")])
def test_tls_is_for_the_name_and_not_for_the_address(tmp_path, name, outcome):
    issuer = authority()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*certificate(tmp_path, issuer, name))
    receiver = Receiver()

    async def attempt(tls: ssl.SSLContext | None) -> Outcome:
        async with receiver.listening(server):
            endpoint = parse_endpoint(f"https://privacy.example:{receiver.port}/")
            sends = sender(tls=tls)
            found = await sends.post(endpoint, [], b"{}")
            sends.close()
            return found

    assert asyncio.run(attempt(ssl.create_default_context(cadata=issuer.pem))).failure == outcome
    assert len(receiver.requests) == (outcome is None)
    assert asyncio.run(attempt(None)).failure == "untrusted"  # an authority that no one knows
