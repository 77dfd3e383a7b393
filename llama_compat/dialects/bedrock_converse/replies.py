"""What Converse and ConverseStream answer: wire -> vocabulary."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llama_compat.dialects.bedrock_converse.seals import parse_redacted, parse_thought
from llama_compat.dialects.bedrock_converse.usage import (
    STOP_REASONS,
    parse_stop_reason,
    parse_usage,
)
from llama_compat.dialects.counts import told_count
from llama_compat.dialects.replies import (
    EventParser,
    parse_blocks,
    parse_whole_call,
    reasoning_deltas,
    text_deltas,
)
from llama_compat.events import reply_events
from llama_compat.media.encoded import EncodedFile
from llama_compat.text.surrogates import joined
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    CompletionMessage,
    Delta,
    ImageContent,
    ImageDelta,
    MessagePart,
    ReasoningContent,
    ReasoningDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    TextContent,
    ToolCallDelta,
    Usage,
)
from llama_compat.wire.malformed import malformed_as

REQUIRED = ("output",)
"""What a whole reply has."""

# --------------------------------------------------------------------------------------------------
# Whole replies
# --------------------------------------------------------------------------------------------------


def parse_reply(body: Mapping[str, Any]) -> ChatCompletionResponse:
    """The reply in an answer of Converse.

    Raises:
        ValueError: it is none, or says that the model failed.
    """
    with malformed_as("the reply is not one of Converse"):
        return _parse_reply(body)


def parse_token_count(body: Mapping[str, Any]) -> int:
    """The tokens in an answer of CountTokens.

    Raises:
        ValueError: it is none.
    """
    return told_count(body, "inputTokens")


def _parse_reply(body: Mapping[str, Any]) -> ChatCompletionResponse:
    blocks = body["output"]["message"]["content"]
    reason = parse_stop_reason(body.get("stopReason"))
    parts = parse_blocks(blocks, reason, _parse_block)
    message = CompletionMessage(parts, reason, _stop_string(body))
    usage = parse_usage(body.get("usage"))
    return ChatCompletionResponse(message, usage=usage)


def _parse_block(block: Mapping[str, Any], cut: bool) -> MessagePart | None:
    """The part that a block is; None for what Bedrock's own servers do."""
    if not isinstance(block, dict):
        raise TypeError(f"a block is no object but {block!r:.40}")
    if "text" in block:
        return TextContent(joined(block["text"]))
    if "reasoningContent" in block:
        return _parse_reasoning(block["reasoningContent"])
    if "toolUse" in block:
        return _parse_call(block["toolUse"], cut=cut)
    if "citationsContent" in block:
        cited = block["citationsContent"].get("content") or ()
        return TextContent(joined("".join(each.get("text") or "" for each in cited)))
    if "image" in block:
        source = block["image"]["source"]
        return _image(block["image"]["format"], source["bytes"])
    return None


def _parse_reasoning(content: Mapping[str, Any]) -> ReasoningContent:
    if "redactedContent" in content:
        return parse_redacted(content["redactedContent"])
    said = content["reasoningText"]
    return parse_thought(joined(said["text"]), said.get("signature"))


def _parse_call(call: Mapping[str, Any], *, cut: bool) -> AnyToolCall | None:
    if call.get("type") is not None:
        return None  # it runs on a server of Bedrock's
    return parse_whole_call(call["toolUseId"], call["name"], call["input"], cut=cut)


def _image(format: str, data: str) -> ImageContent:
    return ImageContent(EncodedFile(f"image/{format}", data).data_url)


def _stop_string(holder: Mapping[str, Any]) -> str | None:
    fields = holder.get("additionalModelResponseFields")
    found = fields.get("stop_sequence") if isinstance(fields, dict) else None
    return found if isinstance(found, str) else None


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


