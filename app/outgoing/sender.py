"""A request to another server: one attempt, on the event loop, over a connection to a checked address; signatures.

    resolve -> check -> connect to that address -> TLS for the host's name -> request -> status

There is no redirect that is followed, no proxy, no cookie. Of the answer its status is read, how long to wait, and a
short body, which webhooks do not look at. A connection is kept for the next request to the same endpoint for a while: a
handshake takes the loop longer than a request. It uses asyncio's streams and h11, which the server has already:
an HTTP client resolves names itself, and would have to be kept from proxies and redirects.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import h11
from cryptography import x509
from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from standardwebhooks import Webhook

from oubli.app.errors import StartError
from oubli.app.outgoing.addresses import AddressRules, Endpoint, RefusedAddressError, UnresolvedError
from oubli.app.version import VERSION

Failure = Literal["refused-address", "unresolved", "unreachable", "untrusted", "timeout", "broken-answer", "status"]
Headers = Sequence[tuple[str, str]]

_LARGEST_HEAD = 16 * 1024
_LARGEST_BODY = 64 * 1024  # of an answer; of a larger one the connection is closed
_PIECE = 16 * 1024
_KEPT = 30.0  # seconds for which a connection may wait for the next request
_LONGEST = 300.0  # seconds after which the name is resolved again
_REST = 1.0  # seconds for the rest of an answer whose status is known
_MOST_ADDRESSES = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one attempt.

    Attributes
    ----------
    failure
        Why it is not delivered; None when it is.
    status
        Of the answer, when there was one.
    retry_after
        Seconds for which the receiver asks to be left alone.
    body
        Of the answer; empty when it was too long or did not come in time.
    """

    failure: Failure | None
    status: int | None = None
    retry_after: float = 0.0
    body: bytes = b""


class _ClosedError(Exception):
    """The other side has closed the connection before it said anything."""


class _Connection:
    """One connection to one address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT, _LARGEST_HEAD)
        self._opened = self._used = time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether it may be used again."""
        now = time.monotonic()
        is_young = now - self._used < _KEPT and now - self._opened < _LONGEST
        return is_young and not self._reader.at_eof() and not self._writer.is_closing()

    async def exchange(self, method: str, endpoint: Endpoint, headers: Headers, body: bytes) -> tuple[Outcome, bool]:
        """Send a request and read the answer; also return whether the connection can be kept.

        Raises
        ------
        _ClosedError
            When the other side has gone without a word.
        h11.RemoteProtocolError, OSError
            When it is not HTTP, or breaks off.
        """
        protocol = self._protocol
        request = h11.Request(method=method, target=endpoint.target, headers=list(headers))
        data = (protocol.send(request), protocol.send(h11.Data(data=body)), protocol.send(h11.EndOfMessage()))
        self._writer.write(b"".join(part for part in data if part))
        await self._writer.drain()
        response = await self._event()
        while not isinstance(response, h11.Response):
            response = await self._event()
        outcome = _outcome(response)
        with contextlib.suppress(TimeoutError, OSError, h11.RemoteProtocolError, _ClosedError):
            async with asyncio.timeout(_REST):
                outcome = replace(outcome, body=await self._read_body())
        if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
            return outcome, False
        protocol.start_next_cycle()
        self._used = time.monotonic()
        return outcome, True

    def close(self) -> None:
        """Close it at once: there is nothing to wait for."""
        self._writer.transport.abort()

    async def _event(self) -> h11.Event:
        """Return the next piece of the answer."""
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(_PIECE)
                if not data and self._protocol.their_state is h11.SEND_RESPONSE and not self._protocol.trailing_data[0]:
                    raise _ClosedError
                self._protocol.receive_data(data)
            elif isinstance(event, h11.Event):
                return event
            else:  # h11.PAUSED: never before the answer is whole
                raise _ClosedError

    async def _read_body(self) -> bytes:
        body = bytearray()
        while len(body) <= _LARGEST_BODY:
            event = await self._event()
            if not isinstance(event, h11.Data):
                return bytes(body)
            body += event.data
        return b""


