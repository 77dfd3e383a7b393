"""What Anthropic's Messages API answers, whole or as a stream: wire -> vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_compat.parts import ReplyParts
from llama_compat.text.surrogates import SurrogateJoiner
from llama_compat.tools.calls import ToolCallAssembler, arguments_text, parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    CompletionMessage,
    Delta,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    TextDelta,
    ToolCallDelta,
    UnparseableToolCall,
    Usage,
)

STOP_REASONS = {
    "end_turn": StopReason.end_of_turn,
    "stop_sequence": StopReason.end_of_turn,
    "pause_turn": StopReason.end_of_turn,
    "tool_use": StopReason.end_of_message,
    "max_tokens": StopReason.out_of_tokens,
    "model_context_window_exceeded": StopReason.out_of_tokens,
    "refusal": StopReason.content_filter,
}

# --------------------------------------------------------------------------------------------------
# Whole replies
# --------------------------------------------------------------------------------------------------


def parse_reply(body: Mapping[str, Any], *, json_object: bool = False) -> ChatCompletionResponse:
    """The reply in a `message` object.

    Args:
        body: the object.
        json_object: whether a tool call stands for the JSON object that the request wanted.

    Raises:
        ValueError: it is not such an object.
    """
    try:
        return _parse_message(body, json_object)
    except (AttributeError, TypeError, KeyError) as error:
        raise ValueError(f"the reply is not a message: {error!r}") from error


def _parse_message(body: Mapping[str, Any], json_object: bool) -> ChatCompletionResponse:
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[AnyToolCall] = []
    blocks = body["content"]
    reason = _stop_reason(body.get("stop_reason"), json_object)
    for block in blocks:
        kind = block["type"]
        if kind == "text":
            text.append(block["text"])
        elif kind == "thinking":
            reasoning.append(block["thinking"])
        elif kind == "tool_use":
            cut = reason is StopReason.out_of_tokens and block is blocks[-1]
            calls.append(_parse_call(block, cut))
    if json_object:
        text.extend(call.arguments_json for call in calls)
        calls = []
    return ChatCompletionResponse(
        completion_message=CompletionMessage.of(
            content=_joined(text),
            tool_calls=tuple(calls),
            reasoning=_joined(reasoning) or None,
            refusal=_explanation(body),
            stop_reason=reason,
        ),
        usage=_Counts(body.get("usage")).usage(),
    )


def _joined(parts: Sequence[str]) -> str:
    joiner = SurrogateJoiner()
    return joiner.push("".join(parts)) + joiner.flush()


def _parse_call(block: Mapping[str, Any], cut: bool) -> AnyToolCall:
    given = block["input"]
    if cut and not given:
        return UnparseableToolCall(block["id"], block["name"], "")
    return parse_tool_call(block["id"], block["name"], arguments_text(given))


def _stop_reason(reason: str | None, json_object: bool) -> StopReason:
    parsed = STOP_REASONS.get(reason or "end_turn", StopReason.end_of_turn)
    if json_object and parsed is StopReason.end_of_message:
        return StopReason.end_of_turn
    return parsed


def _explanation(body: Mapping[str, Any]) -> str | None:
    """Why the model refused, where a message, or the last delta of one, says so."""
    return (body.get("stop_details") or {}).get("explanation") or None


class _Counts:
    """The token counts of a message; in a stream later ones replace earlier ones."""

    def __init__(self, usage: Mapping[str, Any] | None = None) -> None:
        self._counts: dict[str, Any] = {}
        self.update(usage)

    def update(self, usage: Mapping[str, Any] | None) -> None:
        for name, count in (usage or {}).items():
            if count is not None:
                self._counts[name] = count

    def usage(self) -> Usage:
        """OpenAI's prompt tokens include what was read from a cache and what was written to it."""
        counts = self._counts
        cached = counts.get("cache_read_input_tokens")
        return Usage(
            prompt_tokens=counts.get("input_tokens", 0)
            + counts.get("cache_creation_input_tokens", 0)
            + (cached or 0),
            completion_tokens=counts.get("output_tokens", 0),
            cached_tokens=cached,
            reasoning_tokens=counts.get("output_tokens_details", {}).get("thinking_tokens"),
        )


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


