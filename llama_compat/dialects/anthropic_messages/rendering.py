"""What a model says as Anthropic's Messages API says it: vocabulary -> wire."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from llama_compat.dialects.anthropic_messages import events
from llama_compat.dialects.anthropic_messages.errors import render_stream_error
from llama_compat.dialects.anthropic_messages.hosted_blocks import (
    HostedUses,
    call_id,
    render_citation,
    render_result,
    render_use,
    render_whole_use,
    shows,
)
from llama_compat.dialects.anthropic_messages.seals import render_call_seal, render_seal
from llama_compat.dialects.anthropic_messages.usage import render_stop_reason, render_usage
from llama_compat.dialects.base import Labels, SaidText
from llama_compat.errors import APIError
from llama_compat.hosted.vocabulary import CitationDelta, HostedCall, HostedCallDelta
from llama_compat.tools.calls import arguments_object_text, parse_tool_call
from llama_compat.types import (
    ChatCompletionResponse,
    Delta,
    ImageContent,
    MessagePart,
    ReasoningContent,
    ReasoningDelta,
    RefusalContent,
    RefusalDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextContent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from llama_compat.wire.json_scanner import JSONScanner

# --------------------------------------------------------------------------------------------------
# Whole replies
# --------------------------------------------------------------------------------------------------


def render_reply(response: ChatCompletionResponse, usage: Usage, labels: Labels) -> dict[str, Any]:
    """The `message` object."""
    said = response.completion_message
    end = _end(
        StreamComplete(said.stop_reason or StopReason.end_of_turn, usage, said.stop_string),
        called_tools=bool(said.tool_calls),
        refusal=said.refusal,
    )
    uses = HostedUses()
    content: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for place, part in enumerate(said.parts):
        if not (isinstance(part, HostedCall) and part.beside):
            content += results
            results = []
        if not isinstance(part, HostedCall):
            content += _render_part(part)
        elif shows(part):
            uses.add(part)
            block_id = call_id(part, labels.unique, place)
            content.append(render_whole_use(part, block_id))
            results.append(render_result(part, block_id))
    content += results
    counted = {**render_usage(usage, response.service_tier), **uses.rendered()}
    return {**_frame(labels), "content": content, **end, "usage": counted}


def _frame(labels: Labels) -> dict[str, Any]:
    return {
        "id": f"msg_{labels.unique}",
        "type": "message",
        "role": "assistant",
        "model": labels.model,
    }


def _end(complete: StreamComplete, *, called_tools: bool, refusal: str | None) -> dict[str, Any]:
    """Why a reply ended, in the members of a message that say so."""
    reason = render_stop_reason(
        complete.stop_reason,
        stop_string=complete.stop_string,
        called_tools=called_tools,
        refused=refusal is not None,
    )
    stopped_by = complete.stop_string if reason == "stop_sequence" else None
    end: dict[str, Any] = {"stop_reason": reason, "stop_sequence": stopped_by}
    if reason == "refusal":
        end["stop_details"] = {"type": "refusal", "category": None, "explanation": refusal}
    return end


def _render_part(part: MessagePart) -> Iterator[dict[str, Any]]:
    match part:
        case TextContent(text, citations):
            cited = [render_citation(each) for each in citations]
            if text:
                yield {"type": "text", "text": text, **({"citations": cited} if cited else {})}
        case RefusalContent(text):
            if text:
                yield {"type": "text", "text": text}
        case ReasoningContent(redacted=True):
            yield _redacted(part)
        case ReasoningContent(text, signature, sealed_by):
            seal = render_seal(signature, sealed_by)
            yield {"type": "thinking", "thinking": text, "signature": seal}
        case ImageContent() | HostedCall():
            return
        case _:
            given = Raw(arguments_object_text(part).encode())
            yield {"type": "tool_use", "id": part.call_id, "name": part.tool_name, "input": given}
            if isinstance(part, ToolCall) and (seal_block := render_call_seal(part)):
                yield seal_block


def _redacted(part: ReasoningContent | ReasoningDelta) -> dict[str, Any]:
    return {"type": "redacted_thinking", "data": render_seal(part.signature, part.sealed_by)}


# --------------------------------------------------------------------------------------------------
# Streams
# --------------------------------------------------------------------------------------------------


class StreamRenderer:
    """Renders the events of a reply's one choice as those of a message.

    Here a block ends before the next one begins. So where a vendor's calls come interleaved, what
    does not belong to the open call waits until that one has its whole input.

    Args:
        labels: what the message says of itself.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._index = -1
        self._part = -1
        self._open: _Text | _Thinking | _Redacted | _Call | None = None
        self._waiting: dict[int, list[Delta]] = {}
        self._begun_calls: set[int] = set()
        self._seals: list[dict[str, str]] = []
        self._refusal: list[str] = []
        self._uses = HostedUses()
        self._hosted_ids: dict[int, str] = {}
        self._complete = StreamComplete(StopReason.end_of_turn)

    def render(self, choice: int, event: StreamEvent) -> bytes:
        """What `event` adds."""
        if isinstance(event, StreamProgress):
            return self._progress(event.part, event.delta)
        if isinstance(event, StreamStart):
            return self._start(event)
        self._complete = event
        return self._finish_blocks()

    def finish(self, usage: Usage) -> bytes:
        """Why it ended, and all that it cost."""
        end = _end(
            self._complete,
            called_tools=bool(self._begun_calls),
            refusal="".join(self._refusal) if self._refusal else None,
        )
        rendered = render_usage(usage, self._complete.service_tier) | self._uses.rendered()
        return events.encode("message_delta", delta=end, usage=rendered) + events.MESSAGE_STOP

    def fail(self, error: APIError) -> bytes:
        """The error, with which the stream ends."""
        return render_stream_error(error, self._labels.request_id)

    def _start(self, event: StreamStart) -> bytes:
        message = {
            **_frame(self._labels),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": render_usage(Usage(prompt_tokens=event.prompt_tokens)),
        }
        return events.encode("message_start", message=message)

    def _progress(self, part: int, delta: Delta) -> bytes:
        if isinstance(delta, HostedCallDelta):
            return self._hosted(part, delta.call)
        if isinstance(delta, CitationDelta):
            if part != self._part or not isinstance(self._open, _Text):
                return b""
            return events.citation_delta(self._index, render_citation(delta.citation))
        if part == self._part and self._open is not None and self._open.takes(delta):
            added = self._open.add(delta)
            return added + self._next() if self._waiting else added
        if isinstance(delta, TextDelta | RefusalDelta) and not delta.text:
            return b""
        if isinstance(delta, ToolCallDelta) and self._has_ended(part, delta):
            self._seals += _seals(delta)
            return b""
        if self._open is not None and not self._open.may_end():
            self._waiting.setdefault(part, []).append(delta)
            return b""
        return self._close() + self._begin(part, delta)

    def _hosted(self, part: int, call: HostedCall) -> bytes:
        """A call that the server runs: the call, and later what it gave, each a block."""
        if not shows(call):
            return b""
        said = [self._finish_blocks()]
        block_id = self._hosted_ids.get(part)
        if block_id is None:
            block_id = self._hosted_ids[part] = call_id(call, self._labels.unique, part)
            block, given = render_use(call, block_id)
            self._index += 1
            if block["type"] == "mcp_tool_use":
                # Whole, where Anthropic sends deltas: Claude Code 2.1.197 gives up at one in such a
                # block, and SDKs keep the input that a block begins with.
                said.append(
                    events.block_start(self._index, {**block, "input": Raw(given.encode())})
                )
            else:
                said.append(events.block_start(self._index, {**block, "input": {}}))
                said.append(events.input_delta(self._index, given))
            said.append(events.block_stop(self._index))
        if call.status != "in_progress":
            self._uses.add(call)
            self._index += 1
            said.append(events.block_start(self._index, render_result(call, block_id)))
            said.append(events.block_stop(self._index))
        return b"".join(said)

    def _has_ended(self, part: int, delta: ToolCallDelta) -> bool:
        return delta.index in self._begun_calls and part not in self._waiting

    def _begin(self, part: int, delta: Delta) -> bytes:
        self._index += 1
        self._part = part
        if isinstance(delta, ToolCallDelta):
            self._begun_calls.add(delta.index)
            self._open = _Call(self._index)
        elif isinstance(delta, ReasoningDelta):
            self._open = (_Redacted if delta.redacted else _Thinking)(self._index)
        else:
            self._open = _Text(self._index, self._refusal)
        return self._open.add(delta)

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        closed = self._open.end()
        if isinstance(self._open, _Call):
            self._seals += self._open.seals
        self._open = None
        return closed + self._sealed() if self._seals else closed

    def _sealed(self) -> bytes:
        """The seals of calls that have ended, in blocks of their own."""
        said = []
        for block in self._seals:
            self._index += 1
            said.append(events.block_start(self._index, block) + events.block_stop(self._index))
        self._seals.clear()
        return b"".join(said)

    def _next(self) -> bytes:
        """What of that which waits can now be said."""
        said = []
        while self._waiting and (self._open is None or self._open.may_end()):
            said.append(self._begin_waiting())
        return b"".join(said)

    def _begin_waiting(self) -> bytes:
        part = next(iter(self._waiting))
        first, *others = self._waiting.pop(part)
        begun = [self._close(), self._begin(part, first)]
        assert self._open is not None
        return b"".join([*begun, *[self._open.add(delta) for delta in others]])

    def _finish_blocks(self) -> bytes:
        said = [self._close()]
        while self._waiting:
            said.append(self._begin_waiting())
        return b"".join([*said, self._close()])