class Sender:
    """Sends requests, one attempt each.

    Parameters
    ----------
    rules
        Which addresses may be connected to.
    timeout
        Seconds that an attempt may take, from the resolving of the name to the status.
    tls
        Checks certificates and names; by default against the system's authorities.
    """

    def __init__(self, rules: AddressRules, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        self._rules = rules
        self._timeout = timeout
        self._tls = ssl.create_default_context() if tls is None else tls
        self._kept: dict[Endpoint, _Connection] = {}

    async def post(self, endpoint: Endpoint, headers: Headers, body: bytes) -> Outcome:
        """Make one attempt to send JSON; see `request`. The body of the answer is not kept."""
        outcome = await self.request("POST", endpoint, (("Content-Type", "application/json"), *headers), body)
        return replace(outcome, body=b"")

    async def request(self, method: str, endpoint: Endpoint, headers: Headers = (), body: bytes = b"") -> Outcome:
        """Make one attempt; the outcome says what happened.

        Parameters
        ----------
        method
            `GET` or `POST`.
        endpoint
            Where to.
        headers
            Besides those that every request has.
        body
            What is sent.
        """
        whole = (
            ("Host", endpoint.authority),
            ("User-Agent", f"Oubli/{VERSION}"),
            ("Content-Length", str(len(body))),
            *headers,
        )
        try:
            async with asyncio.timeout(self._timeout):
                return await self._request(method, endpoint, whole, body)
        except TimeoutError:
            return Outcome("timeout")
        except UnresolvedError:
            return Outcome("unresolved")
        except RefusedAddressError:
            return Outcome("refused-address")
        except ssl.SSLError:
            return Outcome("untrusted")
        except (h11.RemoteProtocolError, _ClosedError):
            return Outcome("broken-answer")
        except OSError:
            return Outcome("unreachable")

    def close(self) -> None:
        """Close what is kept."""
        while self._kept:
            self._kept.popitem()[1].close()

    async def _request(self, method: str, endpoint: Endpoint, headers: Headers, body: bytes) -> Outcome:
        kept = self._kept.pop(endpoint, None)
        if kept is not None and kept.is_fresh:
            # The other side may close it at the very moment of the request: then a new one is made.
            with contextlib.suppress(_ClosedError, OSError):
                return await self._exchange(kept, method, endpoint, headers, body)
        elif kept is not None:
            kept.close()
        connection = await self._connect(endpoint)
        return await self._exchange(connection, method, endpoint, headers, body)

    async def _exchange(
        self, connection: _Connection, method: str, endpoint: Endpoint, headers: Headers, body: bytes
    ) -> Outcome:
        is_kept = False
        try:
            outcome, can_be_kept = await connection.exchange(method, endpoint, headers, body)
            # Of requests that were under way at the same time, the first to end leaves its connection.
            is_kept = can_be_kept and self._kept.setdefault(endpoint, connection) is connection
        finally:
            if not is_kept:
                connection.close()
        return outcome

    async def _connect(self, endpoint: Endpoint) -> _Connection:
        """Connect to one of the addresses of the host: the first that answers."""
        failed: OSError | None = None
        for address in (await self._rules.addresses(endpoint))[:_MOST_ADDRESSES]:
            try:
                reader, writer = await asyncio.open_connection(
                    str(address),
                    endpoint.port,
                    limit=_PIECE,
                    ssl=self._tls if endpoint.is_tls else None,
                    server_hostname=endpoint.host if endpoint.is_tls else None,
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failed = error
            else:
                return _Connection(reader, writer)
        raise failed or UnresolvedError


def _outcome(response: h11.Response) -> Outcome:
    status = response.status_code
    if 200 <= status < 300:
        return Outcome(None, status)
    after = next((value for name, value in response.headers if name == b"retry-after"), b"")
    return Outcome("status", status, float(after) if after.isdigit() and len(after) < 7 else 0.0)


SECRET_PREFIX = "whsec_"  # noqa: S105 - the beginning of every secret
_SHORTEST_SECRET, _LONGEST_SECRET = 24, 64  # bytes, by the standard


class WebhookSigner:
    """Signs messages as Standard Webhooks has them: `webhook-id`, `webhook-timestamp` and `webhook-signature`.

    Parameters
    ----------
    secrets
        As they are written, `whsec_...`. There is a signature for each, so that receivers can change from one to the
        next.

    Raises
    ------
    ValueError
        When one is none; the text does not repeat it.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        for secret in secrets:
            try:
                raw = base64.b64decode(secret.removeprefix(SECRET_PREFIX) + "==", validate=False)
            except (binascii.Error, ValueError):
                raw = b""
            if not secret.startswith(SECRET_PREFIX) or not _SHORTEST_SECRET <= len(raw) <= _LONGEST_SECRET:
                raise ValueError(
                    f"must be {SECRET_PREFIX} and the base64 of {_SHORTEST_SECRET} to {_LONGEST_SECRET} bytes"
                )
        if not secrets:
            raise ValueError("holds no secret")
        self._hooks = [Webhook(secret) for secret in secrets]

    def headers(self, message_id: str, at: float, body: bytes) -> list[tuple[str, str]]:
        """Return the headers of an attempt.

        Parameters
        ----------
        message_id
            The same for each attempt.
        at
            When the attempt is made, in seconds since 1970.
        body
            Exactly what is sent.
        """
        moment, text = datetime.fromtimestamp(int(at), UTC), body.decode("utf-8")
        return [
            ("webhook-id", message_id),
            ("webhook-timestamp", str(int(at))),
            ("webhook-signature", " ".join(hook.sign(message_id, moment, text) for hook in self._hooks)),
        ]


def read_secrets(path: Path) -> WebhookSigner:
    """Return the signer for the secrets in a file, one a line.

    Raises
    ------
    StartError
        When the file cannot be read or holds something else; the text names the file only.
    """
    try:
        lines = path.read_text(encoding="ascii").split()
        return WebhookSigner(lines)
    except OSError as error:
        raise StartError(f"webhook_secret_file {path} cannot be read ({error.strerror}): see to their owner") from None
    except ValueError:
        raise StartError(
            f"webhook_secret_file {path} must hold secrets of Standard Webhooks, one a line: {SECRET_PREFIX} and the "
            f"base64 of {_SHORTEST_SECRET} to {_LONGEST_SECRET} bytes. Make one with "
            f"`echo {SECRET_PREFIX}$(openssl rand -base64 32)`"
        ) from None


class ProcessorSigner:
    """Signs what OpenDSR has a processor sign: answers and callbacks, with the key of its certificate.

    Parameters
    ----------
    domain
        That the certificate is for.
    certificate
        The chain, in PEM.
    key
        Its private key.
    """

    def __init__(self, domain: str, certificate: bytes, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self.domain = domain
        self.certificate = certificate
        self._key = key

    def headers(self, body: bytes) -> list[tuple[str, str]]:
        """Return the headers that a body is sent with. Signing with RSA takes a millisecond."""
        return [("X-OpenDSR-Processor-Domain", self.domain), ("X-OpenDSR-Signature", self.sign(body))]

    def sign(self, body: bytes) -> str:
        """Return the signature of the SHA-256 of a body, in base64."""
        if isinstance(self._key, rsa.RSAPrivateKey):
            signature = self._key.sign(body, padding.PKCS1v15(), hashes.SHA256())
        else:
            signature = self._key.sign(body, ec.ECDSA(hashes.SHA256()))
        return base64.b64encode(signature).decode("ascii")


def read_processor(domain: str, certificate_file: Path, key_file: Path) -> ProcessorSigner:
    """Return the signer for a certificate and its key, in PEM files.

    Raises
    ------
    StartError
        When they cannot be read, do not belong together, or the certificate is not for the domain.
    """
    named = f"opendsr_cert_file {certificate_file} and opendsr_key_file {key_file}"
    try:
        chain = certificate_file.read_bytes()
        certificate = x509.load_pem_x509_certificates(chain)[0]
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    except OSError as error:
        raise StartError(f"{named} cannot be read ({error.strerror}): see to their owner") from None
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):  # TypeError: a passphrase is needed
        raise StartError(
            f"{named} cannot be used: give a certificate chain and its key without a passphrase, in PEM"
        ) from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise StartError(f"{named}: OpenDSR signs with RSA or ECDSA, give a key of one of these kinds")
    if key.public_key() != certificate.public_key():
        raise StartError(f"{named} do not belong together: give the key of this certificate")
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        known = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    except x509.ExtensionNotFound:
        known = []
    if domain not in known:
        raise StartError(f"{named}: the certificate does not name the domain in opendsr_domain")
    return ProcessorSigner(domain, chain, key)
