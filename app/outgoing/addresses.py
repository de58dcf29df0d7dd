"""Where something may be sent: a name is resolved once, all its addresses are checked, and one of them is connected to.

A server that sends requests to addresses others choose can be made to reach what only it can reach: services on the
same machine, the neighbours in its network, the metadata of its cloud. So an address must be one of the public
Internet, unless the settings name the network that it is in. The check is of addresses, not of names: whatever way a
name or a number is written, what is connected to is what was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, as text."""

LONGEST_URL = 2048
_PORTS = {"http": 80, "https": 443}
# The special-purpose registries of IANA. Python's `is_global` differs between patch releases.
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "2001::/23",  # protocol assignments with Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
# Outside of it are loopback, mapped and translated IPv4, unique local, link-local, site-local and multicast addresses.
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")


class EndpointError(ValueError):
    """A URL that nothing is sent to; the text is the rule, and repeats nothing of the URL."""


class RefusedAddressError(Exception):
    """A host has an address that nothing is sent to."""


class UnresolvedError(Exception):
    """A host has no address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A URL that requests are sent to, in parts.

    Attributes
    ----------
    is_tls
        Whether it is HTTPS.
    host, port
        As the URL has them; the host without brackets.
    target
        Path and query.
    """

    is_tls: bool
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The `Host` header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _PORTS["https" if self.is_tls else "http"] else f"{name}:{self.port}"


def parse_endpoint(url: str, *, plain_http: bool = False) -> Endpoint:
    """Return the parts of a URL.

    Parameters
    ----------
    url
        HTTPS, with a host.
    plain_http
        Whether it may be HTTP.

    Raises
    ------
    EndpointError
        When it is not.
    """
    if not 0 < len(url) <= LONGEST_URL or not all("!" <= character <= "~" for character in url):
        raise EndpointError(f"must be a URL of at most {LONGEST_URL} printable ASCII characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise EndpointError("must be a URL such as https://privacy.example/hooks") from None
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise EndpointError("must be a URL such as https://privacy.example/hooks")
    if parts.scheme == "http" and not plain_http:
        raise EndpointError("must begin with https://: http:// is for addresses in push_networks")
    if "@" in parts.netloc:
        raise EndpointError("must hold no user name and no password")
    if "#" in url:
        raise EndpointError("must have no fragment (#...)")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Endpoint(parts.scheme == "https", parts.hostname, port or _PORTS[parts.scheme], target)


def is_public(address: Address) -> bool:
    """Whether an address is one of the public Internet."""
    is_unicast = address.version == 4 or address in _UNICAST_V6
    return is_unicast and not any(address in network for network in _SPECIAL)


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system knows them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(where[0]) for *_, where in found]


class AddressRules:
    """Which addresses may be connected to.

    Parameters
    ----------
    networks
        Those that may be although they are not public.
    resolve
        Asks for the addresses of a host.
    """

    def __init__(self, networks: Iterable[str] = (), resolve: Resolve = resolve) -> None:
        self._networks = tuple(ipaddress.ip_network(text, strict=False) for text in networks)
        self._resolve = resolve

    def allow(self, address: Address, *, is_tls: bool = True) -> bool:
        """Whether an address may be connected to; without TLS it must be in one of the networks."""
        return (is_tls and is_public(address)) or any(address in network for network in self._networks)

    async def addresses(self, endpoint: Endpoint) -> list[Address]:
        """Resolve the host of an endpoint once, and return its addresses.

        Raises
        ------
        UnresolvedError
            When it has none.
        RefusedAddressError
            When one of them must not be connected to: a name that mixes both is not trusted at all.
        """
        try:
            found = [ipaddress.ip_address(text) for text in await self._resolve(endpoint.host, endpoint.port)]
        except (OSError, ValueError):  # UnicodeError is a ValueError: a label that is too long, say
            raise UnresolvedError from None
        if not found:
            raise UnresolvedError
        if not all(self.allow(address, is_tls=endpoint.is_tls) for address in found):
            raise RefusedAddressError
        return list(dict.fromkeys(found))
