"""Responses that are worked on while nobody waits for them, here or at a vendor."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from llama_compat.dialects.gemini_interactions.errors import error_object
from llama_compat.dialects.openai_responses.errors import response_error
from llama_compat.errors import APIError, internal_error, shutting_down
from llama_compat.going_on import going_on
from llama_compat.wire.retry_after import retry_after
from providers.base import Provider
from routing.layers.keeping.followed import FollowedReply, unknown_vendor
from routing.request import Request
from routing.storage.kept import RESPONSES_KEPT, AtVendor, KeptAPI, api_of
from routing.storage.kept_rows import RUNNING
from routing.storage.responses import ResponseStore, StoredResponse
from routing.storage.storage import surely

if TYPE_CHECKING:
    from routing.layers.keeping.adopting import Adopter

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_RUNNING = 256
"""So many may run in one process at a time."""

LOOK_SECONDS = 1.0
"""How often the store is asked whether another process was told to cancel one."""

AFTER_OUTAGE_SECONDS = 5.0
"""So long after the store was away nothing is taken from others."""

KEEP_SECONDS = 600.0
"""So long the store may be away until what has been made, and paid for, is let go."""

ResponseObject = dict[str, Any]


class BackgroundResponses:
    """The background responses of this process, from `start` to `stop`.

    Args:
        store: where they are kept; without one there are none.
        providers: by their ids; the vendors of some make responses of their own.
        adopter: makes requests of what processes that are gone had vendors make; None where nobody
            goes on with that.
    """

    def __init__(
        self,
        store: ResponseStore | None,
        providers: Mapping[str, Provider] | None = None,
        adopter: Adopter | None = None,
    ) -> None:
        self._store = store
        self._providers = providers or {}
        self._adopter = adopter
        self._stopping = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._adopts_from = 0.0
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for what others cancel, and for what they have left."""
        if self._store is not None:
            self._looking = asyncio.create_task(
                going_on("background responses", partial(self._look, self._store))
            )

    async def stop(self) -> None:
        """Cancel them all; each is kept as failed, but for those that a vendor goes on with, which
        are left to others."""
        self._stopping = True
        looking = [self._looking] if self._looking else []
        tasks = [*self._tasks.values(), *self._telling, *looking]
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
        self, queued: Mapping[str, Any], work: Callable[[], Awaitable[ResponseObject]]
    ) -> asyncio.Task[None]:
        """Have `work` make a response of `queued`, which is in the store; what it makes, or why it
        could not, goes there too.

        Returns:
            What runs until then, which is not the caller's to cancel.
        """
        return self._begun(queued["id"], self._run(queued, work))

    def follow(self, request: Request, followed: FollowedReply) -> asyncio.Task[None]:
        """Wait for a response that a vendor makes, which is in the store; what comes of it goes
        there, and then `request` ends.

        Returns:
            What runs until then, which is not the caller's to cancel.
        """
        return self._begun(followed.kept["id"], self._follow(request, followed))

    def _begun(self, response_id: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
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
        """A response of `api`, as it is kept; what a vendor makes and nobody follows any more is
        followed from here.

        Raises:
            APIError: 404, the owner has none of this id; 400, the template has lost the provider
                that makes it.
        """
        kept = await self._kept.get(owner, response_id, api)
        if kept.is_left:
            assert kept.at_vendor is not None
            self.followed(api, kept.response, kept.at_vendor)
            await self._adopt([response_id])
        return kept

    async def cancel(self, owner: str, response_id: str, api: KeptAPI) -> ResponseObject:
        """End a response, if it still runs; the response as it is then.

        Raises:
            APIError: 404, the owner has none of this id; 400, somebody waits for it.
        """
        kept = await self._ending(owner, response_id, api)
        response = await self._kept.cancel(owner, response_id, api)
        await self._end(response_id, kept, api)
        return response

    async def delete(self, owner: str, response_id: str, api: KeptAPI) -> None:
        """Forget a response; one that runs ends.

        Raises:
            APIError: 404, the owner has none of this id.
        """
        kept = await self._ending(owner, response_id, api)
        await self._kept.delete(owner, response_id, api)
        await self._end(response_id, kept, api)

    async def _ending(self, owner: str, response_id: str, api: KeptAPI) -> StoredResponse:
        """A response that is to end: what nobody follows any more ends here, so that it counts."""
        kept = await self._kept.get(owner, response_id, api)
        if kept.is_left and self._can_adopt(kept.at_vendor):
            await self._adopt([response_id])
        return kept

    async def _end(self, response_id: str, kept: StoredResponse, api: KeptAPI) -> None:
        """See to it that nobody works on a response that is not wanted any more. Who was asked to
        end it tells the vendor: who follows it may be gone."""
        self._stop_work(response_id)
        if kept.response["status"] in RUNNING and kept.at_vendor is not None:
            with suppress(APIError):
                followed = self.followed(api, kept.response, kept.at_vendor)
                telling = asyncio.create_task(followed.cancel())
                self._telling.add(telling)
                telling.add_done_callback(self._telling.discard)
                await asyncio.shield(telling)

    # The work -------------------------------------------------------------------------------------

    @cached_property
    def _worker(self) -> str:
        # Not before it is needed: a process that is forked later is another worker.
        return os.urandom(8).hex()

    @property
    def _kept(self) -> ResponseStore:
        assert self._store is not None
        return self._store

    def _stop_work(self, response_id: str) -> None:
        task = self._tasks.get(response_id)
        if task is not None:
            task.cancel()

    async def _run(
        self, queued: Mapping[str, Any], work: Callable[[], Awaitable[ResponseObject]]
    ) -> None:
        try:
            response = await work()
        except APIError as error:
            response = _failed(queued, error)
        except asyncio.CancelledError:
            # Where a client cancelled it, the store has it as cancelled and leaves it so.
            await self._kept.complete(_failed(queued, shutting_down()))
            raise
        except Exception:
            log.exception("response %s failed in the background", queued["id"])
            response = _failed(queued, internal_error())
        await self._keep(response)

    async def _follow(self, request: Request, followed: FollowedReply) -> None:
        later, response_id = replace(request, reply=None), followed.kept["id"]
        is_ours = False
        try:
            response = await self._until_done(later, followed)
            # What a client cancelled has ended in the store, where it stays as it is.
            is_ours = await self._keep(response, self._worker)
        finally:
            # It counts for whoever has claimed it, and once.
            if is_ours:
                await request.went_on(later)
            else:
                request.hand_on()
                with suppress(APIError):
                    await self._kept.running.let_go(response_id, self._worker)

    async def _until_done(self, later: Request, followed: FollowedReply) -> ResponseObject:
        """What came of a reply that a vendor makes, which `later` says too."""
        try:
            last, response = await followed.until_done()
        except APIError as error:
            later.failed(error)
        except asyncio.CancelledError:
            if self._stopping:
                raise
            return {**followed.kept, "status": "cancelled"}
        except Exception:
            log.exception("response %s could not be followed", followed.kept["id"])
            later.failed(internal_error())
        else:
            later.was_read(last)
            return response
        assert later.error is not None
        return _failed(followed.kept, later.error)

    async def _keep(self, response: ResponseObject, worker: str | None = None) -> bool:
        """Have the store know what was made, once it can be used; whether it was `worker`'s to say.

        Where that is known, a caller that is cancelled meanwhile is told, and goes on.
        """
        late = time.monotonic() + KEEP_SECONDS
        while True:
            keeping = asyncio.create_task(self._kept.complete(response, worker))
            try:
                return await _known(keeping)
            except APIError:  # which has been logged
                if time.monotonic() > late:
                    log.error("response %s was made, and could not be kept", response["id"])
                    raise
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, store: ResponseStore) -> None:
        running = store.running
        while True:
            try:
                if self._tasks:
                    for response_id in await running.keep_alive(list(self._tasks), self._worker):
                        self._stop_work(response_id)
                if time.monotonic() >= self._adopts_from:
                    left = await running.left()
                    await self._adopt([each for each, at in left.items() if self._can_adopt(at)])
            except APIError:  # the store has said why
                # It was away for others too, who are not dead: they say so before this is over.
                self._adopts_from = time.monotonic() + AFTER_OUTAGE_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    # What others have left ------------------------------------------------------------------------

    def _can_adopt(self, at: AtVendor | None) -> bool:
        return at is None or at.provider in self._providers

    async def _adopt(self, ids: Sequence[str]) -> None:
        """Go on with those of these responses that their workers have left, as far as there is
        room: what a vendor makes is followed, what was made by one that is gone has failed."""
        adopter, room = self._adopter, MAX_RUNNING - len(self._tasks)
        left = [each for each in ids if each not in self._tasks][: max(0, room)]
        if adopter is None or not adopter.is_open or self._stopping or not left:
            return
        for each in await self._kept.running.claim(left, self._worker):
            response, at = each.reply, each.at_vendor
            if at is None:
                await self._kept.give_up(response)
                continue
            log.warning("response %s, which another process left, is followed here", response["id"])
            followed = self.followed(api_of(response["id"]), response, at)
            adopter.hold()
            following = self.follow(await adopter.request(each, at), followed)
            following.add_done_callback(lambda _: adopter.release())


async def _known(task: asyncio.Task[T]) -> T:
    """What comes of `task`, which has to be finished, although the caller is cancelled meanwhile;
    nothing then where it fails."""
    try:
        await surely(task)
    except asyncio.CancelledError:
        if task.exception() is not None:
            raise
    return task.result()


def _failed(queued: Mapping[str, Any], error: APIError) -> ResponseObject:
    api = api_of(queued["id"])
    told = response_error(error) if api is RESPONSES_KEPT else error_object(error)
    return api.failed(queued, told)
