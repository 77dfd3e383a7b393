"""What is on the public internet, fetched from URLs that somebody else has chosen.

A server that fetched any URL would be a door into its own network: only addresses of the public
internet are connected to. They are checked when a socket is about to be opened, whatever name,
redirect or spelling led there.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Callable
from urllib.parse import urljoin

from providers.remote import http1

MAX_REDIRECTS = 3

REDIRECTIONS = frozenset({301, 302, 303, 307, 308})

_NOT_PUBLIC = tuple(
    ipaddress.ip_network(each)
    for each in (
        "100.64.0.0/10",  # shared by a carrier's customers (RFC 6598)
        # Azure's own, which tells a machine its secrets
        # (https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16)
        "168.63.129.16/32",
        "192.0.0.0/24",  # IETF's own
        "192.88.99.0/24",  # relays of 6to4, given up (RFC 7526)
        "2001::/23",  # IETF's own, Teredo with an IPv4 inside among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4 with an IPv4 inside: given up (RFC 7526)
        "3fff::/20",  # documentation (RFC 9637)
    )
)
"""What `ipaddress` calls global, in one of the Python versions there are or all of them, and is not
the public internet (https://www.iana.org/assignments/iana-ipv6-special-registry)."""

_PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
"""All that is given out to anybody: `::127.0.0.1`, `64:ff9b:1::7f00:1` and the like are outside."""

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Where an address of the public IPv4 internet is from a network that has none."""

_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
"""Before the last 32 bits of an address these say that those are an IPv4 (RFC 5214)."""


class TooManyRedirectsError(Exception):
    """One redirection led to another too often."""


async def follow(
    client: http1.Client,
    url: str,
    headers: http1.HeaderBlock,
    check: Callable[[str], None] = lambda url: None,
) -> tuple[http1.Response, str]:
    """The answer that redirections lead to, and its URL.

    Args:
        client: whose `check_address` is `refuse_private`, unless everything may be reached.
        url: where to begin.
        headers: sent to everyone.
        check: asked before each URL is; may raise.

    Raises:
        TooManyRedirectsError: it is not there after `MAX_REDIRECTS`.
        HTTPError: there is no answer.
        ValueError: one is no URL.
    """
    for _ in range(MAX_REDIRECTS + 1):
        check(url)
        parsed = http1.parse_url(url)
        sent = headers
        if parsed.basic is not None:
            authorization = http1.encode_headers({"authorization": parsed.basic})
            sent = http1.HeaderBlock(headers + authorization)
        route = http1.NetworkRoute(parsed.origin)
        response = await client.send("GET", route, parsed.target, sent)
        location = response.headers.get("location")
        if response.status not in REDIRECTIONS or not location:
            return response, url
        response.discard()
        url = urljoin(url, location)
    raise TooManyRedirectsError


def refuse_private(address: str) -> None:
    """The check of an address that a socket is about to be connected to.

    Raises:
        PermissionError: it is not on the public internet.
    """
    if not is_public(address):
        raise PermissionError(errno.EACCES, f"{address} is not on the public internet")


def is_public(address: str) -> bool:
    """Whether an IP address is on the public internet, IPv4 inside IPv6 looked at as such.

    In doubt it is not: of IPv6, only what is given out to anybody counts, and IPv4 by NAT64.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        if (inner := _inner_ipv4(parsed)) is not None:
            return is_public(str(inner))
        if parsed not in _PUBLIC_IPV6:
            return False
    if any(parsed in network for network in _NOT_PUBLIC if network.version == parsed.version):
        return False
    return parsed.is_global and not (parsed.is_multicast or parsed.is_reserved)


def _inner_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that `address` stands for, if it does."""
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    is_isatap = (number >> 32) & 0xFFFFFFFF in _ISATAP
    return last if address.ipv4_mapped is not None or address in _NAT64 or is_isatap else None
