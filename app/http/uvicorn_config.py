"""How uvicorn is set up, and how many connections it may have."""

from __future__ import annotations

import ssl
from typing import Any, Literal

import uvicorn

from oubli.app.http.connections import ConnectionLimits, Connections, parse_networks
from oubli.app.http.sockets import BACKLOG
from oubli.app.settings import Settings
from oubli.app.storage.descriptors import connections_allowed


def server_config(
    app: Any, protocol: Any = "auto", *, tls: ssl.SSLContext | None = None, lifespan: Literal["on", "off"] = "on"
) -> uvicorn.Config:
    """Return uvicorn's settings: uvloop and httptools where they run, and nothing said or asked beyond need."""
    return uvicorn.Config(
        app,
        http=protocol,
        workers=1,
        backlog=BACKLOG,
        access_log=False,  # its lines hold paths, and paths hold ids
        log_config=None,
        server_header=False,
        proxy_headers=False,  # the application knows whom to trust
        ssl_context_factory=None if tls is None else lambda *_: tls,
        interface="asgi3",
        ws="none",
        lifespan=lifespan,
    )


def connections_of(settings: Settings) -> Connections:
    """Return the connections of a server, as many as the process may have descriptors for."""
    most = connections_allowed(settings.max_connections)
    return Connections(
        ConnectionLimits(
            most=most,
            most_of_address=settings.max_connections_per_address or max(1, most // 2),
            trusted=parse_networks(settings.trusted_proxies),
            head_seconds=settings.head_timeout,
            body_seconds=settings.body_timeout,
            idle_seconds=settings.idle_timeout,
        )
    )