def withheld(
    told: Sequence[Mapping[str, Any]], texts: Sequence[SaidText], fields: Mapping[str, Raw]
) -> bytes:
    """Ends a message that was relayed and of which no more may be shown."""
    begun: list[bytes] = []
    counted = 0
    blocks: dict[Any, None] = {}
    for event in told:
        match event:
            case {"type": "message_start", "message": {"usage": {"output_tokens": int(counted)}}}:
                pass
            case {"type": "content_block_start", "index": int(index)}:
                blocks[index] = None
            case {"type": "content_block_stop", "index": index}:
                blocks.pop(index, None)
    begun += [events.block_stop(index) for index in blocks]
    end = _end(StreamComplete(StopReason.content_filter), called_tools=False, refusal=None)
    begun.append(events.encode("message_delta", delta=end, usage={"output_tokens": counted}))
    return b"".join((*begun, events.MESSAGE_STOP))


def _seals(delta: ToolCallDelta) -> list[dict[str, str]]:
    call = delta.tool_call
    seal = render_call_seal(call) if isinstance(call, ToolCall) else None
    return [] if seal is None else [seal]


class _Text:
    """A text block, the words of a refusal among them."""

    def __init__(self, index: int, refusal: list[str]) -> None:
        self._index = index
        self._refusal = refusal
        self._begun = False

    def takes(self, delta: Delta) -> bool:
        return isinstance(delta, TextDelta | RefusalDelta)

    def add(self, delta: Delta) -> bytes:
        assert isinstance(delta, TextDelta | RefusalDelta)
        if isinstance(delta, RefusalDelta):
            self._refusal.append(delta.text)
        if not delta.text:
            return b""
        added = events.text_delta(self._index, delta.text)
        if self._begun:
            return added
        self._begun = True
        return events.block_start(self._index, {"type": "text", "text": ""}) + added

    def may_end(self) -> bool:
        return True

    def end(self) -> bytes:
        return events.block_stop(self._index)


