"""The models that a vendor lists: asked for in the background, and kept while it is down."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from llama_compat.errors import APIError

log = logging.getLogger(__name__)

FIRST_ANSWER_SECONDS = 2.0
"""How long the start waits for the first list. Afterwards nobody waits for any."""

RETRY_SECONDS = 15.0
"""How soon a vendor that was down is asked again."""


class Discovery:
    """Keeps the list of a vendor's models.

    Args:
        provider: the provider's id, for the log.
        fetch: asks the vendor.
        refresh_seconds: how old the list may get.

    Attributes:
        models: the last list that came.
    """

    def __init__(
        self,
        provider: str,
        fetch: Callable[[], Awaitable[Sequence[str]]],
        refresh_seconds: float,
    ) -> None:
        self._provider = provider
        self._fetch = fetch
        self._refresh_seconds = refresh_seconds
        self.models: Sequence[str] = ()
        self._task: asyncio.Task[None] | None = None
        self._answered = asyncio.Event()

    async def start(self) -> None:
        """Ask for the list, now and then again; give the vendor a moment for the first one."""
        self._task = asyncio.create_task(self._refresh(), name=f"models of {self._provider}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                await self._answered.wait()

    async def stop(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    async def _refresh(self) -> None:
        last_failure = None
        while True:
            pause = self._refresh_seconds
            try:
                self.models = tuple(await self._fetch())
                last_failure = None
            except APIError as error:
                if error.message != last_failure:
                    log.warning("the list of models is not renewed: %s", error.message)
                last_failure = error.message
                pause = min(pause, RETRY_SECONDS)
            except Exception:
                log.exception("the list of models of provider '%s' failed", self._provider)
            self._answered.set()
            await asyncio.sleep(pause)
