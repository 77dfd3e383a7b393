"""`remote::anthropic-messages`: Anthropic, and whoever has the same API, over the Messages API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence, Set
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from llama_compat.catalog.makers import reasoning_family
from llama_compat.dialects import anthropic_messages
from llama_compat.dialects.anthropic_messages.input.cache_marks import with_cache_marks
from llama_compat.dialects.anthropic_messages.versions import VERSION, key_header, takes_sampling
from llama_compat.dialects.sampling import too_warm
from llama_compat.dialects.stop_lists import CLAUDES_STOPS, StopBound
from llama_compat.events import with_told
from llama_compat.exchange import Call, Reply, Target
from llama_compat.fan_out import Events
from llama_compat.fitting.forced_reply import (
    json_by_call,
    thought_before_forced_call,
    with_json_call,
)
from llama_compat.fitting.hints import USERS, HintPlaces
from llama_compat.fitting.placeless import IMAGE_DETAIL, SPEAKERS, TOOL_CHOICES
from llama_compat.hosted.vocabulary import WEB_SEARCH, WebSearchTool
from llama_compat.mixins import (
    ChatOnlyMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
)
from llama_compat.reasoning.recollection import ReasoningRule
from llama_compat.tools.members import ANTHROPIC_MEMBERS
from llama_compat.tools.names import ANTHROPIC_NAMES
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    StreamEvent,
    ThinkingForm,
)
from llama_compat.wire.json_fields import to_raw
from providers.base import ProviderConfig, ProviderModel
from providers.remote.anthropic.pauses import Block, TurnMessage, whole_turn
from providers.remote.anthropic.relay import relay_messages
from providers.remote.batches.anthropic import AnthropicBatches
from providers.remote.batches.base import VendorBatches
from providers.remote.config import HTTPURL, RemoteConfig
from providers.remote.provider import RemoteProvider
from providers.remote.relaying.json_objects import encode, read_object, read_reply
from providers.remote.upstream.exchanges import UpstreamExchange

_BASE_URL = "https://api.anthropic.com"

_PATHS = {"messages": "/v1/messages", "count_tokens": "/v1/messages/count_tokens"}


class AnthropicMessagesConfig(RemoteConfig):
    """The settings of `remote::anthropic-messages`."""

    base_url: Annotated[HTTPURL, AfterValidator(lambda url: url.removesuffix("/v1"))] = _BASE_URL
    """With or without the `/v1` that all paths begin with."""

    version: str = VERSION
    """The `anthropic-version` that is asked for, unless the client names one. From `2026-10-21` on
    no model takes `temperature`, `top_p` and `top_k`: they are left out of what is translated."""

    key_header: Literal["x-api-key", "authorization"] | None = None
    """The header in which the key is sent; in `authorization` it is a bearer's. Without it, as the
    `version`'s own clients do: in `x-api-key` before `2026-10-21`."""

    betas: tuple[str, ...] = ()
    """The `anthropic-beta` features that are asked for, besides the client's."""

    default_max_tokens: int = Field(4096, gt=0)
    """The limit where the caller sets none: the API wants one. It is no more than the model's
    `context_length`."""

    thinking: Literal["adaptive", "budget"] | None = None
    """How `reasoning_effort` is said: as an effort, to Claude 4.6 and later, or as a number of
    tokens, to Claude 4.5 and earlier. Without it, as the catalogue has it of the model, and as an
    effort where that does not know it."""

    thinking_display: Literal["summarized", "omitted"] | None = None
    """Whether thinking is shown; by default as the model has it."""

    hosted_tools: frozenset[Literal["web_search", "web_fetch", "mcp"]] | None = None
    """The tools that the vendor runs itself: calls that ask for no others are relayed, whatever
    `server.tools` has. Without it Anthropic has all of them, and others have none."""


_COUNTED = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config")
"""Members of a request that its count takes."""


