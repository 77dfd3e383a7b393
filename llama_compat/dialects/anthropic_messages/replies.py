"""What Anthropic's Messages API answers, whole or as a stream: wire -> vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from llama_compat.dialects.anthropic_messages.hosted_blocks import (
    SEARCH_RESULT,
    StreamedSearches,
    is_search,
    parse_citations,
    parse_found,
    parse_search,
)
from llama_compat.dialects.anthropic_messages.seals import FAMILY
from llama_compat.dialects.anthropic_messages.usage import PAUSED, STOP_REASONS, Counts
from llama_compat.dialects.counts import told_count
from llama_compat.dialects.replies import (
    EventParser,
    parse_blocks,
    parse_whole_call,
    reasoning_deltas,
    text_deltas,
)
from llama_compat.dialects.seals import parse_seal
from llama_compat.events import reply_events
from llama_compat.hosted.vocabulary import CitationDelta, HostedCall, HostedCallDelta
from llama_compat.text.surrogates import joined
from llama_compat.tools.calls import arguments_text
from llama_compat.types import (
    EARLIER_THOUGHTS,
    ChatCompletionResponse,
    CompletionMessage,
    Delta,
    MessagePart,
    ReasoningContent,
    ReasoningDelta,
    RefusalContent,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    TextContent,
    ToolCallDelta,
)
from llama_compat.wire.malformed import malformed_as

# --------------------------------------------------------------------------------------------------
# Whole replies
# --------------------------------------------------------------------------------------------------


def parse_reply(body: Mapping[str, Any]) -> ChatCompletionResponse:
    """The reply in a `message` object.

    Raises:
        ValueError: it is not such an object.
    """
    with malformed_as("the reply is not a message"):
        return _parse_message(body)


def parse_token_reply(body: Mapping[str, Any]) -> int:
    """The answer to `POST /v1/messages/count_tokens`.

    Raises:
        ValueError: it is none.
    """
    return told_count(body, "input_tokens")


def _parse_message(body: Mapping[str, Any]) -> ChatCompletionResponse:
    reason = _stop_reason(body.get("stop_reason"))
    found = {
        block.get("tool_use_id"): block
        for block in body["content"]
        if block["type"] == SEARCH_RESULT
    }
    parts = parse_blocks(body["content"], reason, partial(_parse_block, found))
    explanation = _explanation(body)
    if explanation:
        parts = (*parts, RefusalContent(explanation))
    message = CompletionMessage(parts, reason, body.get("stop_sequence"))
    counts = Counts(body.get("usage"))
    return ChatCompletionResponse(
        message,
        usage=counts.usage(),
        dropped=_dropped(body),
        service_tier=counts.service_tier,
    )


def _dropped(message: Mapping[str, Any]) -> tuple[str, ...]:
    """What the vendor says that it left out of the request, by name.

    `input_transformations` has an entry for each thought that was sent back and not read, where the
    request asked for that (`BetaThinkingDroppedInputTransformation` of `anthropic` 2.12.0).
    """
    told = message.get("input_transformations") or ()
    kinds = {each["type"] for each in told}
    return (EARLIER_THOUGHTS,) if "thinking_dropped" in kinds else ()


def _parse_block(
    found: Mapping[Any, Mapping[str, Any]], block: Mapping[str, Any], cut: bool
) -> MessagePart | None:
    """The part that a block is, with what searches have found, by their ids; None for what else
    the vendor's own servers do."""
    match block["type"]:
        case "text":
            text = joined(block["text"])
            return TextContent(text, parse_citations(block.get("citations"), text))
        case "server_tool_use" if is_search(block):
            return parse_found(parse_search(block, block["input"]), found.get(block["id"]))
        case "thinking":
            return ReasoningContent(joined(block["thinking"]), *_seal(block.get("signature")))
        case "redacted_thinking":
            return ReasoningContent("", block["data"], FAMILY, redacted=True)
        case "tool_use":
            return parse_whole_call(block["id"], block["name"], block["input"], cut=cut)
    return None


def _seal(value: Any) -> tuple[str | None, str]:
    # Not every server with this API seals what its models think.
    signature = parse_seal(value)
    return (signature, FAMILY) if signature else (None, "")


def _stop_reason(reason: str | None) -> StopReason:
    return STOP_REASONS.get(reason or "end_turn", StopReason.end_of_turn)


def _explanation(body: Mapping[str, Any]) -> str | None:
    """Why the model refused, where a message, or the last delta of one, says so."""
    return (body.get("stop_details") or {}).get("explanation") or None


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