class StreamParser(EventParser):
    """Parses the events of one reply's stream, each an object of its name and its members.

    A call ends when the next one begins or the message ends, not with its own block: only then is
    it known whether the tokens ran out inside it. Usage comes last, after the message's end.
    """

    event = "one of ConverseStream"
    end = "messageStop"

    def __init__(self) -> None:
        super().__init__()
        self._calling: list[int] = []
        self._signatures: dict[int, str] = {}
        self._images: dict[int, tuple[str, list[bytes]]] = {}
        self._stop_reason: StopReason | None = None
        self._stop_string: str | None = None

    def finish(self) -> Iterator[StreamEvent]:
        """As `EventParser.finish`, but for a message that ended without its usage: that is none."""
        if self._stop_reason is None or self._ended:
            yield from super().finish()
        else:
            yield self._completed(Usage())

    def _push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        for kind, said in event.items():
            match kind:
                case "contentBlockDelta":
                    return self._progress(self._add(said["contentBlockIndex"], said["delta"]))
                case "contentBlockStart":
                    return self._progress(self._begin(said["contentBlockIndex"], said["start"]))
                case "contentBlockStop":
                    return self._end_block(said["contentBlockIndex"])
                case "messageStart":
                    return [StreamStart()]
                case "messageStop":
                    return self._progress(self._end_message(said))
                case "metadata" if self._stop_reason is not None:
                    return [self._completed(parse_usage(said.get("usage")))]
                case "output":  # all of it, from what ignores that a stream was asked for
                    self._ended = True
                    return list(reply_events(parse_reply(event)))
        return []

    def _begin(self, index: int, start: Mapping[str, Any]) -> Sequence[Delta]:
        if "image" in start:
            self._images[index] = (start["image"]["format"], [])
        call = start.get("toolUse")
        if call is None or call.get("type") is not None:
            return ()
        ended = self._end_calls()
        self._calling.append(index)
        called = self._calls.push(index=index, call_id=call["toolUseId"], tool_name=call["name"])
        return [*ended, *called]

    def _add(self, index: int, delta: Mapping[str, Any]) -> Sequence[Delta]:
        if "text" in delta:
            return text_deltas(self._text.push(delta["text"]))
        if "toolUse" in delta:
            if index not in self._calling:
                return ()
            return self._calls.push(index=index, arguments=delta["toolUse"]["input"])
        if "reasoningContent" in delta:
            return self._think(index, delta["reasoningContent"])
        if "image" in delta and index in self._images:
            self._images[index][1].append(base64.b64decode(delta["image"]["source"]["bytes"]))
        return ()

    def _think(self, index: int, delta: Mapping[str, Any]) -> Sequence[Delta]:
        if "text" in delta:
            return reasoning_deltas(self._reasoning.push(delta["text"]))
        if "signature" in delta:
            self._signatures[index] = self._signatures.get(index, "") + delta["signature"]
        if "redactedContent" in delta:
            return [_delta(parse_redacted(delta["redactedContent"]))]
        return ()

    def _end_block(self, index: int) -> list[StreamEvent]:
        if index in self._calling:
            return []
        thought = parse_thought(self._reasoning.flush(), self._signatures.pop(index, None))
        deltas: list[Delta] = [_delta(thought)] if thought.text or thought.signature else []
        deltas += text_deltas(self._text.flush())
        if index in self._images:
            format, pieces = self._images.pop(index)
            data = base64.b64encode(b"".join(pieces)).decode()
            deltas.append(ImageDelta(_image(format, data)))
        ended = self._progress(deltas)
        self._parts.end_part()
        return ended

    def _end_message(self, said: Mapping[str, Any]) -> list[Delta]:
        reason = said["stopReason"]
        cut = STOP_REASONS.get(reason) is StopReason.out_of_tokens
        self._stop_reason = parse_stop_reason(reason)
        self._stop_string = _stop_string(said)
        return [
            *reasoning_deltas(self._reasoning.flush()),
            *text_deltas(self._text.flush()),
            *self._calls.finish(cut=cut),
        ]

    def _end_calls(self) -> list[ToolCallDelta]:
        return [delta for index in self._calling for delta in self._calls.end(index)]

    def _completed(self, usage: Usage) -> StreamComplete:
        assert self._stop_reason is not None
        self._ended = True
        return StreamComplete(self._stop_reason, usage, self._stop_string)


def _delta(thought: ReasoningContent) -> ReasoningDelta:
    return ReasoningDelta(thought.text, thought.signature, thought.sealed_by, thought.redacted)
