"""The pictures of a request that are on the web, fetched."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from llama_compat.media.images import images_in, is_remote
from llama_compat.types import Message
from providers.local.media.limits import PictureLimits
from providers.remote.upstream.images import ImageDownloader


class PictureFetcher:
    """Fetches pictures; what that takes is opened for the first.

    Args:
        limits: what may be fetched.
    """

    def __init__(self, limits: PictureLimits) -> None:
        self._limits = limits
        self._open = AsyncExitStack()
        self._downloader: ImageDownloader | None = None

    @staticmethod
    def is_needed(messages: Sequence[Message]) -> bool:
        """Whether any picture is on the web."""
        return any(is_remote(image.url) for each in messages for image in images_in(each.content))

    async def fetched(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """`messages` with all pictures in them.

        Raises:
            APIError: 400 naming the message whose picture can't be had.
        """
        downloader = self._downloader
        if downloader is None:
            downloader = self._downloader = ImageDownloader(self._limits)
            await self._open.enter_async_context(downloader)
        return await downloader.inline(messages)

    async def close(self) -> None:
        """Close what was opened."""
        self._downloader = None
        await self._open.aclose()
