"""Responses that are worked on while nobody waits for them, here or at a vendor."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from llama_compat.dialects.gemini_interactions.errors import error_object
from llama_compat.dialects.openai_responses.errors import response_error
from llama_compat.errors import APIError, internal_error, shutting_down
from llama_compat.going_on import going_on
from llama_compat.wire.retry_after import retry_after
from providers.base import Provider
from routing.layers.keeping.followed import FollowedReply, unknown_vendor
from routing.storage.kept import RESPONSES_KEPT, AtVendor, KeptAPI, api_of
from routing.storage.kept_rows import RUNNING
from routing.storage.responses import ResponseStore, StoredResponse

log = logging.getLogger(__name__)

MAX_RUNNING = 256
"""So many may run in one process at a time."""

LOOK_SECONDS = 1.0
"""How often the store is asked whether another process was told to cancel one."""

KEEP_SECONDS = 600.0
"""So long the store may be away until what has been made, and paid for, is let go."""

ResponseObject = dict[str, Any]


class BackgroundResponses:
    """The background responses of this process, from `start` to `stop`.

    Args:
        store: where they are kept; without one there are none.
        providers: by their ids; the vendors of some make responses of their own.
    """

    def __init__(
        self, store: ResponseStore | None, providers: Mapping[str, Provider] | None = None
    ) -> None:
        self._store = store
        self._providers = providers or {}
        self._stopping = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for what others cancel."""
        if self._store is not None:
            self._looking = asyncio.create_task(
                going_on("background responses", partial(self._look, self._store))
            )

    async def stop(self) -> None:
        """Cancel them all; each is kept as failed, but for those that a vendor goes on with."""
        self._stopping = True
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
                headers=retry_after(5),
            )

    def run(
        self,
        queued: Mapping[str, Any],
        work: Callable[[], Awaitable[ResponseObject]],
        followed: FollowedReply | None = None,
    ) -> asyncio.Task[None]:
        """Have `work` make a response of `queued`, which is in the store; what it makes, or why it
        could not, goes there too.

        Args:
            queued: the response as it is kept.
            work: makes it, or waits for it.
            followed: what it is at the vendor that makes it, if that is not done here.

        Returns:
            What runs until then, which is not the caller's to cancel.
        """
        response_id = queued["id"]
        task = asyncio.create_task(self._run(queued, work, followed))
        self._tasks[response_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(response_id, None))
        return task

    def followed(self, api: KeptAPI, kept: ResponseObject, at: AtVendor) -> FollowedReply:
        """The response of `api`, known here as `kept`, that a vendor makes.

        Raises:
            APIError: 400, the provider is gone from the template.
        """
        provider = self._providers.get(at.provider)
        if provider is None:
            raise unknown_vendor(api, at)
        return FollowedReply(api, kept, provider, at)

    # What clients do with them --------------------------------------------------------------------

    async def get(self, owner: str, response_id: str, api: KeptAPI) -> StoredResponse:
        """A response of `api`; what a vendor makes and nobody follows here is asked for there.

        Raises:
            APIError: 404, the owner has none of this id; or whatever went wrong with the vendor.
        """
        kept = await self._kept.get(owner, response_id, api)
        if not kept.is_left:
            return kept
        assert kept.at_vendor is not None
        followed = self.followed(api, kept.response, kept.at_vendor)
        response = await followed.as_here(await followed.look())
        if response.get("status") in RUNNING:
            return StoredResponse(response, kept.input, kept.at_vendor)
        await self._kept.complete(response)
        return await self._kept.get(owner, response_id, api)

    async def cancel(self, owner: str, response_id: str, api: KeptAPI) -> ResponseObject:
        """End a response, if it still runs; the response as it is then.

        Raises:
            APIError: 404, the owner has none of this id; 400, somebody waits for it.
        """
        kept = await self._kept.get(owner, response_id, api)
        response = await self._kept.cancel(owner, response_id, api)
        await self._end(response_id, kept, api)
        return response

    async def delete(self, owner: str, response_id: str, api: KeptAPI) -> None:
        """Forget a response; one that runs ends.

        Raises:
            APIError: 404, the owner has none of this id.
        """
        kept = await self._kept.get(owner, response_id, api)
        await self._kept.delete(owner, response_id, api)
        await self._end(response_id, kept, api)

    async def _end(self, response_id: str, kept: StoredResponse, api: KeptAPI) -> None:
        self._stop_work(response_id)
        if kept.is_left and kept.at_vendor is not None:
            with suppress(APIError):
                await self.followed(api, kept.response, kept.at_vendor).cancel()

    # The work -------------------------------------------------------------------------------------

    @property
    def _kept(self) -> ResponseStore:
        assert self._store is not None
        return self._store

    def _stop_work(self, response_id: str) -> None:
        task = self._tasks.get(response_id)
        if task is not None:
            task.cancel()

    async def _run(
        self,
        queued: Mapping[str, Any],
        work: Callable[[], Awaitable[ResponseObject]],
        followed: FollowedReply | None,
    ) -> None:
        try:
            response = await work()
        except APIError as error:
            response = _failed(queued, error)
        except asyncio.CancelledError:
            if followed is None:
                # Where a client cancelled it, the store has it as cancelled and leaves it so.
                await self._kept.complete(_failed(queued, shutting_down()))
            elif not self._stopping:
                await followed.cancel()
            raise
        except Exception:
            log.exception("response %s failed in the background", queued["id"])
            response = _failed(queued, internal_error())
        await self._keep(response)

    async def _keep(self, response: ResponseObject) -> None:
        """Have the store know what was made, once it can be used."""
        late = time.monotonic() + KEEP_SECONDS
        while True:
            try:
                return await self._kept.complete(response)
            except APIError:  # which has been logged
                if time.monotonic() > late:
                    log.error("response %s was made, and could not be kept", response["id"])
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, store: ResponseStore) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self._tasks:
                continue
            try:
                for response_id in await store.keep_alive(list(self._tasks)):
                    self._stop_work(response_id)
            except APIError:
                continue  # the store has said why


def _failed(queued: Mapping[str, Any], error: APIError) -> ResponseObject:
    api = api_of(queued["id"])
    told = response_error(error) if api is RESPONSES_KEPT else error_object(error)
    return api.failed(queued, told)
