"""Fetches the images that a message names by URL, for vendors that take only their bytes.

The URLs come from callers, so only addresses of the public internet are connected to.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from contextlib import closing
from typing import ClassVar, TypeVar

from msgspec import structs
from pydantic import Field

from llama_compat import __version__
from llama_compat.errors import APIError, invalid_parameter
from llama_compat.media.images import EncodedImage, images_in, is_remote
from llama_compat.settings.model import TemplateSettings
from llama_compat.types import CompletionMessage, ImageContent, Message
from providers.base import ProviderConfig, ProviderModel
from providers.remote import http1
from providers.remote.config import RemoteConfig
from providers.remote.provider import RemoteProvider
from providers.remote.upstream.deferred import DEFERRED
from providers.remote.upstream.public_web import (
    MAX_REDIRECTS,
    TooManyRedirectsError,
    follow,
    refuse_private,
)

T = TypeVar("T")

MAX_CONNECTIONS = 100
"""Open at a time, to all the servers that images come from."""


MAX_IMAGES = 32
"""Of a request, unless a template says otherwise; and so with their bytes."""

MAX_IMAGE_BYTES = 20 * 1024 * 1024


class ImageLimits(TemplateSettings):
    """What may be fetched."""

    max_count: int = Field(default=MAX_IMAGES, gt=0)
    """So many images may be fetched for one request."""

    max_bytes: int = Field(default=MAX_IMAGE_BYTES, gt=0)
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
            check_address=None if self._limits.allow_private_addresses else refuse_private,
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
        if DEFERRED.get() is not None:
            # What is handed over now may be answered in a day, and is read once more then.
            raise invalid_parameter(
                next(iter(wanted.values())), "Images that are fetched can't be handed over."
            )
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
                response, _ = await follow(self._client, url, _HEADERS)
                with closing(response):
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
        except TooManyRedirectsError:
            raise _refused(param, url, f"it redirects over {MAX_REDIRECTS} times") from None
        except http1.ConnectError as error:
            raise _refused(param, url, error.reason.strerror or str(error)) from None
        except (http1.HTTPError, ValueError) as error:
            raise _refused(param, url, str(error)) from None
        return EncodedImage(media_type, base64.b64encode(content).decode())


_HEADERS = http1.encode_headers(
    {
        "user-agent": f"llama-compat/{__version__}",
        "accept": "image/*, */*;q=0.1",
        "accept-encoding": "identity",
    }
)


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