class StreamParser(EventParser):
    """Parses the events of one reply's stream.

    A call ends when the next block begins or the message ends, not with its own block: only then is
    it known whether the tokens ran out inside it.

    Args:
        before: that of the message that this one goes on with, if it does with any.
    """

    event = "one of a message"
    end = "message_stop"

    def __init__(self, *, before: StreamParser | None = None) -> None:
        super().__init__()
        if before is not None:
            self._parts = before._parts
        self._inputs: dict[int, Any] = {}
        self._signatures: dict[int, str] = {}
        self._complete: list[int] = []
        self._searches: StreamedSearches = (
            StreamedSearches() if before is None else before._searches
        )
        self._said: list[str] = []
        self._cited: list[Any] = []
        self._counts = Counts()
        self._stop_reason: str | None = None
        self._stop_string: str | None = None
        self._begun = False

    def _push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        match event["type"]:
            case "content_block_delta":
                return self._progress(self._parse_delta(event["index"], event["delta"]))
            case "content_block_start":
                return self._progress(self._begin_block(event["index"], event["content_block"]))
            case "content_block_stop":
                return self._end_block(event["index"])
            case "message_start":
                message = event["message"]
                self._begun = True
                self._counts.update(message.get("usage"))
                prompt_tokens = self._counts.usage().prompt_tokens
                return [StreamStart(prompt_tokens, dropped=_dropped(message))]
            case "message_delta":
                self._counts.update(event.get("usage"))
                return self._progress(self._end_message(event["delta"]))
            case "message_stop":
                if not self._begun:
                    raise ValueError("the stream has no message_start before its message_stop")
                self._ended = True
                reason = _stop_reason(self._stop_reason)
                counts = self._counts
                usage, tier = counts.usage(), counts.service_tier
                return [StreamComplete(reason, usage, self._stop_string, tier)]
            case "message":  # all of it, from a server that ignores that a stream was asked for
                self._ended = True
                return list(reply_events(parse_reply(event)))
        return []

    def _begin_block(self, index: int, block: Mapping[str, Any]) -> Sequence[Delta]:
        match block["type"]:
            case "text":
                self._said = []
                self._cited = list(block.get("citations") or ())
                return self._text_said(self._text.push(block.get("text") or ""))
            case "thinking":
                self._signatures[index] = block.get("signature") or ""
                return reasoning_deltas(self._reasoning.push(block.get("thinking") or ""))
            case "redacted_thinking":
                return [ReasoningDelta("", block["data"], FAMILY, redacted=True)]
            case "tool_use":
                ended = self._end_complete_calls()
                self._inputs[index] = block.get("input")
                call_id, name = block["id"], block["name"]
                return [*ended, *self._calls.push(index=index, call_id=call_id, tool_name=name)]
            case "server_tool_use" if is_search(block):
                self._searches.begin(index, block)
            case kind if kind == SEARCH_RESULT:
                return _hosted(self._searches.found(block))
        return ()

    def _parse_delta(self, index: int, delta: Mapping[str, Any]) -> Sequence[Delta]:
        kind = delta["type"]
        if kind == "text_delta":
            return self._text_said(self._text.push(delta["text"]))
        if kind == "thinking_delta":
            return reasoning_deltas(self._reasoning.push(delta["thinking"]))
        if kind == "signature_delta" and index in self._signatures:
            self._signatures[index] = delta["signature"]
        if kind == "input_json_delta" and index in self._inputs:
            if delta["partial_json"]:
                self._inputs[index] = None
            return self._calls.push(index=index, arguments=delta["partial_json"])
        if kind == "input_json_delta":
            self._searches.write(index, delta["partial_json"])
        if kind == "citations_delta":
            self._cited.append(delta["citation"])
        return ()

    def _end_block(self, index: int) -> list[StreamEvent]:
        if index in self._inputs:
            self._complete.append(index)
            return []
        thought, seal = self._reasoning.flush(), _seal(self._signatures.pop(index, None))
        deltas: list[Delta] = [ReasoningDelta(thought, *seal)] if thought or seal[0] else []
        deltas += self._text_said(self._text.flush())
        if self._cited:
            cited = parse_citations(self._cited, "".join(self._said))
            deltas += map(CitationDelta, cited)
            self._cited = []
        deltas += _hosted(self._searches.end(index))
        ended = self._progress(deltas)
        self._parts.end_part()
        return ended

    def _end_message(self, delta: Mapping[str, Any]) -> list[Delta]:
        self._stop_reason = delta.get("stop_reason") or self._stop_reason
        self._stop_string = delta.get("stop_sequence") or self._stop_string
        cut = STOP_REASONS.get(self._stop_reason or "") is StopReason.out_of_tokens
        explanation = _explanation(delta)
        return [
            *reasoning_deltas(self._reasoning.flush()),
            *self._text_said(self._text.flush()),
            *(() if self._stop_reason == PAUSED else _hosted(self._searches.rest())),
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

    def _text_said(self, text: str) -> Sequence[Delta]:
        if text:
            self._said.append(text)
        return text_deltas(text)


def _hosted(calls: Sequence[HostedCall]) -> Sequence[Delta]:
    return [HostedCallDelta(call) for call in calls]
