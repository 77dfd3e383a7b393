"""Fetches the images that a message names by URL, for vendors that take only their bytes.

The URLs come from callers, so a server that fetched any of them would be a door into its own
network: only addresses of the public internet are connected to. They are checked when a socket is
about to be opened, whatever name, redirect or spelling led there.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import ipaddress
from collections.abc import Sequence
from contextlib import closing
from typing import ClassVar, TypeVar
from urllib.parse import urljoin

from msgspec import structs
from pydantic import BaseModel, ConfigDict, Field

from llama_compat import __version__
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.images import EncodedImage, images_in, is_remote
from llama_compat.types import CompletionMessage, ImageContent, Message
from providers.base import ProviderConfig, ProviderModel
from providers.remote import http1
from providers.remote.config import RemoteConfig
from providers.remote.provider import RemoteProvider

T = TypeVar("T")

MAX_REDIRECTS = 3

REDIRECTIONS = frozenset({301, 302, 303, 307, 308})

MAX_CONNECTIONS = 100
"""Open at a time, to all the servers that images come from."""

_NOT_PUBLIC = tuple(
    ipaddress.ip_network(each)
    for each in (
        "100.64.0.0/10",  # shared by a carrier's customers (RFC 6598)
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


class ImageLimits(BaseModel):
    """What may be fetched."""

    model_config = ConfigDict(extra="forbid")

    max_count: int = Field(default=32, gt=0)
    """So many images may be fetched for one request."""

    max_bytes: int = Field(default=20 * 1024 * 1024, gt=0)
    """All that is fetched for one request may come to as many."""

    timeout: http1.Seconds = 10
    """For one image, redirects included."""

    allow_private_addresses: bool = False
    """Fetch from the server's own network too: only where every caller may see all of it."""


class ImageFetchingConfig(RemoteConfig):
    """The settings of a vendor that takes images only as bytes."""

    images: ImageLimits = ImageLimits()
    """Which images are fetched for callers who send their URL."""


class ImageFetchingProvider(RemoteProvider):
    """A remote provider that fetches the images whose URLs are in a request."""

    Config: ClassVar[type[ProviderConfig]] = ImageFetchingConfig
    config: ImageFetchingConfig

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self.images = ImageDownloader(self.config.images)

    async def start(self) -> None:
        """Open the pools: the vendor's, and the one that images are fetched through."""
        await super().start()
        await self._running.enter_async_context(self.images)


class ImageDownloader:
    """Fetches images; entered as a context, which holds its connections."""

    def __init__(self, limits: ImageLimits) -> None:
        self._limits = limits

    async def __aenter__(self) -> ImageDownloader:
        self._client = http1.Client(
            timeouts=http1.Timeouts(connect=self._limits.timeout, first_byte=self._limits.timeout),
            max_connections=MAX_CONNECTIONS,
            check_address=None if self._limits.allow_private_addresses else _refuse_private,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.close()

    async def inline(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """`messages` with every image that has an http(s) URL as a `data:` URL instead.

        Raises:
            APIError: 400 naming the message whose image can't be had.
        """
        wanted: dict[str, str] = {}
        for index, message in enumerate(messages):
            for image in images_in(message.content):
                if is_remote(image.url):
                    wanted.setdefault(image.url, f"messages[{index}].content")
        if not wanted:
            return tuple(messages)
        if len(wanted) > self._limits.max_count:
            raise _too_many(list(wanted.values()), self._limits.max_count)
        allowance = _Allowance(self._limits.max_bytes)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    url: group.create_task(self._fetch(url, param, allowance))
                    for url, param in wanted.items()
                }
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        inlined = {url: task.result().data_url for url, task in tasks.items()}
        return tuple(
            structs.replace(message, parts=_with_urls(message.parts, inlined))
            if isinstance(message, CompletionMessage)
            else structs.replace(message, content=_with_urls(message.content, inlined))
            for message in messages
        )

    async def _fetch(self, url: str, param: str, allowance: _Allowance) -> EncodedImage:
        try:
            async with asyncio.timeout(self._limits.timeout):
                with closing(await self._follow(url)) as response:
                    if response.status != 200:
                        raise _refused(param, url, f"its server answered {response.status}")
                    media_type = _media_type(response)
                    if not media_type.startswith("image/"):
                        raise _refused(param, url, f"it is '{media_type}' and no image")
                    content = bytearray()
                    while chunk := await response.next_chunk():
                        allowance.take(len(chunk))
                        content += chunk
        except _SpentError:
            raise _refused(
                param, url, f"the images are larger than {self._limits.max_bytes} bytes"
            ) from None
        except (TimeoutError, http1.HTTPTimeout):
            raise _refused(param, url, f"it took over {self._limits.timeout:g} s") from None
        except _RedirectsError:
            raise _refused(param, url, f"it redirects over {MAX_REDIRECTS} times") from None
        except http1.ConnectError as error:
            raise _refused(param, url, error.reason.strerror or str(error)) from None
        except (http1.HTTPError, ValueError) as error:
            raise _refused(param, url, str(error)) from None
        return EncodedImage(media_type, base64.b64encode(content).decode())

    async def _follow(self, url: str) -> http1.Response:
        """The answer that redirections lead to."""
        for _ in range(MAX_REDIRECTS + 1):
            parsed = http1.parse_url(url)
            headers = _HEADERS
            if parsed.basic is not None:
                authorization = http1.encode_headers({"authorization": parsed.basic})
                headers = http1.HeaderBlock(headers + authorization)
            route = http1.NetworkRoute(parsed.origin)
            response = await self._client.send("GET", route, parsed.target, headers)
            location = response.headers.get("location")
            if response.status not in REDIRECTIONS or not location:
                return response
            response.discard()
            url = urljoin(url, location)
        raise _RedirectsError


_HEADERS = http1.encode_headers(
    {
        "user-agent": f"llama-compat/{__version__}",
        "accept": "image/*, */*;q=0.1",
        "accept-encoding": "identity",
    }
)


class _RedirectsError(Exception):
    """One redirection led to another too often."""


class _SpentError(Exception):
    """No more bytes may be fetched for a request."""


class _Allowance:
    """How many bytes may still be fetched for one request."""

    def __init__(self, left: int) -> None:
        self._left = left

    def take(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _SpentError


def _with_urls(content: str | tuple[T, ...], urls: dict[str, str]) -> str | tuple[T, ...]:
    if isinstance(content, str):
        return content
    return tuple(
        structs.replace(part, url=urls.get(part.url, part.url))
        if isinstance(part, ImageContent)
        else part
        for part in content
    )


def _refused(param: str, url: str, why: str) -> APIError:
    return invalid_parameter(
        param, f"The image '{url[:200]}' can't be fetched: {why}.", "invalid_image_url"
    )


def _too_many(params: Sequence[str], limit: int) -> APIError:
    return invalid_parameter(
        params[limit],
        f"{len(params)} images would have to be fetched for this request, and no more than {limit}"
        " are. Send fewer, or their bytes in `data:` URLs, or raise `images.max_count` for this"
        " provider in the template.",
        "too_many_images",
    )


def _media_type(response: http1.Response) -> str:
    named = response.headers.get("content-type", "application/octet-stream")
    return named.partition(";")[0].strip().lower()


def _refuse_private(address: str) -> None:
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
