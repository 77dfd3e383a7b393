"""vLLM's server, which may tell what its KV cache holds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple

import msgspec
from msgspec import Raw

from llama_compat.errors import APIError
from llama_compat.exchange import Call, Reply, Target
from llama_compat.going_on import going_on
from llama_compat.off_loop import off_loop
from llama_compat.prefixes.chain import Chain, chain_of
from llama_compat.prefixes.held import CacheNews
from llama_compat.prefixes.marks import Marks, marks_of
from llama_compat.wire.json_fields import encode_fields, to_raw
from providers.base import ProviderConfig, ProviderModel, TellOfCache
from providers.followers import Followers
from providers.remote.openai.provider import RemoteOpenAIProvider
from providers.remote.openai.vendor import Vendor
from providers.remote.relaying.json_objects import read_object
from providers.remote.vllm.cache import ServerCache
from providers.remote.vllm.messages import EventBatch
from providers.remote.vllm.settings import VLLMConfig
from providers.remote.vllm.subscription import KVEventSubscription
from providers.remote.vllm.token_texts import token_bytes
from providers.requirements import require

TELL_SECONDS = 0.05
"""So long changes gather before they are told."""

MOST_ASKED = 256
"""So many prompts wait to be made into tokens; of more the first are passed over, and what is known
of them is that they were sent."""

CHAT_MEMBERS = (
    *("messages", "tools", "add_generation_prompt", "continue_final_message"),
    *("chat_template", "chat_template_kwargs"),
)
"""What the tokens of a chat depend on (vLLM's `TokenizeChatRequest`)."""

_MEMBERS = {"chat": CHAT_MEMBERS, "completions": ("prompt", "add_special_tokens")}


class _Asked(NamedTuple):
    call: Call
    target: Target
    chain: Chain


class VLLMProvider(RemoteOpenAIProvider):
    """A server whose cache is followed where its settings say where it tells of it.

    What it tells of are tokens. Which tokens a prompt has the server itself says: it is asked by
    `POST /tokenize`, beside the request and never before it, for prompts with something new. So
    chats and completions are known here by what is really there; what goes to it by other wires, or
    has images or a salt, by what was sent.

    Args:
        provider_id, config, models: as for every provider.
        vendor: its row in the table `VENDORS`.
    """

    Config: ClassVar[type[ProviderConfig]] = VLLMConfig
    config: VLLMConfig

    def __init__(
        self,
        provider_id: str,
        config: ProviderConfig,
        models: Sequence[ProviderModel],
        *,
        vendor: Vendor,
    ) -> None:
        super().__init__(provider_id, config, models, vendor=vendor)
        self._cache = ServerCache()
        self._followers: Followers[[str, str, CacheNews]] = Followers(f"KV cache of {self.id}")
        self._told = "", 0
        self._asked: deque[_Asked] = deque(maxlen=MOST_ASKED)
        self._came = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """As every remote provider; and begin to follow its cache.

        Raises:
            ProviderStartError: a package is missing, or what every remote provider raises.
        """
        if self.config.kv_events is not None:
            require(["zmq"], f"for `kv_events` of the provider '{self.id}'", "kv-events")
        await super().start()
        if self.config.kv_events is not None:
            subscription = KVEventSubscription(
                self.id, self.config.kv_events, self._take, self._lose
            )
            self._tasks = [
                asyncio.create_task(
                    going_on(f"KV cache of {self.id}", each), name=f"KV cache of {self.id}"
                )
                for each in (subscription.run, self._learn, self._keep_telling)
            ]

    async def stop(self) -> None:
        """Follow it no more, and close the connections."""
        tasks, self._tasks = self._tasks, []
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().stop()

    def follow_caches(self, tell: TellOfCache) -> Callable[[], None]:
        """Have `tell` called with what the server's cache holds."""
        if self.config.kv_events is None:
            return lambda: None
        leave = self._followers.add(tell)
        self._told = "", 0  # who is new is told all there is, and who is not hears it again
        self._changed.set()
        return leave

    def relay(self, call: Call, target: Target) -> Coroutine[Any, Any, Reply]:
        """As every vendor's; and have the prompt made into tokens.

        Raises:
            APIError: as every vendor's.
        """
        if self._followers and call.operation.name in _MEMBERS and call.extent.prompts == 1:
            self._ask(call, target)
        return super().relay(call, target)

    def _ask(self, call: Call, target: Target) -> None:
        salt = call.fields.get("cache_salt")
        if salt is None or bytes(salt) == b"null":
            chain = chain_of(call)
            if chain and not all(map(self._cache.held.knows, chain)):
                self._asked.append(_Asked(call, target, chain))
                self._came.set()

    # Tasks ----------------------------------------------------------------------------------------

    def _take(self, batch: EventBatch) -> None:
        self._cache.take(batch)
        self._changed.set()
        self._came.set()

    def _lose(self) -> None:
        self._cache.clear()
        self._changed.set()

    async def _learn(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            # Until it has told of a block nobody knows how large they are.
            while self._asked and self._cache.block_size is not None:
                call, target, _ = self._asked.popleft()
                with suppress(APIError):
                    marks, tokens = await self._tokenized(call, target)
                    self._cache.learn(marks, tokens)
                    self._changed.set()

    async def _tokenized(self, call: Call, target: Target) -> tuple[Marks, Sequence[int]]:
        """The tokens of a prompt, as the server makes them of it, and the marks of its characters.

        Raises:
            APIError: it does not say.
        """
        names = _MEMBERS[call.operation.name]
        fields: dict[str, Raw] = {
            name: value for name in names if (value := call.fields.get(name)) is not None
        }
        fields |= {"model": to_raw(target.model), "return_token_strs": to_raw(True)}
        exchange = self.upstream.post(
            "/tokenize", encode_fields(fields), base_url=self._root, idempotent=True
        )
        async with exchange as response:
            told = await read_object(self.id, response, _tokens_of)
        size = sum(map(len, told.token_strs))
        marks = await off_loop(call.size + size, marks_of, call, token_bytes(told.token_strs))
        return marks, told.tokens

    @property
    def _root(self) -> str:
        """Where the server's own paths begin: before `/v1`."""
        return self.config.base_url.removesuffix("/v1")

    async def _keep_telling(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(TELL_SECONDS)
            self._changed.clear()
            news = self._cache.held.news(*self._told)
            if not self._followers or (news.log, news.number) == self._told:
                continue
            self._told = news.log, news.number
            for model in self.models:
                self._followers.tell(model.name, "", news)


class _Tokenized(msgspec.Struct):
    tokens: Sequence[int]
    token_strs: Sequence[str] = ()


def _tokens_of(told: Any) -> _Tokenized:
    try:
        return msgspec.convert(told, _Tokenized)
    except msgspec.MsgspecError as error:
        raise ValueError(f"/tokenize: {error}") from None
