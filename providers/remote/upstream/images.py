"""Fetches the images and documents that a message names by URL, for vendors that take only their
bytes.

The URLs come from callers, so only addresses of the public internet are connected to.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import ClassVar, Literal, NamedTuple, TypeVar

from msgspec import structs
from pydantic import Field

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.media.documents import ANY_TYPE, PDF
from llama_compat.media.documents import media_type_of as document_type
from llama_compat.media.encoded import EncodedFile
from llama_compat.media.images import is_remote
from llama_compat.media.images import media_type_of as image_type
from llama_compat.settings.model import TemplateSettings
from llama_compat.types import CompletionMessage, DocumentContent, ImageContent, Message, media_in
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

Kinds = tuple[type[ImageContent] | type[DocumentContent], ...]

IMAGES: Kinds = (ImageContent,)
DOCUMENTS: Kinds = (DocumentContent,)
IMAGES_AND_DOCUMENTS: Kinds = (*IMAGES, *DOCUMENTS)

MAX_CONNECTIONS = 100
"""Open at a time, to all the servers that images come from."""


MAX_IMAGES = 32
"""Of a request, unless a template says otherwise; and so with their bytes."""

MAX_IMAGE_BYTES = 20 * 1024 * 1024


class ImageLimits(TemplateSettings):
    """What may be fetched."""

    max_count: int = Field(default=MAX_IMAGES, gt=0)
    """So many images and documents may be fetched for one request."""

    max_bytes: int = Field(default=MAX_IMAGE_BYTES, gt=0)
    """All that is fetched for one request may come to as many."""

    timeout: http1.Seconds = 10
    """For one of them, redirects included."""

    allow_private_addresses: bool = False
    """Fetch from the server's own network too: only where every caller may see all of it."""


class ImageFetchingConfig(RemoteConfig):
    """The settings of a vendor that takes images and documents only as bytes."""

    images: ImageLimits = ImageLimits()
    """Which images, and documents where the vendor takes any, are fetched for callers who send
    their URL."""


class ImageFetchingProvider(RemoteProvider):
    """A remote provider that fetches the images, and documents, whose URLs are in a request."""

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
    """Fetches images and documents; entered as a context, which holds its connections."""

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

    async def inline(
        self, messages: Sequence[Message], kinds: Kinds = IMAGES
    ) -> tuple[Message, ...]:
        """`messages` with every medium of `kinds` that has an http(s) URL as a `data:` URL instead.

        Raises:
            APIError: 400 naming the message whose image or document can't be had.
        """
        wanted: dict[_File, str] = {}
        for index, message in enumerate(messages):
            for medium in media_in(message.content):
                if isinstance(medium, kinds) and is_remote(medium.url):
                    wanted.setdefault(_File.of(medium), f"messages[{index}].content")
        if not wanted:
            return tuple(messages)
        inlined = await self._fetch_all(wanted)
        return tuple(
            structs.replace(message, parts=_with_urls(message.parts, inlined))
            if isinstance(message, CompletionMessage)
            else structs.replace(message, content=_with_urls(message.content, inlined))
            for message in messages
        )

    async def documents(self, wanted: Mapping[str, str]) -> Mapping[str, str]:
        """The documents at addresses of the web: their `data:` URLs, by address.

        Args:
            wanted: by address, where a request names it.

        Raises:
            APIError: 400 naming the place whose document can't be had.
        """
        files = {_File("document", url): param for url, param in wanted.items()}
        return {file.url: found for file, found in (await self._fetch_all(files)).items()}

    async def _fetch_all(self, wanted: Mapping[_File, str]) -> dict[_File, str]:
        """The files' `data:` URLs; `wanted` has where a request names each."""
        if DEFERRED.get() is not None:
            # What is handed over now may be answered in a day, and is read once more then.
            raise invalid_parameter(
                next(iter(wanted.values())),
                "Images and documents that are fetched can't be handed over.",
            )
        if len(wanted) > self._limits.max_count:
            raise _too_many(list(wanted.values()), self._limits.max_count)
        allowance = _Allowance(self._limits.max_bytes)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    file: group.create_task(self._fetch(file, param, allowance))
                    for file, param in wanted.items()
                }
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return {file: task.result().data_url for file, task in tasks.items()}

    async def _fetch(self, file: _File, param: str, allowance: _Allowance) -> EncodedFile:
        try:
            async with asyncio.timeout(self._limits.timeout):
                response, _ = await follow(self._client, file.url, _HEADERS[file.kind])
                with closing(response):
                    if response.status != 200:
                        raise _refused(param, file, f"its server answered {response.status}")
                    said = _media_type(response)
                    if said == ANY_TYPE or file.is_of(said):
                        content = await _read(response, allowance)
                        # Stores of files give out what they were not told the type of.
                        media_type = said if file.is_of(said) else file.type_by(content)
                        if file.is_of(media_type):
                            return EncodedFile(media_type, base64.b64encode(content).decode())
                    raise _refused(param, file, f"it is '{said}' and no {_WORDS[file.kind]}")
        except _SpentError:
            why = f"all that is fetched is larger than {self._limits.max_bytes} bytes"
            raise _refused(param, file, why) from None
        except (TimeoutError, http1.HTTPTimeout):
            raise _refused(param, file, f"it took over {self._limits.timeout:g} s") from None
        except TooManyRedirectsError:
            raise _refused(param, file, f"it redirects over {MAX_REDIRECTS} times") from None
        except http1.ConnectError as error:
            raise _refused(param, file, error.reason.strerror or str(error)) from None
        except (http1.HTTPError, ValueError) as error:
            raise _refused(param, file, str(error)) from None


