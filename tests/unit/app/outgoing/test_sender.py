"""One attempt: to the address that was checked, for the name that was asked for, and what came of it."""

import asyncio
import ssl
from typing import Any

import pytest

from oubli.app.outgoing.addresses import AddressRules, parse_endpoint
from oubli.app.outgoing.sender import Outcome, Sender
from tests.unit.app.outgoing.certificates import authority, certificate
from tests.unit.app.outgoing.receiver import ACCEPT, HANG, HANG_UP, Receiver, answer

pytestmark = pytest.mark.anyio
SHORT = 0.3  # seconds that an attempt may take


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


def sender(timeout: float = 5.0, **more: Any) -> Sender:
    return Sender(AddressRules(("127.0.0.0/8",), loopback), timeout, **more)


URL = "http://privacy.example:PORT/hooks?key=a"  # with the port of the receiver


async def attempts(
    receiver: Receiver, by: Sender | None = None, n: int = 1, url: str = URL, tls: ssl.SSLContext | None = None
) -> list[Outcome]:
    """Make attempts at a receiver, one after the other."""
    async with receiver.listening(tls):
        endpoint = parse_endpoint(url.replace("PORT", str(receiver.port)), plain_http=True)
        sends = by or sender()
        outcomes = [await sends.post(endpoint, [("webhook-id", "one")], b'{"a":1}') for _ in range(n)]
        sends.close()
        return outcomes


async def test_a_request_as_it_arrives(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    receiver = Receiver()
    assert await attempts(receiver) == [Outcome(None, 202)]
    (request,) = receiver.requests
    assert (request.line, request.body) == ("POST /hooks?key=a HTTP/1.1", b'{"a":1}')
    headers = {"host": f"privacy.example:{receiver.port}", "webhook-id": "one", "content-type": "application/json"}
    assert headers.items() <= request.headers.items()


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        *((answer(n), Outcome(None, n)) for n in (200, 204)),
        ("HTTP/1.1 103 Early Hints\r\n\r\n" + answer(200), Outcome(None, 200)),
        *((answer(n), Outcome("status", n)) for n in (500, 404)),
        # No redirect is followed.
        *((answer(n, "Location: http://127.0.0.1:9/"), Outcome("status", n)) for n in (301, 302, 303, 307, 308)),
        (answer(503, "Retry-After: 120"), Outcome("status", 503, 120.0)),
        (answer(503, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT"), Outcome("status", 503)),
        (answer(429, "Retry-After: 99999999999999"), Outcome("status", 429)),
        ("HTTP/1.1 200 Fine\r\nContent-Length: 9999999\r\n\r\nbegun", Outcome(None, 200)),
        ("SSH-2.0-OpenSSH\r\n\r\n", Outcome("broken-answer")),
        ("HTTP/1.1 200 Fine\r\nX: " + 40_000 * "a" + "\r\n\r\n", Outcome("broken-answer")),
        (HANG_UP, Outcome("broken-answer")),
        *((text, Outcome("timeout")) for text in (HANG, "HTTP/1.1 200 F")),
    ],
)
async def test_what_comes_of_an_answer(said, outcome):
    receiver = Receiver(lambda request: said)
    by = sender(SHORT if outcome.failure == "timeout" else 5.0)
    assert await attempts(receiver, by) == [outcome]
    assert len(receiver.requests) == 1


async def nobody(host: str, port: int) -> list[str]:
    return []


async def never(host: str, port: int) -> list[str]:
    await asyncio.sleep(1000)
    return []


async def test_nothing_reaches_an_address_that_is_refused_or_not_found():
    receiver = Receiver()
    for resolve, failure in ((loopback, "refused-address"), (nobody, "unresolved"), (never, "timeout")):
        assert await attempts(receiver, Sender(AddressRules((), resolve), SHORT)) == [Outcome(failure)]
    assert receiver.n_connections == 0
    endpoint = parse_endpoint(f"http://privacy.example:{receiver.port}/", plain_http=True)  # where nothing listens now
    assert await sender().post(endpoint, [], b"") == Outcome("unreachable")


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(monkeypatch):
    """A name that answers otherwise the second time is not asked a second time."""
    asked = []

    async def changing(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    receiver = Receiver()  # listens on 127.0.0.1 only
    by = Sender(AddressRules(("127.0.0.0/8",), changing), 5.0)
    assert await attempts(receiver, by) == [Outcome("unreachable")]
    assert (asked, receiver.n_connections) == (["privacy.example"], 0)


@pytest.mark.parametrize(
    ("n", "said", "connections_and_requests"),
    [(5, [ACCEPT] * 5, (1, 5)), (2, [ACCEPT, HANG_UP, ACCEPT], (2, 3))],
    ids=["a connection serves many requests", "one that was closed meanwhile is replaced"],
)
async def test_connections(n, said, connections_and_requests):
    answers = iter(said)
    receiver = Receiver(lambda request: next(answers))
    assert await attempts(receiver, n=n) == [Outcome(None, 202)] * n
    assert (receiver.n_connections, len(receiver.requests)) == connections_and_requests


@pytest.mark.parametrize(("name", "outcome"), [("privacy.example", None), ("other.example", "untrusted")])
async def test_tls_is_for_the_name_and_not_for_the_address(tmp_path, name, outcome):
    issuer, receiver = authority(), Receiver()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*certificate(tmp_path, issuer, name))
    found = []
    for tls in (ssl.create_default_context(cadata=issuer.pem), None):  # None knows nothing of this authority
        (one,) = await attempts(receiver, sender(tls=tls), url="https://privacy.example:PORT/", tls=server)
        found.append(one.failure)
    assert found == [outcome, "untrusted"]
    assert len(receiver.requests) == (outcome is None)
