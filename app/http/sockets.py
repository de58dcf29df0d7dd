"""The address a server listens on, taken before anything long begins."""

import socket

from oubli.app.errors import StartError

BACKLOG = 2048
"""Connections that may wait to be accepted."""


def bind(host: str, port: int) -> list[socket.socket]:
    """Return listening sockets for every address of a host; port 0 takes a free one.

    Raises
    ------
    StartError
        When the address is taken or not of this machine.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            bound = socket.socket(family, kind, protocol)
            sockets.append(bound)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(address)
            # Before that, another program that reuses addresses could bind it as well.
            bound.listen(BACKLOG)
    except OSError as error:
        for bound in sockets:
            bound.close()
        raise StartError(
            f"cannot listen on {host} port {port}: {error.strerror or error}. Stop the program that uses it, or choose "
            "another with --port or --host"
        ) from None
    return sockets
