"""TLS: the server's certificate and its key, read from files and read again when they were renewed."""

from __future__ import annotations

import ssl
from typing import TypedDict

from oubli.app.errors import StartError
from oubli.app.settings import Settings

_SHUTDOWN_SECONDS = 2.0  # for a client to end TLS, too


class TlsTimeouts(TypedDict, total=False):
    """Seconds, named as `create_server` has them."""

    ssl_handshake_timeout: float
    ssl_shutdown_timeout: float


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the context for the certificate in the settings; None when the server speaks plain HTTP.

    Raises
    ------
    StartError
        When a file cannot be read, or certificate and key do not belong together.
    """
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: Settings) -> None:
    """Read certificate and key into a context; connections made from now on get them.

    Raises
    ------
    StartError
        When they cannot be used; the context is as before then.
    """
    if settings.tls_cert_file is None:
        return
    try:
        for each in (ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), context):  # first one that nobody uses
            each.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, password=_refuse)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "it is no PEM file"
        raise StartError(
            f"tls_cert_file {settings.tls_cert_file} and tls_key_file {settings.tls_key_file} cannot be used "
            f"({reason}): give a certificate chain and its key without a passphrase, both in PEM"
        ) from None


def _refuse() -> str:
    """OpenSSL would ask for a passphrase at the terminal."""
    raise ValueError("the key has a passphrase")


def tls_timeouts(tls: ssl.SSLContext | None, settings: Settings) -> TlsTimeouts:
    """Return how long the two ends of a TLS connection may take, as `create_server` has them.

    By default a client that does not answer the end of its connection would hold up the end of the server for half a
    minute.
    """
    if tls is None:
        return {}
    return {"ssl_handshake_timeout": settings.head_timeout, "ssl_shutdown_timeout": _SHUTDOWN_SECONDS}
