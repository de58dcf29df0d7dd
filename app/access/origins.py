"""Hosts and origins as requests carry them: who was asked, and which web page asks."""

import ipaddress
import re
from typing import NamedTuple

ANY_ORIGIN = "*"
_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._~-]+))(?::([0-9]{0,5}))?")


class Host(NamedTuple):
    """A name or an address in lower case, without brackets, and a port; None where none was given."""

    name: str
    port: int | None


class Origin(NamedTuple):
    """Where a web page comes from; the port is given or its scheme's own."""

    scheme: str
    name: str
    port: int


def parse_host(text: str) -> Host | None:
    """Return what a `Host` header says; None when it is malformed."""
    found = _AUTHORITY.fullmatch(text.lower())
    if found is None:
        return None
    address, name, port = found.groups()
    if port and int(port) > 65535:
        return None
    if address is not None:
        try:
            name = str(ipaddress.IPv6Address(address))
        except ValueError:
            return None
    return Host(name, int(port) if port else None)


def parse_origin(text: str) -> Origin | None:
    """Return what an `Origin` header says; None when it is malformed, or names no host."""
    scheme, separator, rest = text.partition("://")
    host = parse_host(rest) if separator else None
    own_port = _PORTS.get(scheme.lower())
    if host is None or own_port is None:
        return None
    return Origin(scheme.lower(), host.name, own_port if host.port is None else host.port)


def origin_of(host: Host, scheme: str) -> Origin:
    """Return the origin of the pages that a server serves under a host, by `http` or `https`."""
    return Origin(scheme, host.name, _PORTS[scheme] if host.port is None else host.port)
