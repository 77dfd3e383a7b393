"""Tool calls and reasoning in the replies of a model that writes nothing but text.

For engines in this process. `call_rules` says what a request wants of the calls, `read_reply` makes
the events of an engine's text into those of the reply.

The log probabilities are those of every token that was generated, those of calls and reasoning
included. A stop string ends the reply wherever it stands, in a call too; only for a demanded call,
beside which there is no text, an engine should leave stop strings out.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs

from llama_compat.errors import invalid_parameter
from llama_compat.reasoning import CLOSING_TAG, opens_reasoning
from llama_compat.tool_formats import TextParser, ToolFormat
from llama_compat.types import (
    ChatCompletionRequest,
    Delta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProbs,
    ToolCallDelta,
    ToolChoice,
    ToolDefinition,
    Usage,
)


class CallingParser(TextParser, Protocol):
    """A parser that says whether a tool has been called."""

    @property
    def called(self) -> bool:
        """Whether a tool has been called."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """What a request says of the calls in its reply.

    Attributes:
        tools: those that the model may call.
        demanded: those of which it has to call one; if there are none, it need not call any.
        single: there may be one call only, which ends the reply.
    """

    tools: tuple[ToolDefinition, ...] = ()
    demanded: tuple[ToolDefinition, ...] = ()
    single: bool = False


def call_rules(request: ChatCompletionRequest) -> CallRules:
    """The rules that `tools`, `tool_choice` and `parallel_tool_calls` of `request` make.

    A demanded call is always the only one.

    Raises:
        APIError: 400; a tool is demanded that is not offered.
    """
    choice = request.tool_choice or ToolChoice()
    if choice.mode == "none":
        return CallRules()
    if choice.mode == "auto":
        return CallRules(request.tools, single=request.parallel_tool_calls is False)
    demanded = tuple(tool for tool in request.tools if choice.tool_name in (None, tool.tool_name))
    if not demanded:
        wanted = "a tool" if choice.tool_name is None else f"the tool '{choice.tool_name}'"
        raise invalid_parameter("tool_choice", f"'tool_choice' demands {wanted}; 'tools' has none.")
    return CallRules(request.tools, demanded, single=True)


def call_openings(tool_format: ToolFormat, rules: CallRules, prompt: str) -> dict[str, str]:
    """For each demanded tool what a reply to `prompt` that calls it begins with, up to a `{`."""
    # Where the prompt ends inside the reasoning, there is none.
    before = f"\n{CLOSING_TAG}\n\n" if opens_reasoning(prompt) else ""
    return {
        tool.tool_name: before + tool_format.call_opening(tool.tool_name) for tool in rules.demanded
    }


def first_argument(tool: ToolDefinition) -> str:
    """What has to follow the `{` of a call's arguments: the name of one that `tool` requires.

    It is the closing bracket where `tool` takes no arguments, and nothing where it requires none.
    Small models need it: they would repeat the tool's description there.
    """
    parameters = tool.parameters or {"properties": {}}
    if parameters.get("properties") == {} and not parameters.get("additionalProperties"):
        return "}"
    match parameters:
        case {"required": [str(name), *_]}:
            return f"{json.dumps(name, ensure_ascii=False)}:"
    return ""


async def read_reply(
    source: AsyncGenerator[StreamEvent, None], parser: CallingParser, *, single_call: bool
) -> AsyncGenerator[StreamEvent, None]:
    """The events of a reply, from those of its text.

    Args:
        source: an engine's events; all deltas are text, and each says how many tokens have been
            generated with it. It is closed when the reply has ended, which may be before its end.
        parser: of this reply.
        single_call: the reply ends with its first call.
    """
    held = _HeldLogprobs()
    complete: StreamComplete | None = None
    prompt_tokens = tokens = 0
    async with aclosing(source) as events:
        async for event in events:
            if isinstance(event, StreamStart):
                prompt_tokens = event.prompt_tokens
                yield event
                continue
            if isinstance(event, StreamComplete):
                complete = event
                tokens = event.usage.completion_tokens
                deltas: Sequence[Delta] = parser.flush()
            else:
                assert isinstance(event.delta, TextDelta)
                held.push(event.logprobs)
                tokens = event.completion_tokens
                deltas = parser.push(event.delta.text)
            if single_call:
                deltas = _through_first_call(deltas)
            for delta in deltas:
                yield StreamProgress(delta, held.pop(), tokens)
            if complete is None and single_call and deltas and _is_whole_call(deltas[-1]):
                complete = StreamComplete(StopReason.end_of_turn, Usage(prompt_tokens, tokens))
                break
    assert complete is not None
    left = held.pop()
    if left is not None:
        yield StreamProgress(TextDelta(""), left, tokens)
    if parser.called and complete.stop_reason is StopReason.end_of_turn:
        complete = structs.replace(complete, stop_reason=StopReason.end_of_message)
    yield complete


class _HeldLogprobs:
    """The log probabilities of tokens of which nothing has been given yet."""

    def __init__(self) -> None:
        self._held: list[TokenLogProbs] | None = None

    def push(self, logprobs: Iterable[TokenLogProbs] | None) -> None:
        """Those of more tokens; None if none are wanted."""
        if logprobs is not None:
            self._held = self._held or []
            self._held.extend(logprobs)

    def pop(self) -> tuple[TokenLogProbs, ...] | None:
        """Those that go with what is given now."""
        held, self._held = self._held, None
        return None if held is None else tuple(held)


def _through_first_call(deltas: Sequence[Delta]) -> Sequence[Delta]:
    ends = (index + 1 for index, delta in enumerate(deltas) if _is_whole_call(delta))
    return deltas[: next(ends, len(deltas))]


def _is_whole_call(delta: Delta) -> bool:
    return isinstance(delta, ToolCallDelta) and delta.tool_call is not None