class _File(NamedTuple):
    """A file of the web, and what it is to be."""

    kind: Literal["image", "document"]
    url: str

    @classmethod
    def of(cls, medium: ImageContent | DocumentContent) -> _File:
        return cls("image" if isinstance(medium, ImageContent) else "document", medium.url)

    def is_of(self, media_type: str) -> bool:
        """Whether files of this type are what it is to be."""
        return media_type.startswith(_TYPES[self.kind])

    def type_by(self, content: bytes) -> str:
        """The type of what begins so; empty where that is nobody's."""
        begin = content[:12]
        found = image_type(begin) if self.kind == "image" else document_type("", "", begin)
        return found or ""


_TYPES = {"image": "image/", "document": PDF}
"""How the media type of a file begins that is what it is to be."""

_WORDS = {"image": "image", "document": "PDF"}

_HEADERS = {
    kind: http1.encode_headers(
        {
            "user-agent": http1.USER_AGENT,
            "accept": f"{accepted}, */*;q=0.1",
            "accept-encoding": "identity",
        }
    )
    for kind, accepted in (("image", "image/*"), ("document", PDF))
}


async def _read(response: http1.Response, allowance: _Allowance) -> bytes:
    content = bytearray()
    while chunk := await response.next_chunk():
        allowance.take(len(chunk))
        content += chunk
    return bytes(content)


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


def _with_urls(content: str | tuple[T, ...], urls: dict[_File, str]) -> str | tuple[T, ...]:
    if isinstance(content, str):
        return content
    return tuple(
        structs.replace(part, url=urls.get(_File.of(part), part.url))
        if isinstance(part, ImageContent | DocumentContent)
        else part
        for part in content
    )


def _refused(param: str, file: _File, why: str) -> APIError:
    is_image = file.kind == "image"
    return invalid_parameter(
        param,
        f"The {file.kind} '{file.url[:200]}' can't be fetched: {why}.",
        "invalid_image_url" if is_image else "invalid_document_url",
    )


def _too_many(params: Sequence[str], limit: int) -> APIError:
    return invalid_parameter(
        params[limit],
        f"{len(params)} images and documents would have to be fetched for this request, and no more"
        f" than {limit} are. Send fewer, or their bytes in `data:` URLs, or raise"
        " `images.max_count` for this provider in the template.",
        "too_many_images",
    )


def _media_type(response: http1.Response) -> str:
    named = response.headers.get("content-type", ANY_TYPE)
    return named.partition(";")[0].strip().lower()