class AnthropicMessagesProvider(
    ChatOnlyMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    RemoteProvider,
):
    """Chats with the models behind one Messages API."""

    Config: ClassVar[type[ProviderConfig]] = AnthropicMessagesConfig
    config: AnthropicMessagesConfig
    relays = _PATHS.keys()

    parameters = anthropic_messages.RENDERED_PARAMETERS
    # "input_schema does not support oneOf, allOf, or anyOf at the top level"
    # (anthropics/claude-code#40075, 2026-11-28).
    placeless = frozenset({IMAGE_DETAIL, SPEAKERS, TOOL_CHOICES})
    hint_places = HintPlaces(
        frozenset(USERS),
        one_user=True,
        user=anthropic_messages.USER_ID,
        tiers=frozenset(anthropic_messages.SERVICE_TIERS),
    )
    tool_names = ANTHROPIC_NAMES
    member_names = ANTHROPIC_MEMBERS

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        if not takes_sampling(self.config.version):
            self.model_facts = {"sampling": "default"}

    @property
    def wants_reasoning_back(self) -> bool:
        """It does: turns that call tools begin with thinking."""
        return True

    def batches(self) -> VendorBatches | None:
        """Its Message Batches."""
        return AnthropicBatches(self.id, self.upstream)

    def hosted_tools(self, wire: str) -> Set[str]:
        """Anthropic's own, as https://platform.claude.com/docs/en/agents-and-tools/tool-use lists
        them (2026-11-23), or those that the template names."""
        if self.config.hosted_tools is not None:
            return self.config.hosted_tools
        if self.config.base_url != _BASE_URL:
            return frozenset()
        return frozenset({"web_search", "web_fetch", "mcp"})

    def searches(self, tool: WebSearchTool, request: ChatCompletionRequest) -> bool:
        """Where Anthropic's own tools are, and nothing of the request is against it: no other tool
        has the name that the search has, none has to be called, and the reply is to be text, as it
        cites ("Citations cannot be used with structured outputs", docs/en/build-with-claude/
        citations, 2026-11-23)."""
        wanted, choice = request.response_format, request.tool_choice
        names = {each.tool_name for each in request.tools}
        return (
            WEB_SEARCH in self.hosted_tools("messages")
            and anthropic_messages.SEARCH_NAME not in names
            and tool.name == anthropic_messages.SEARCH_NAME
            and not (tool.allowed_domains and tool.blocked_domains)
            and (wanted is None or wanted.type == "text")
            and (choice is None or choice.tool_name in (None, tool.name))
        )

    def reasoning_rule(self, model: str) -> ReasoningRule:
        """Claude's thinking is for Claude, whoever runs it: its signatures are good at Anthropic,
        Amazon and Google alike (https://platform.claude.com/docs/en/build-with-claude/
        extended-thinking, 2026-11-23). Other models with this API have seals of their own."""
        is_anthropics = self.config.base_url == _BASE_URL
        family = anthropic_messages.FAMILY if is_anthropics else reasoning_family(model)
        return ReasoningRule(family, wanted=True)

    def request_headers(self) -> dict[str, str]:
        """The key, the version and the betas."""
        headers = {"anthropic-version": self.config.version}
        if self.api_key:
            name = self.config.key_header or key_header(self.config.version)
            headers[name] = self.api_key if name == "x-api-key" else f"Bearer {self.api_key}"
        return headers | self._betas()

    def stop_bound(self, model: str) -> StopBound:
        """Any number, each with something to see."""
        return CLAUDES_STOPS

    def unsupported_values(
        self, request: ChatCompletionRequest | CompletionRequest
    ) -> Mapping[str, str]:
        """What has no form in this API."""
        refused = {**too_warm(request.sampling, "Anthropic")}
        if isinstance(request, ChatCompletionRequest):
            refused |= thought_before_forced_call(request)
            refused |= anthropic_messages.no_room_to_think(request, self._thinking(request))
        return refused

    async def live_models(self) -> Sequence[str]:
        """What the vendor lists now.

        Raises:
            APIError: why it does not.
        """
        listing = self.upstream.get("/v1/models?limit=1000")
        return await self.listed(listing, anthropic_messages.parse_models)

    async def relay(self, call: Call, target: Target) -> Reply:
        """Pass a call on to the vendor, and its reply back.

        Raises:
            APIError: whatever went wrong with the vendor.
        """

        def post(body: bytes, headers: Mapping[str, str]) -> UpstreamExchange:
            asked = {**headers, **self._versions(call.headers)}
            return self._send(call.operation.name, body, call.request_id, asked)

        return await relay_messages(
            self.id, call, target.model, post, marks=target.prompt_cache, has_threads=True
        )

    def _versions(self, asked: Mapping[str, str]) -> dict[str, str]:
        """What the client asks for, word by word, and what the template adds to it."""
        version = asked.get("anthropic-version", self.config.version)
        return {"anthropic-version": version, **self._betas(asked.get("anthropic-beta", ""))}

    def _betas(self, asked: str = "") -> dict[str, str]:
        """The header with the betas in `asked`, word by word, and the template's."""
        named = {each.strip() for each in asked.split(",")}
        betas = [asked, *(each for each in self.config.betas if each not in named)]
        return {"anthropic-beta": ",".join(filter(None, betas))} if any(betas) else {}

    def chat_completion(self, request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Say the next message of a conversation."""
        return json_by_call(request, self._say)

    def _say(self, request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        rendered = self._rendered(request)
        body = rendered.body
        if request.marks_prompt:
            body = with_cache_marks({name: to_raw(value) for name, value in body.items()})
        if request.vendor_search is None:
            said = read_reply(
                self.id,
                self._post("messages", request, body, rendered.betas),
                anthropic_messages.parse_reply,
                anthropic_messages.StreamParser(),
                stream=request.stream,
                required=["content"],
            )
            return with_told(said, dropped=rendered.dropped)

        def ask(said: Sequence[Block], message: TurnMessage) -> Events:
            turns = [*rendered.body["messages"], {"role": "assistant", "content": said}]
            goes_on = {**body, "messages": turns} if said else body
            return read_reply(
                self.id,
                self._post("messages", request, goes_on, rendered.betas),
                message.parse,
                message,
                stream=request.stream,
                required=["content"],
            )

        return with_told(whole_turn(ask, stream=request.stream), dropped=rendered.dropped)

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many tokens the vendor counts in the conversation and its tools."""
        rendered = self._rendered(with_json_call(request))
        body = {name: rendered.body[name] for name in _COUNTED if name in rendered.body}
        async with self._post("count_tokens", request, body, rendered.betas) as response:
            return await read_object(
                self.id, response, anthropic_messages.parse_token_reply, required=["input_tokens"]
            )

    def _rendered(self, request: ChatCompletionRequest) -> anthropic_messages.RenderedRequest:
        return anthropic_messages.render_conversation(
            request,
            default_max_tokens=self._default_max_tokens(request),
            thinking=self._thinking(request),
        )

    def _post(
        self,
        operation: str,
        request: ChatCompletionRequest,
        body: Mapping[str, Any],
        betas: Sequence[str],
    ) -> UpstreamExchange:
        headers = self._betas(",".join(betas)) if betas else {}
        return self._send(operation, encode(body), request.request_id, headers)

    def _send(
        self, operation: str, body: bytes, request_id: str, headers: Mapping[str, str]
    ) -> UpstreamExchange:
        """Send a request of Anthropic's API to where that operation is."""
        return self.upstream.post(_PATHS[operation], body, request_id=request_id, headers=headers)

    def _thinking(self, request: ChatCompletionRequest) -> anthropic_messages.Thinking:
        form = request.thinking or ThinkingForm()
        known: Literal["adaptive", "budget"] = "budget" if form.how == "budget" else "adaptive"
        return anthropic_messages.Thinking(
            self.config.thinking or known,
            self.config.thinking_display,
            form.off or "disabled",
            form.bound,
        )

    def _default_max_tokens(self, request: ChatCompletionRequest) -> int:
        default = self.config.default_max_tokens
        return min(default, request.context_length or default)
