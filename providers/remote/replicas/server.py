"""A server of our own that is asked over HTTP: every client API is relayed to it as it came."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec.structs import replace

from llama_compat.errors import APIError, upstream_error
from llama_compat.exchange import (
    ADAPTED_HEADER,
    DROPPED_HEADER,
    VENDORS_ID_HEADER,
    Call,
    Reply,
    Target,
)
from llama_compat.prefixes.held import CacheNews
from providers.base import ProviderModel
from providers.local.engine import Stats
from providers.remote.gemini import interactions
from providers.remote.gemini import relay as gemini
from providers.remote.http1 import Timeouts
from providers.remote.ollama import relay as ollama
from providers.remote.openai.provider import RemoteOpenAIProvider
from providers.remote.openai.settings import RemoteOpenAIConfig
from providers.remote.openai.vendor import Vendor
from providers.remote.openai.wires import MEDIA, RERANK, WITH_RESPONSES
from providers.remote.relaying.json_objects import read_object
from providers.remote.upstream.exchanges import Below

_DAY = 86400

OWN_SERVER = Vendor(
    name="A replica",
    needs_key=False,
    wires={
        wire: f"/v1{path}"
        for wire, path in {
            **WITH_RESPONSES,
            **MEDIA,
            **RERANK,
            "voyage_rerank": "/rerank",
            "input_tokens": "/responses/input_tokens",
            "compact": "/responses/compact",
            "messages": "/messages",
            "count_tokens": "/messages/count_tokens",
        }.items()
    }
    | {"rerank_v2": "/v2/rerank"},
    models_path="/v1/models",
    knows_service_tier=True,
)
"""This server's row among the vendors: it has every wire, and refuses nothing by itself."""

_Relay = Callable[[str, Below, Call, Target], Awaitable[Reply]]

_OTHER_WIRES: Mapping[str, tuple[str, _Relay]] = {
    **dict.fromkeys(ollama.PATHS, ("", ollama.relay)),
    **dict.fromkeys(gemini.METHODS, ("/v1beta", gemini.relay)),
    interactions.WIRE: ("/v1beta", interactions.relay),
}
"""Where the wires begin that are not OpenAI's, and how each is relayed."""


class OwnServer(RemoteOpenAIProvider):
    """One server of our own, which has one model and calls it whatever a client does.

    So nothing is translated on the way to it, nor does a name change: what it says is what the
    model would have said in this process.

    Args:
        provider_id: whose replica it is.
        place: its address, up to where its paths begin.
        models: the one that it has.
    """

    def __init__(self, provider_id: str, place: str, models: Sequence[ProviderModel] = ()) -> None:
        config = RemoteOpenAIConfig(
            base_url=place,
            # As long as it would take here; a server that is gone closes its connections.
            timeouts=Timeouts(first_byte=_DAY, between_bytes=_DAY),
            max_connections=0,
            # It is in the same network, if not in the same machine.
            proxy=None,
        )
        super().__init__(provider_id, config, models, vendor=OWN_SERVER)
        self.relays = self.relays | _OTHER_WIRES.keys()

    async def relay(self, call: Call, target: Target) -> Reply:
        """Pass a call on, and its reply back.

        Raises:
            APIError: what the server says, or that it can't be asked.
        """
        try:
            return _as_here(await self._relayed(call, target))
        except APIError as error:
            for name in _IDS:
                error.headers.pop(name, None)
            raise

    async def _relayed(self, call: Call, target: Target) -> Reply:
        # What it may hold, and what is marked in it, is known where the model is.
        target = replace(target, model=call.model, context_length=None, prompt_cache=False)
        other = _OTHER_WIRES.get(call.operation.name)
        if other is None:
            return await super().relay(call, target)
        root, relay = other
        if root:
            target = replace(target, model=quote(call.model, safe=_IN_PATHS))
        return await relay(self.id, Below(self.upstream, root), call, target)

    async def engines(self) -> Mapping[str, Stats]:
        """What its engines do, by model.

        Raises:
            APIError: it can't be asked.
        """
        async with self.upstream.get("/health") as response:
            return await read_object(self.id, response, _stats)

    async def cache_news(self, model: str, log: str, after: int) -> CacheNews:
        """What is new of the cache of a model since then.

        Raises:
            APIError: it can't be asked; 404, there is no such cache.
        """
        asked = urlencode({"model": model, "log": log, "after": after})
        async with self.upstream.get(f"/kv_blocks?{asked}") as response:
            body = await response.read(MAX_NEWS_BYTES)
        try:
            return msgspec.json.decode(body, type=CacheNews)
        except msgspec.MsgspecError as error:
            raise upstream_error(self.id, f"what it says of its cache: {error}") from None


MAX_NEWS_BYTES = 4 * 1024 * 1024
"""Of all that a cache holds, where `held.MOST_BLOCKS` take less than 1 MiB."""

_IDS = (VENDORS_ID_HEADER, "request-id")
"""What the server calls a request is what it is called here."""


def _as_here(reply: Reply) -> Reply:
    """`reply` with what was done to the request as one of this process has it."""
    headers = {name: value for name, value in reply.headers.items() if name not in _IDS}
    reply.dropped += _listed(headers.pop(DROPPED_HEADER, ""))
    reply.adapted += _listed(headers.pop(ADAPTED_HEADER, ""))
    reply.headers = headers
    return reply


def _listed(names: str) -> tuple[str, ...]:
    return tuple(each for name in names.split(",") if (each := name.strip()))


_IN_PATHS = "/!$&'()*+,;=:@-._~"


def _stats(health: Mapping[str, Any]) -> Mapping[str, Stats]:
    engines = health.get("engines", [])
    known = Stats.__dataclass_fields__.keys()
    return {
        each["model"]: Stats(**{name: each[name] for name in known if name in each})
        for each in engines
    }