class _Thinking:
    """A thinking block, whose seal comes at its end."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._begun = False
        self._last = ReasoningDelta("")

    def takes(self, delta: Delta) -> bool:
        return isinstance(delta, ReasoningDelta)

    def add(self, delta: Delta) -> bytes:
        assert isinstance(delta, ReasoningDelta)
        self._last = delta
        added = events.thinking_delta(self._index, delta.text) if delta.text else b""
        if self._begun:
            return added
        self._begun = True
        block = {"type": "thinking", "thinking": "", "signature": ""}
        return events.block_start(self._index, block) + added

    def may_end(self) -> bool:
        return True

    def end(self) -> bytes:
        seal = render_seal(self._last.signature, self._last.sealed_by)
        return events.signature_delta(self._index, seal) + events.block_stop(self._index)


class _Redacted:
    """Thinking that its maker keeps to itself: one event that has all of it."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._last = ReasoningDelta("", redacted=True)

    def takes(self, delta: Delta) -> bool:
        return isinstance(delta, ReasoningDelta)

    def add(self, delta: Delta) -> bytes:
        assert isinstance(delta, ReasoningDelta)
        self._last = delta
        return b""

    def may_end(self) -> bool:
        return True

    def end(self) -> bytes:
        block = _redacted(self._last)
        return events.block_start(self._index, block) + events.block_stop(self._index)


class _Call:
    """A tool call's block.

    Its input is shown once it is whole, as Anthropic does too unless asked otherwise: only then is
    it known whether it is an object, or has to be shown inside of one.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._begun = False
        self._ended = False
        self.seals: list[dict[str, str]] = []
        self._scanner = JSONScanner()
        self._unscanned: list[str] = []
        self._given: list[str] = []
        self._is_object: bool | None = None

    def takes(self, delta: Delta) -> bool:
        return isinstance(delta, ToolCallDelta)

    def add(self, delta: Delta) -> bytes:
        assert isinstance(delta, ToolCallDelta)
        call = delta.tool_call
        begun = b"" if self._begun else self._start(delta)
        if call is None:
            if delta.arguments:
                self._unscanned.append(delta.arguments)
                self._given.append(delta.arguments)
            return begun
        self._ended = True
        self.seals = _seals(delta)
        return begun + events.input_delta(self._index, arguments_object_text(call))

    def may_end(self) -> bool:
        """Whether nothing more can come that means something."""
        if self._ended:
            return True
        for piece in self._unscanned:
            if not (self._scanner.whole or self._scanner.broken):
                self._scanner.feed(piece)
        self._unscanned.clear()
        if self._scanner.whole and self._is_object is None:
            call = parse_tool_call("", "", "".join(self._given))
            self._is_object = isinstance(call, ToolCall)
        return self._is_object is True

    def end(self) -> bytes:
        stop = events.block_stop(self._index)
        if self._ended or not self._given:
            return stop
        # Something else begins, and the input is whole although nobody has said so yet.
        return events.input_delta(self._index, "".join(self._given)) + stop

    def _start(self, delta: ToolCallDelta) -> bytes:
        self._begun = True
        said = delta if delta.tool_call is None else delta.tool_call
        block = {"type": "tool_use", "id": said.call_id, "name": said.tool_name, "input": {}}
        return events.block_start(self._index, block)
