"""A model that says again what it was told, word by word: for trying clients out.

It is deterministic: every word is the only one that it would ever say at that place, so that the
temperature, `top_p`, `top_k` and the seed are honoured by having no effect. A token is a word with
the white space after it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import ClassVar

from pydantic import Field

from llama_compat.errors import context_length_exceeded, invalid_parameter
from llama_compat.images import images_in
from llama_compat.mixins import (
    OpenAIChatCompletionUnsupportedMixin,
    OpenAICompletionUnsupportedMixin,
)
from llama_compat.parts import ReplyParts
from llama_compat.text.stop_strings import StopStrings
from llama_compat.tools.calls import ToolCallAssembler, new_call_id
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionRequest,
    Message,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    ToolDefinition,
    Usage,
    UserMessage,
    content_text,
)
from providers.base import Provider, ProviderConfig, ProviderModel
from providers.local.call_rules import call_rules


class EchoConfig(ProviderConfig):
    """The settings of `local::echo`."""

    delay_ms: float = Field(0, ge=0)
    """Milliseconds between two words, so that a stream can be watched."""


class EchoProvider(
    OpenAICompletionUnsupportedMixin, OpenAIChatCompletionUnsupportedMixin, Provider
):
    """Answers a chat with its last user message, and continues a prompt with the prompt.

    Where a request demands a tool call (`tool_choice` is `required` or names a function), the
    answer is a call of that tool, or of the first; the text goes into the first parameter that
    takes a string.

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
        }
    )

    def __init__(
        self, provider_id: str, config: ProviderConfig, models: Sequence[ProviderModel]
    ) -> None:
        super().__init__(provider_id, config, models)
        self._delay = self.config.delay_ms / 1000
        self.running = 0

    def stats(self) -> dict[str, int]:
        """How many generations run now; none ever waits."""
        return {"running": self.running}

    def completion(self, request: CompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Continue a prompt with itself; the ids of a tokenized prompt are its words."""
        return self._generate(self._complete(request))

    def chat_completion(self, request: ChatCompletionRequest) -> AsyncGenerator[StreamEvent, None]:
        """Say what the last user message says, or call the tool that is demanded."""
        return self._generate(self._chat(request))

    async def count_tokens(self, request: ChatCompletionRequest) -> int:
        """How many words the messages have."""
        return _count(request)

    async def _generate(self, events: Iterator[StreamEvent]) -> AsyncGenerator[StreamEvent, None]:
        self.running += 1
        try:
            for event in events:
                if isinstance(event, StreamProgress):
                    # Even without a delay: a long answer must not keep others from theirs.
                    await asyncio.sleep(self._delay)
                yield event
        finally:
            self.running -= 1

    def _complete(self, request: CompletionRequest) -> Iterator[StreamEvent]:
        prompt = request.prompt
        text = prompt if isinstance(prompt, str) else " ".join(map(str, prompt))
        words = _words(text)
        limit = _limit(request, len(words))
        yield StreamStart(len(words))
        if request.echo and text:
            yield StreamProgress(TextDelta(text))
        yield from _say(words, len(words), limit, request.sampling.stop)

    def _chat(self, request: ChatCompletionRequest) -> Iterator[StreamEvent]:
        _refuse_images(request.messages)
        demanded = call_rules(request).demanded
        prompt_tokens = _count(request)
        limit = _limit(request, prompt_tokens)
        said = [each for each in request.messages if isinstance(each, UserMessage)]
        text = content_text(said[-1].content) if said else ""
        yield StreamStart(prompt_tokens)
        if demanded:
            yield from _call(demanded[0], text, prompt_tokens, limit)
        else:
            yield from _say(_words(text), prompt_tokens, limit, request.sampling.stop)


def _count(request: ChatCompletionRequest) -> int:
    return sum(len(_words(content_text(each.content))) for each in request.messages)


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


def _words(text: str) -> list[str]:
    """`text` cut into words, each with the white space after it; white space that it begins with
    is one more."""
    return re.findall(r"^\s+|\S+\s*", text)


def _say(
    words: Sequence[str], prompt_tokens: int, limit: int | None, stop: Sequence[str]
) -> Iterator[StreamEvent]:
    stop_strings = StopStrings(stop)
    said = 0
    for word in words[:limit]:
        said += 1
        text, stopped = stop_strings.push(word)
        if text:
            yield StreamProgress(TextDelta(text))
        if stopped:
            break
    held = stop_strings.flush()
    if held:
        yield StreamProgress(TextDelta(held))
    whole = stop_strings.stopped or said == len(words)
    reason = StopReason.end_of_turn if whole else StopReason.out_of_tokens
    yield StreamComplete(reason, Usage(prompt_tokens, said), stop_strings.matched)


def _call(
    tool: ToolDefinition, text: str, prompt_tokens: int, limit: int | None
) -> Iterator[StreamEvent]:
    words = _words(json.dumps(_arguments(tool, text), ensure_ascii=False))
    said = words[:limit]
    whole = len(said) == len(words)
    assembler = ToolCallAssembler()
    deltas = assembler.push(call_id=new_call_id(), tool_name=tool.tool_name)
    for word in said:
        deltas.extend(assembler.push(arguments=word))
    deltas.extend(assembler.finish(cut=not whole))
    parts = ReplyParts()
    yield from map(parts.progress, deltas)
    reason = StopReason.end_of_message if whole else StopReason.out_of_tokens
    yield StreamComplete(reason, Usage(prompt_tokens, len(said)))


def _arguments(tool: ToolDefinition, text: str) -> dict[str, str]:
    properties = (tool.parameters or {}).get("properties")
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        if isinstance(schema, dict) and schema.get("type") == "string" and "enum" not in schema:
            return {name: text}
    return {}


def _refuse_images(messages: Sequence[Message]) -> None:
    for index, message in enumerate(messages):
        if images_in(message.content):
            path = f"messages[{index}].content"
            raise invalid_parameter(path, f"'{path}' holds an image; local::echo takes text only.")
