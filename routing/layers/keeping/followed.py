"""Replies that a vendor makes while nobody waits for them, followed until they are there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from llama_compat.errors import APIError, invalid_parameter
from llama_compat.exchange import Call, Reply, Target
from llama_compat.off_loop import off_loop
from llama_compat.wire.json_fields import from_raw
from providers.base import Provider
from routing.policy.targets import TargetState
from routing.storage.kept import AtVendor, KeptAPI
from routing.storage.kept_rows import RUNNING

log = logging.getLogger(__name__)

FIRST_SECONDS = 1.0
MOST_SECONDS = 5.0
"""A vendor is asked after the first, and ever later up to the second."""

PATIENCE_SECONDS = 600.0
"""So long may a vendor not be reached before what it makes is given up."""


class FollowedReply(Struct, frozen=True):
    """One reply that a vendor makes.

    Attributes:
        api: whose it is.
        kept: the reply as it was last known here, with the id that it has here.
        provider: whose vendor makes it.
        at: where that has it.
    """

    api: KeptAPI
    kept: Mapping[str, Any]
    provider: Provider
    at: AtVendor

    async def look(self, *, cancel: bool = False) -> Reply:
        """The reply as the vendor has it now; with `cancel`, it is to end first.

        Raises:
            APIError: whatever went wrong with the vendor.
        """
        target = Target(self.at.model)
        return await self.provider.kept_reply(self.api.wire, target, self.at.id, cancel=cancel)

    async def as_here(self, reply: Reply) -> dict[str, Any]:
        """What the vendor says, with the names that clients know."""
        found = await decoded(reply)
        own = ("id", "model", "agent", self.api.previous)
        here = {name: self.kept[name] for name in own if name in self.kept}
        return {**found, **here, self.api.output: said(self.api, found)}

    async def until_done(self) -> tuple[Reply, dict[str, Any]]:
        """The vendor's reply when that has come to its end, and what it is here.

        Raises:
            APIError: the vendor knows nothing of it, or can't be reached for too long.
        """
        pause, reached = FIRST_SECONDS, time.monotonic()
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, MOST_SECONDS)
            try:
                reply = await self.look()
            except APIError as error:
                if time.monotonic() - reached > PATIENCE_SECONDS or error.status == 404:
                    raise
                log.debug("%s: asked for again later: %s", self.kept["id"], error.message)
                continue
            reached = time.monotonic()
            here = await self.as_here(reply)
            if here.get("status") not in RUNNING:
                return reply, here

    async def cancel(self) -> None:
        """Have the vendor end it, as well as can be."""
        try:
            await self.look(cancel=True)
        except APIError as error:
            log.warning("%s could not be cancelled at the vendor: %s", self.kept["id"], error)


_ASKED = frozenset({"user_input", "function_result"})
"""Steps of an interaction that were asked, not said."""


async def decoded(reply: Reply) -> dict[str, Any]:
    """The object that a whole reply is."""
    assert isinstance(reply.body, bytes)
    found: dict[str, Any] = await off_loop(len(reply.body), from_raw, Raw(reply.body))
    return found


def said(api: KeptAPI, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a reply says: Google repeats before it what was asked, which is kept by itself."""
    items = body.get(api.output)
    if not isinstance(items, list):
        return []
    return [each for each in items if isinstance(each, dict) and each.get("type") not in _ASKED]


def place_of(target: TargetState, call: Call, body: Mapping[str, Any]) -> AtVendor | None:
    """Where the vendor of `target` makes the reply to `call`, which it has begun; None where it is
    done with it."""
    reply_id = body.get("id")
    if body.get("status") not in RUNNING or not isinstance(reply_id, str) or not reply_id:
        return None
    provider = target.provider.id
    return AtVendor(provider, target.model, reply_id, call.model, call.request_id)


def unknown_vendor(api: KeptAPI, at: AtVendor) -> APIError:
    """400: the template has lost the provider that makes a reply."""
    return invalid_parameter(
        f"{api.noun}_id",
        f"This {api.noun} is made at the vendor of provider '{at.provider}', which the template has"
        " no more.",
    )
