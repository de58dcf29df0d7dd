"""Nothing is sent to an address that is not one of the public Internet, however it is written."""

import asyncio
import ipaddress
from unittest.mock import AsyncMock

import pytest

from oubli.app.outgoing import addresses
from oubli.app.outgoing.addresses import AddressRules, RefusedAddressError, is_public, parse_endpoint

PUBLIC = ("1.1.1.1", "8.8.8.8", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001:800::200e")
# The ends of each network that Python knows as special, and addresses that it knows in newer versions or not at all.
PRIVATE = (*ipaddress._IPv4Constants._private_networks, *ipaddress._IPv6Constants._private_networks)
SPECIAL = (
    *(str(network[end]) for network in PRIVATE for end in (0, -1)),
    "100.64.0.1", "192.0.0.9", "192.88.99.1", "224.0.0.1", "239.255.255.250", "::127.0.0.1", "::ffff:0:1.2.3.4",
    "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::", "3fff::1", "5f00::1", "fe80::1%2",
    "fec0::1", "ff02::1", "192.31.196.1", "192.52.193.1", "192.175.48.1",
)  # fmt: skip


def test_what_is_public():
    for text in PUBLIC:
        assert is_public(ipaddress.ip_address(text)), text


def rules(*answers: str, networks: tuple[str, ...] = ()) -> AddressRules:
    async def resolve(host: str, port: int) -> tuple[str, ...]:
        assert (host, port) == ("privacy.example", 443)
        return answers

    return AddressRules(networks, resolve)


WHERE = parse_endpoint("https://privacy.example/hooks")


def test_all_addresses_of_a_name_have_to_be_public():
    found = asyncio.run(rules("1.1.1.1", "2606:4700:4700::1111", "1.1.1.1").addresses(WHERE))
    assert list(map(str, found)) == ["1.1.1.1", "2606:4700:4700::1111"]
    for special in SPECIAL:
        for answers in ((special,), ("1.1.1.1", special), (special, "1.1.1.1")):
            with pytest.raises(RefusedAddressError):
                asyncio.run(rules(*answers).addresses(WHERE))


def test_networks_that_the_settings_name():
    networks = ("10.1.0.0/16", "::1")
    assert asyncio.run(rules("10.1.2.3", networks=networks).addresses(WHERE))
    for other in ("10.2.0.1", "127.0.0.1", "::ffff:10.1.2.3"):  # a mapped one is another address
        with pytest.raises(RefusedAddressError):
            asyncio.run(rules(other, networks=networks).addresses(WHERE))
    assert asyncio.run(rules("::ffff:10.1.2.3", networks=("::ffff:10.1.0.0/112",)).addresses(WHERE))


def test_a_name_without_an_address():
    for known in (rules(), AddressRules((), AsyncMock(side_effect=OSError))):
        with pytest.raises(addresses.UnresolvedError):
            asyncio.run(known.addresses(WHERE))


def test_other_ways_to_write_loopback_are_resolved_before_they_are_checked():
    for host in ("2130706433", "0x7f.1", "0177.0.0.1", "127.1", "localhost", "[::1]", "0"):
        with pytest.raises((RefusedAddressError, addresses.UnresolvedError)):
            asyncio.run(AddressRules().addresses(parse_endpoint(f"https://{host}/")))


def test_an_endpoint():
    one = parse_endpoint("https://Privacy.Example:8443/hooks?key=1&b=%20")
    assert (one.is_tls, one.host, one.port, one.target) == (True, "privacy.example", 8443, "/hooks?key=1&b=%20")
    assert one.authority == "privacy.example:8443"
    assert parse_endpoint("https://[2606:4700::1]").authority == "[2606:4700::1]"
    plain = parse_endpoint("http://privacy.example", plain_http=True)
    assert (plain.is_tls, plain.port, plain.target, plain.authority) == (False, 80, "/", "privacy.example")


NO_ENDPOINTS = (
    "", "privacy.example", "//privacy.example", "http://privacy.example", "ftp://privacy.example", "https://",
    "https:///x", "https://a:b@privacy.example", "https://SECRET@privacy.example", "https://privacy.example#part",
    "https://privacy.example:0", "https://privacy.example:99999", "https://privacy.example:x", "https://[::1",
    "https://privacy.example/\r\nHost: other", "https://privacy.example/\t", "https://privacy.exämple",
    "https://privacy.example/ x", "https://privacy.example/" + 2048 * "a", "file:///etc/passwd",
)  # fmt: skip


def test_what_is_no_endpoint():
    for url in NO_ENDPOINTS:
        with pytest.raises(addresses.EndpointError) as refused:
            parse_endpoint(url)
        assert "SECRET" not in str(refused.value)
