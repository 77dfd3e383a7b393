"""The models that a vendor lists, asked for now and then."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from llama_compat.errors import APIError

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
"""After a failure the list is asked for again no sooner."""


class DiscoveredModels:
    """A vendor's list, kept for a while; while the vendor can't be asked, the last one.

    Args:
        provider_id: the template's id of the provider, for messages.
        ask: asks the vendor; raises APIError.
        refresh_seconds: how old the list may get.
    """

    def __init__(
        self, provider_id: str, ask: Callable[[], Awaitable[Sequence[str]]], refresh_seconds: float
    ) -> None:
        self._provider_id = provider_id
        self._ask = ask
        self._refresh_seconds = refresh_seconds
        self._names: Sequence[str] = ()
        self._due = 0.0
        self._asking = asyncio.Lock()

    async def names(self) -> Sequence[str]:
        """The vendor's names of its models."""
        async with self._asking:
            if time.monotonic() >= self._due:
                await self._refresh()
            return self._names

    async def _refresh(self) -> None:
        try:
            self._names = await self._ask()
            self._due = time.monotonic() + self._refresh_seconds
        except APIError as error:
            log.warning("The models of '%s' can't be listed: %s", self._provider_id, error.message)
            self._due = time.monotonic() + min(RETRY_SECONDS, self._refresh_seconds)
