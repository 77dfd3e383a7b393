"""A model that says again what it was told, word by word: for trying clients out.

It is deterministic: every word is the only one that it would ever say at that place, so that the
temperature, `top_p`, `top_k` and the seed are honoured by having no effect. A token is a word with
the white space after it.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import sys
import zlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, TypeVar

from msgspec.structs import replace
from pydantic import Field

from llama_compat.errors import context_length_exceeded, invalid_parameter, unsupported_content
from llama_compat.events import ReplyParts
from llama_compat.mixins import (
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
)
from llama_compat.off_loop import off_loop
from llama_compat.prefixes.held import HeldPrompts
from llama_compat.prefixes.marks import Marks
from llama_compat.text.stop_strings import StopStrings
from llama_compat.tools.calls import ToolCallAssembler, new_call_id
from llama_compat.types import (
    AudioContent,
    ChatCompletionRequest,
    CompletionRequest,
    DocumentContent,
    EmbeddingRequest,
    EmbeddingResponse,
    ImageContent,
    Message,
    RankedDocument,
    RerankRequest,
    RerankResponse,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    ToolCallDelta,
    ToolDefinition,
    Usage,
    UserMessage,
    content_text,
    media_in,
)
from providers.base import WAKING_KEEPALIVE_SECONDS, Provider, ProviderConfig, ProviderModel
from providers.local.replies.call_rules import call_rules
from providers.local.simulation.config import SimulationConfig
from providers.local.simulation.engine import SimulatedSequence, block_hashes
from providers.local.simulation.host import SimulatedHost
from providers.local.simulation.runner import SimulationRunner

if TYPE_CHECKING:
    from providers.local.residency.residency import Residency
    from providers.local.residency.resident import Resident

DIMENSIONS = 256
"""Numbers of a vector, where the request does not say."""

MAX_DIMENSIONS = 4096

_Asked = TypeVar("_Asked", ChatCompletionRequest, CompletionRequest)


class EchoConfig(ProviderConfig):
    """The settings of `local::echo`."""

    delay_ms: float = Field(0, ge=0)
    """Milliseconds between two words, so that a stream can be watched."""

    simulate: SimulationConfig | None = None
    """Takes the time that an engine with these numbers would take, and keeps what it has computed
    as one would, so that routing can be tried without any. Each model has an engine of its own;
    None answers at once."""


class EchoProvider(
    OpenAICompletionUnsupportedMixin,
    OpenAIChatCompletionUnsupportedMixin,
    OpenAIEmbeddingsUnsupportedMixin,
    Provider,
):
    """Answers a chat with its last user message, and continues a prompt with the prompt.

    Where a request demands a tool call (`tool_choice` is `required` or names a function), the
    answer is a call of that tool, or of the first; the text goes into the first parameter that
    takes a string. Documents are ranked by how many of the query's words they have, and vectors of
    texts are the more alike the more words the texts have in common.

    Attributes:
        running: how many generations run at the moment.
    """

    Config: ClassVar[type[ProviderConfig]] = EchoConfig
    config: EchoConfig

    parameters: frozenset[str] = frozenset(
        {
            "max_tokens",
            "max_completion_tokens",
            "stop",
            "seed",
            "temperature",
            "top_p",
            "top_k",
            "echo",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "cache_salt",
        }
    )

    embedding_parameters = frozenset({"dimensions"})

    rerank_parameters = frozenset({"truncation"})

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self._delay = self.config.delay_ms / 1000
        self._simulated: dict[str, SimulationRunner] = {}
        self._residency: Residency | None = None
        self._hosts: dict[str, SimulatedHost] = {}
        self._residents: dict[str, Resident] = {}
        self._telling: set[str] = set()
        self.running = 0

    def share_memory(self, residency: Residency) -> None:
        """Load simulated models when they are asked for, as far as `residency` has room for
        them; those that simulate nothing are always there."""
        if self.config.simulate is not None:
            self._residency = residency
            self.keepalive_seconds = WAKING_KEEPALIVE_SECONDS

    def serves(self, config: ProviderConfig, models: Sequence[ProviderModel]) -> bool:
        """Whether a new provider with these settings would be no other; its models matter where
        they take memory."""
        same_models = self._residency is None or tuple(models) == self.models
        return same_models and super().serves(config, models)

    async def start(self) -> None:
        """Load what is to be there from the start, where memory is shared.

        Raises:
            ProviderStartError: there is not enough of it.
        """
        if self._residency is None:
            return
        assert self.config.simulate is not None
        for model in self.models:
            host = SimulatedHost(self.id, model.name, self.config.simulate)
            self._hosts[model.name] = host
            self._residents[model.name] = self._residency.add(host, model.stay)
            if model.stay.preload:
                await self._residency.preload(self._residents[model.name])

    async def stop(self) -> None:
        """Stop the simulated engines, if there are any."""
        residents, self._residents = self._residents, {}
        for resident in residents.values():
            await resident.remove()
        for runner in self._simulated.values():
            await runner.stop()

    def resident(self, model: str) -> Resident | None:
        """What is leased of a simulated model that shares memory."""
        return self._residents.get(model)

    def _runners(self) -> Iterator[SimulationRunner]:
        yield from self._simulated.values()
        yield from (each.runner for each in self._hosts.values() if each.runner is not None)

    def stats(self) -> dict[str, int]:
        """How many generations run now; none waits, but for room in a simulated engine."""
        waiting = sum(runner.engine.waiting for runner in self._runners())
        counted = {"running": self.running - waiting}
        return counted if self.config.simulate is None else {**counted, "waiting": waiting}

    def context_length(self, model: str) -> int | None:
        """What the cache of a simulated engine holds."""
        simulate = self.config.simulate
        return None if simulate is None else simulate.capacity

    def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt with itself; the ids of a tokenized prompt are its words."""
        return self._generate(request, self._complete)

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResponse:
        """Vectors of length 1 in which each word is a direction, of `dimensions` numbers or of
        256.

        Raises:
            APIError: 400, they are more than anybody needs.
        """
        if (request.dimensions or 0) > MAX_DIMENSIONS:
            raise invalid_parameter(
                "dimensions", f"'dimensions' may be {MAX_DIMENSIONS} at most for this model."
            )
        size = sum(map(len, request.inputs))
        return await off_loop(size, _vectors, request.inputs, request.dimensions or DIMENSIONS)

    async def rerank(self, request: RerankRequest) -> RerankResponse:
        """The share of the query's words that is in each document; nothing is ever too long."""
        texts = (request.query, *request.documents)
        query, *documents = [set(text.lower().split()) for text in texts]
        shares = [len(query & words) / max(1, len(query)) for words in documents]
        best = sorted(range(len(shares)), key=lambda place: (-shares[place], place))
        found = [RankedDocument(place, shares[place]) for place in best]
        tokens = sum(len(text.split()) for text in texts)
        return RerankResponse(tuple(found[: request.top_n]), Usage(tokens))

    def chat_completion(self, request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Say what the last user message says, or call the tool that is demanded."""
        return self._generate(request, self._chat)

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many words the messages have."""
        return await off_loop(_size(request), _count, request)

    async def _generate(
        self, request: _Asked, say: Callable[[_Asked, int], Iterator[StreamEvent]]
    ) -> AsyncGenerator[StreamEvent, None]:
        self.running += 1
        try:
            prompt_tokens = await off_loop(_size(request), _count, request)
            events = say(request, prompt_tokens)
            if self.config.simulate is not None:
                async with aclosing(self._in_time(request, list(events))) as timed:
                    async for event in timed:
                        yield event
                return
            for event in events:
                if isinstance(event, StreamProgress):
                    # Even without a delay: a long answer must not keep others from theirs.
                    await asyncio.sleep(self._delay)
                yield event
        finally:
            self.running -= 1

    async def _in_time(
        self, request: ChatCompletionRequest | CompletionRequest, events: Sequence[StreamEvent]
    ) -> AsyncGenerator[StreamEvent, None]:
        """The same events, each when a simulated engine would have come to it."""
        start, *pieces, complete = events
        assert isinstance(start, StreamStart)
        assert isinstance(complete, StreamComplete)
        runner = self._runner(request.model)
        size, usage = runner.engine.config.block_tokens, complete.usage
        said = "".join(_text_of(each) for each in pieces)
        words = [word for text in (*_texts(request), said) for word in _words(text)]
        sequence = SimulatedSequence(
            block_hashes(words, size, request.sampling.cache_salt),
            max(1, usage.prompt_tokens),
            max(1, usage.completion_tokens),
            await self._marks(request),
        )
        if sequence.prompt_tokens + sequence.reply_tokens > runner.engine.config.capacity:
            raise context_length_exceeded(
                runner.engine.config.capacity, sequence.prompt_tokens, sequence.reply_tokens
            )
        given = 0
        async with aclosing(runner.said(sequence)) as progress:
            async for tokens in progress:
                if tokens == 1:
                    yield start
                due = len(pieces) * tokens // sequence.reply_tokens
                for piece in pieces[given:due]:
                    yield piece
                given = max(given, due)
        yield replace(complete, usage=replace(usage, cached_tokens=sequence.cached_tokens))

    def held_prompts(self, model: str) -> HeldPrompts | None:
        """Those in the cache of a simulated engine."""
        if self.config.simulate is None or all(each.name != model for each in self.models):
            return None
        if model in self._hosts and self._hosts[model].runner is None:
            return None
        self._telling.add(model)
        return self._runner(model).engine.held_prompts()

    async def _marks(self, request: ChatCompletionRequest | CompletionRequest) -> Marks:
        mark = request.mark
        if mark is None or request.model not in self._telling:
            return ()
        words = [
            word.encode("utf-8", "surrogatepass")
            for text in _texts(request)
            for word in _words(text)
        ]
        return await off_loop(_size(request), mark, words)

    def _runner(self, model: str) -> SimulationRunner:
        host = self._hosts.get(model)
        runner = self._simulated.get(model) if host is None else host.runner
        if runner is None:
            assert host is None, f"{model} is asked without being leased"
            assert self.config.simulate is not None
            runner = self._simulated[model] = SimulationRunner(self.config.simulate)
        return runner

    def _complete(self, request: CompletionRequest, prompt_tokens: int) -> Iterator[StreamEvent]:
        (text,) = _texts(request)
        limit = _limit(request, prompt_tokens)
        yield StreamStart(prompt_tokens)
        if request.echo and text:
            yield StreamProgress(TextDelta(text))
        yield from _say(text, prompt_tokens, limit, request.sampling.stop)

    def _chat(self, request: ChatCompletionRequest, prompt_tokens: int) -> Iterator[StreamEvent]:
        _refuse_media(request.messages)
        demanded = call_rules(request).demanded
        limit = _limit(request, prompt_tokens)
        said = [each for each in request.messages if isinstance(each, UserMessage)]
        text = content_text(said[-1].content) if said else ""
        yield StreamStart(prompt_tokens)
        if demanded:
            yield from _call(demanded[0], text, prompt_tokens, limit)
        else:
            yield from _say(text, prompt_tokens, limit, request.sampling.stop)


def _text_of(event: StreamEvent) -> str:
    delta = event.delta if isinstance(event, StreamProgress) else None
    if isinstance(delta, TextDelta):
        return delta.text
    return delta.arguments if isinstance(delta, ToolCallDelta) else ""


def _texts(request: ChatCompletionRequest | CompletionRequest) -> list[str]:
    if isinstance(request, ChatCompletionRequest):
        return [content_text(each.content) for each in request.messages]
    prompt = request.prompt
    return [prompt if isinstance(prompt, str) else " ".join(map(str, prompt))]


def _size(request: ChatCompletionRequest | CompletionRequest) -> int:
    return sum(map(len, _texts(request)))


def _vectors(texts: Sequence[str], dimensions: int) -> EmbeddingResponse:
    vectors, count = [], 0
    for text in texts:
        words = re.findall(r"\w+", text.lower())
        vector = [0.0] * dimensions
        for word in words:
            vector[zlib.crc32(word.encode("utf-8", "replace")) % dimensions] += 1.0
        length = math.hypot(*vector) or 1.0
        vectors.append(tuple(each / length for each in vector))
        count += len(words)
    return EmbeddingResponse(tuple(vectors), count)


def _count(request: ChatCompletionRequest | CompletionRequest) -> int:
    return sum(1 for text in _texts(request) for _ in _words(text))


def _limit(request: ChatCompletionRequest | CompletionRequest, prompt_tokens: int) -> int | None:
    """How many tokens the answer may have; None for any number.

    Raises:
        APIError: 400 if they do not fit into the context with the prompt.
    """
    wanted, context = request.sampling.max_tokens, request.context_length
    if context is None:
        return wanted
    least = 1 if wanted is None else wanted
    if prompt_tokens + least > context:
        raise context_length_exceeded(context, prompt_tokens, least)
    return context - prompt_tokens if wanted is None else wanted


def _words(text: str) -> Iterator[str]:
    """`text` cut into words, each with the white space after it; white space that it begins with
    is one more."""
    return (match[0] for match in _WORD.finditer(text))


_WORD = re.compile(r"^\s+|\S+\s*")

EVENT_CHARACTERS = 1024
"""An answer whose text is longer than `LONG_CHARACTERS` comes in pieces of so many at least:
millions of words would be millions of events."""

LONG_CHARACTERS = 64 * 1024


def _pieces(text: str, limit: int | None) -> Iterator[tuple[str, int]]:
    """The first `limit` words of `text` in pieces, each with how many words it has."""
    least = EVENT_CHARACTERS if len(text) > LONG_CHARACTERS else 1
    piece: list[str] = []
    size = 0
    for word in islice(_words(text), None if limit is None else min(limit, sys.maxsize)):
        piece.append(word)
        size += len(word)
        if size >= least:
            yield "".join(piece), len(piece)
            piece, size = [], 0
    if piece:
        yield "".join(piece), len(piece)


def _say(
    text: str, prompt_tokens: int, limit: int | None, stop: Sequence[str]
) -> Iterator[StreamEvent]:
    stop_strings = StopStrings(stop)
    said = length = 0
    for piece, words in _pieces(text, limit):
        shown, stopped = stop_strings.push(piece)
        if shown:
            yield StreamProgress(TextDelta(shown))
        if stopped:
            said += min(words, max(1, sum(1 for _ in _words(shown))))
            break
        said += words
        length += len(piece)
    held = stop_strings.flush()
    if held:
        yield StreamProgress(TextDelta(held))
    whole = stop_strings.stopped or length == len(text)
    reason = StopReason.end_of_turn if whole else StopReason.out_of_tokens
    yield StreamComplete(reason, Usage(prompt_tokens, said), stop_strings.matched)


def _call(
    tool: ToolDefinition, text: str, prompt_tokens: int, limit: int | None
) -> Iterator[StreamEvent]:
    arguments = json.dumps(_arguments(tool, text), ensure_ascii=False)
    said = length = 0
    assembler, parts = ToolCallAssembler(), ReplyParts()
    yield from map(parts.progress, assembler.push(call_id=new_call_id(), tool_name=tool.tool_name))
    for piece, words in _pieces(arguments, limit):
        yield from map(parts.progress, assembler.push(arguments=piece))
        said += words
        length += len(piece)
    whole = length == len(arguments)
    yield from map(parts.progress, assembler.finish(cut=not whole))
    reason = StopReason.end_of_message if whole else StopReason.out_of_tokens
    yield StreamComplete(reason, Usage(prompt_tokens, said))


def _arguments(tool: ToolDefinition, text: str) -> dict[str, str]:
    properties = (tool.parameters or {}).get("properties")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        if isinstance(schema, dict) and schema.get("type") == "string" and "enum" not in schema:
            return {name: text}
    return {}


def _refuse_media(messages: Sequence[Message]) -> None:
    for index, message in enumerate(messages):
        for medium in media_in(message.content):
            path = f"messages[{index}].content"
            what = _MEDIA[type(medium)]
            raise unsupported_content(path, f"'{path}' holds {what}; local::echo takes text only.")


_MEDIA = {ImageContent: "an image", AudioContent: "audio", DocumentContent: "a document"}
