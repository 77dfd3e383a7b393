"""Responses that are worked on while nobody waits for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from llama_compat.dialects.gemini_interactions.errors import error_object
from llama_compat.dialects.openai_responses.errors import response_error
from llama_compat.errors import APIError, internal_error, shutting_down
from routing.storage.kept import RESPONSES_KEPT, api_of
from routing.storage.responses import ResponseStore

log = logging.getLogger(__name__)

MAX_RUNNING = 256
"""So many may run in one process at a time."""

LOOK_SECONDS = 1.0
"""How often the store is asked whether another process was told to cancel one."""

ResponseObject = dict[str, Any]


class BackgroundResponses:
    """The background responses of this process, from `start` to `stop`.

    Args:
        store: where they are kept; without one there are none.
    """

    def __init__(self, store: ResponseStore | None) -> None:
        self._store = store
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for what others cancel."""
        if self._store is not None:
            self._looking = asyncio.create_task(self._look(self._store))

    async def stop(self) -> None:
        """Cancel them all; each is kept as failed."""
        tasks = [*self._tasks.values(), *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check_room(self) -> None:
        """Make sure that one more may run.

        Raises:
            APIError: 429, there are too many.
        """
        if len(self._tasks) >= MAX_RUNNING:
            raise APIError(
                429,
                f"{MAX_RUNNING} responses run in the background already. Ask again later.",
                code="rate_limit_exceeded",
                headers={"retry-after": "5"},
            )

    def run(
        self, queued: Mapping[str, Any], work: Callable[[], Awaitable[ResponseObject]]
    ) -> asyncio.Task[None]:
        """Have `work` make a response of `queued`, which is in the store; what it makes, or why it
        could not, goes there too.

        Returns:
            What runs until then, which is not the caller's to cancel.
        """
        response_id = queued["id"]
        task = asyncio.create_task(self._run(queued, work))
        self._tasks[response_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(response_id, None))
        return task

    def cancel(self, response_id: str) -> None:
        """Stop the work on a response, if it is done here."""
        task = self._tasks.get(response_id)
        if task is not None:
            task.cancel()

    async def _run(
        self, queued: Mapping[str, Any], work: Callable[[], Awaitable[ResponseObject]]
    ) -> None:
        assert self._store is not None
        try:
            response = await work()
        except APIError as error:
            response = _failed(queued, error)
        except asyncio.CancelledError:
            # Where a client cancelled it, the store has it as cancelled and leaves it so.
            await self._store.complete(_failed(queued, shutting_down()))
            raise
        except Exception:
            log.exception("response %s failed in the background", queued["id"])
            response = _failed(queued, internal_error())
        await self._store.complete(response)

    async def _look(self, store: ResponseStore) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._tasks:
                continue
            try:
                for response_id in await store.keep_alive(list(self._tasks)):
                    self.cancel(response_id)
            except APIError:
                continue  # the store has said why


def _failed(queued: Mapping[str, Any], error: APIError) -> ResponseObject:
    api = api_of(queued["id"])
    told = response_error(error) if api is RESPONSES_KEPT else error_object(error)
    return api.failed(queued, told)
