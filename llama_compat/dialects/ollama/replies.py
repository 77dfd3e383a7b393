"""What Ollama answers: wire -> vocabulary."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from llama_compat.dialects.base import WireReplies, with_reasons
from llama_compat.dialects.counts import count
from llama_compat.dialects.replies import (
    parsed,
    reasoning_deltas,
    text_deltas,
    with_logprobs,
)
from llama_compat.events import ReplyParts, collected
from llama_compat.text.surrogates import SurrogateJoiner
from llama_compat.tools.calls import ToolCallAssembler, arguments_text
from llama_compat.types import (
    ChatCompletionResponse,
    Delta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    TokenLogProb,
    TokenLogProbs,
    Usage,
)
from llama_compat.wire.json_fields import from_raw
from llama_compat.wire.json_lines import JSONLines

DONE_REASONS: dict[str, StopReason] = {
    "stop": StopReason.end_of_turn,
    "length": StopReason.out_of_tokens,
    "content_filter": StopReason.content_filter,
}
"""`done_reason` of a generation. `load` and `unload` say that there was none."""


class _Function(Struct):
    name: str = ""
    arguments: Any = None


class _Call(Struct):
    function: _Function
    id: str | None = None


class _Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Token(Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _ChosenToken(_Token):
    top_logprobs: list[_Token] | None = None


class _Event(Struct):
    """A line of a stream, or a whole reply: they have one shape.

    `/api/chat` fills `message`, `/api/generate` has `response` and `thinking` in its place.
    """

    error: str | None = None
    message: _Message | None = None
    response: str | None = None
    thinking: str | None = None
    logprobs: list[_ChosenToken] | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: Any = None
    eval_count: Any = None

    def said(self) -> _Message:
        """What the model said, whichever call it answers."""
        return self.message or _Message(content=self.response, thinking=self.thinking)


class StreamParser:
    """Parses the objects of a stream, or the one object of a whole reply, as events."""

    def __init__(self) -> None:
        self._text = SurrogateJoiner()
        self._reasoning = SurrogateJoiner()
        self._assembler = ToolCallAssembler()
        self._parts = ReplyParts()
        self._calls = 0
        self._started = False
        self._done = False

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        """The events of one object; what comes after the last one is passed over.

        Raises:
            ValueError: the object has another shape, says what went wrong (`error`), or that
                nothing was generated.
        """
        if self._done:
            return []
        try:
            line = msgspec.convert(event, _Event)
        except msgspec.ValidationError as error:
            raise ValueError(f"not an event of Ollama's: {error}") from None
        if line.error is not None:
            raise ValueError(line.error or "an error without a message")
        events: list[StreamEvent] = [] if self._started else [StreamStart()]
        self._started = True
        logprobs = _parse_logprobs(line.logprobs)
        events.extend(with_logprobs(self._parts, self._deltas(line), logprobs))
        if line.done:
            self._done = True
            usage = parse_usage(line.prompt_eval_count, line.eval_count) or Usage()
            events.append(StreamComplete(self._stop_reason(line.done_reason), usage))
        return events

    def finish(self) -> list[StreamEvent]:
        """The events that are due at the end of the stream: none, they came with `done`.

        Raises:
            ValueError: it broke off before that.
        """
        if not self._done:
            raise ValueError("the stream broke off before its end")
        return []

    def _deltas(self, line: _Event) -> list[Delta]:
        said = line.said()
        reasoning = self._reasoning.push(said.thinking or "")
        text = self._text.push(said.content or "")
        if line.done:
            reasoning += self._reasoning.flush()
            text += self._text.flush()
        deltas = [*reasoning_deltas(reasoning), *text_deltas(text)]
        for call in said.tool_calls or ():
            deltas.extend(self._call_deltas(call))
        return deltas

    def _call_deltas(self, call: _Call) -> list[Delta]:
        # Ollama gives whole calls; they are numbered here, since their own index may repeat.
        index = self._calls
        self._calls += 1
        begun = self._assembler.push(
            index=index,
            call_id=call.id,
            tool_name=call.function.name,
            arguments=arguments_text(call.function.arguments),
        )
        return [*begun, *self._assembler.end(index)]

    def _stop_reason(self, done_reason: str | None) -> StopReason:
        if done_reason in ("load", "unload"):
            raise ValueError(f"the model was only {done_reason}ed: nothing was generated")
        reason = DONE_REASONS.get(done_reason or "stop", StopReason.end_of_turn)
        return reason.with_calls(self._calls > 0)


def _said(body: bytes, streamed: bool) -> ChatCompletionResponse:
    lines = JSONLines()
    objects = [*lines.feed(body), *lines.flush()] if streamed else [from_raw(Raw(body))]
    return collected(parsed(StreamParser(), objects)).chat_completion()


REPLIES = WireReplies(
    finished=with_reasons(re.compile(rb'"done_reason"\s*:\s*"(\w*)"'), frozenset({b"stop"})),
    said=_said,
)
"""Of calls that generate."""


COUNTS = ("prompt_eval_count", "eval_count")
"""Members of a reply that tell its usage."""


def parse_usage(prompt: Any, completion: Any) -> Usage | None:
    """What the members `COUNTS` tell, of which each is None that there is not; None where they tell
    nothing."""
    if prompt is None and completion is None:
        return None
    return Usage(count(prompt) or 0, count(completion) or 0)


def _parse_logprobs(tokens: list[_ChosenToken] | None) -> tuple[TokenLogProbs, ...] | None:
    if not tokens:
        return None
    return tuple(
        TokenLogProbs(_parse_token(token), tuple(map(_parse_token, token.top_logprobs or ())))
        for token in tokens
    )


def _parse_token(token: _Token) -> TokenLogProb:
    encoded = token.token.encode(errors="replace") if token.bytes is None else bytes(token.bytes)
    return TokenLogProb(token.token, encoded, token.logprob)