class StreamParser:
    """Parses the events of one reply's stream.

    A call ends when the next block begins or the message ends, not with its own block: only then is
    it known whether the tokens ran out inside it.

    Args:
        json_object: whether a tool call stands for the JSON object that the request wanted.
    """

    def __init__(self, *, json_object: bool = False) -> None:
        self._json_object = json_object
        self._json_begun = False
        self._text = SurrogateJoiner()
        self._reasoning = SurrogateJoiner()
        self._calls = ToolCallAssembler()
        self._parts = ReplyParts()
        self._inputs: dict[int, Any] = {}
        self._complete: list[int] = []
        self._counts = _Counts()
        self._stop_reason: str | None = None
        self._stopped = False

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        """The vocabulary's events for one of the vendor's; kinds that are not known give none.

        Raises:
            ValueError: it is not an event of this API.
        """
        try:
            return self._push(event)
        except (AttributeError, TypeError, KeyError) as error:
            raise ValueError(f"the event is not one of a message: {error!r}") from error

    def finish(self) -> Iterator[StreamEvent]:
        """What is due at the end of the stream.

        Raises:
            ValueError: it broke off; the tool calls that it broke off in have failed before.
        """
        if not self._stopped:
            yield from self._progress(self._calls.finish(cut=True))
            raise ValueError("the stream broke off before its message_stop")

    def _push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        match event["type"]:
            case "content_block_delta":
                return self._progress(self._parse_delta(event["index"], event["delta"]))
            case "content_block_start":
                return self._progress(self._begin_block(event["index"], event["content_block"]))
            case "content_block_stop":
                if event["index"] in self._inputs:
                    self._complete.append(event["index"])
            case "message_start":
                self._counts.update(event["message"].get("usage"))
                return [StreamStart(self._counts.usage().prompt_tokens)]
            case "message_delta":
                self._counts.update(event.get("usage"))
                return self._progress(self._end_message(event["delta"]))
            case "message_stop":
                self._stopped = True
                reason = _stop_reason(self._stop_reason, self._json_object)
                return [StreamComplete(reason, self._counts.usage())]
        return []

    def _begin_block(self, index: int, block: Mapping[str, Any]) -> Sequence[Delta]:
        kind = block["type"]
        if kind == "text":
            return _text(self._text.push(block.get("text") or ""))
        if kind == "thinking":
            return _reasoning(self._reasoning.push(block.get("thinking") or ""))
        if kind != "tool_use":
            return ()
        ended = self._end_complete_calls()
        self._inputs[index] = block.get("input")
        begun = self._calls.push(index=index, call_id=block["id"], tool_name=block["name"])
        return [*ended, *begun]

    def _parse_delta(self, index: int, delta: Mapping[str, Any]) -> Sequence[Delta]:
        kind = delta["type"]
        if kind == "text_delta":
            return _text(self._text.push(delta["text"]))
        if kind == "thinking_delta":
            return _reasoning(self._reasoning.push(delta["thinking"]))
        if kind == "input_json_delta" and index in self._inputs:
            if delta["partial_json"]:
                self._inputs[index] = None
            return self._calls.push(index=index, arguments=delta["partial_json"])
        return ()

    def _end_message(self, delta: Mapping[str, Any]) -> list[Delta]:
        self._stop_reason = delta.get("stop_reason") or self._stop_reason
        cut = STOP_REASONS.get(self._stop_reason or "") is StopReason.out_of_tokens
        explanation = _explanation(delta)
        return [
            *_reasoning(self._reasoning.flush()),
            *_text(self._text.flush()),
            *[late for index in list(self._inputs) for late in self._whole_input(index)],
            *self._calls.finish(cut=cut),
            *([RefusalDelta(explanation)] if explanation else ()),
        ]

    def _end_complete_calls(self) -> list[ToolCallDelta]:
        complete, self._complete = self._complete, []
        return [
            delta
            for index in complete
            for delta in (*self._whole_input(index), *self._calls.end(index))
        ]

    def _whole_input(self, index: int) -> list[ToolCallDelta]:
        """A call's input is empty where its block begins; but not from every such server."""
        given = self._inputs.pop(index)
        return self._calls.push(index=index, arguments=arguments_text(given)) if given else []

    def _progress(self, deltas: Sequence[Delta]) -> list[StreamEvent]:
        if self._json_object:
            deltas = [text for delta in deltas for text in self._as_text(delta)]
        return [self._parts.progress(delta) for delta in deltas]

    def _as_text(self, delta: Delta) -> Sequence[Delta]:
        """What a call's delta adds to the JSON object that is wanted; other deltas as they are."""
        if not isinstance(delta, ToolCallDelta):
            return [delta]
        if delta.arguments:
            self._json_begun = True
            return [TextDelta(delta.arguments)]
        if delta.tool_call is not None and not self._json_begun:
            return _text(delta.tool_call.arguments_json)
        return ()


def _text(text: str) -> Sequence[Delta]:
    return [TextDelta(text)] if text else ()


def _reasoning(text: str) -> Sequence[Delta]:
    return [ReasoningDelta(text)] if text else ()
