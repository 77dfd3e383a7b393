"""Streams of every client API, as one that relays gets them from a vendor of that API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from llama_compat.dialects.anthropic_messages.operations import MESSAGES
from llama_compat.dialects.base import Labels, Operation
from llama_compat.dialects.gemini.operations import STREAM_EVENTS
from llama_compat.dialects.gemini_interactions.operations import INTERACTIONS
from llama_compat.dialects.ollama.operations import CHAT as OLLAMA_CHAT
from llama_compat.dialects.ollama.operations import GENERATE as OLLAMA_GENERATE
from llama_compat.dialects.openai.operations import CHAT, COMPLETIONS
from llama_compat.dialects.openai_responses.operations import RESPONSES
from llama_compat.events import ReplyParts
from llama_compat.tools.calls import ToolCallAssembler
from llama_compat.types import (
    ReasoningDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamStart,
    TextDelta,
    Usage,
)

_ASKED = [{"role": "user", "content": "Hi"}]
_LINE = re.compile(rb"^(?:data: )?(\{.*\})\r?$", re.MULTILINE)


class Said(Struct):
    """What a client reads in a stream."""

    thoughts: str = ""
    text: str = ""
    arguments: str = ""


class Wire(Struct, frozen=True):
    """One client API.

    Attributes:
        operation: its call.
        body: of a request.
        read: has a client read one event.
        thinks, calls: whether it has a place for thoughts, and for arguments as they grow.
    """

    operation: Operation
    body: Mapping[str, Any]
    read: Callable[[Mapping[str, Any], Said], None]
    thinks: bool = True
    calls: bool = True

    def rendered(
        self, thoughts: Sequence[str], text: Sequence[str], arguments: Sequence[str]
    ) -> list[bytes]:
        """The events of a stream."""
        return self.rendered_parts(thoughts, [text], arguments)

    def rendered_parts(
        self,
        thoughts: Sequence[str],
        parts: Sequence[Sequence[str]],
        arguments: Sequence[str] = (),
    ) -> list[bytes]:
        """The same with a text in several parts, each in pieces of its own."""
        return self.rendered_events(_events(self, thoughts, parts, arguments))

    def rendered_events(self, events: Sequence[StreamEvent]) -> list[bytes]:
        """The same of any events of the vocabulary."""
        parse: Any = self.operation.parse
        renderer = parse(dict(self.body), "m").stream_renderer(
            Labels("m", unique="0" * 24, created=1741569952)
        )
        told = [renderer.render(0, each) for each in events]
        return [each for each in (*told, renderer.finish(Usage(3, 5))) if each]


def _events(
    wire: Wire,
    thoughts: Sequence[str],
    texts: Sequence[Sequence[str]],
    arguments: Sequence[str],
) -> list[StreamEvent]:
    parts, calls = ReplyParts(), ToolCallAssembler()
    events: list[StreamEvent] = [StreamStart(3)]
    if wire.thinks:
        events += [parts.progress(ReasoningDelta(each)) for each in thoughts]
    for text in texts:
        parts.end_part()
        events += [parts.progress(TextDelta(each)) for each in text]
    if wire.calls and arguments:
        deltas = calls.push(index=0, call_id="1", tool_name="f", arguments="")
        for each in arguments:
            deltas += calls.push(index=0, call_id=None, tool_name=None, arguments=each)
        deltas += calls.finish()
        events += [parts.progress(each) for each in deltas]
    return [*events, StreamComplete(StopReason.end_of_turn, Usage(3, 5))]


def read(wire: Wire, stream: bytes) -> Said:
    """What a client reads in `stream`."""
    said = Said()
    for line in _LINE.findall(stream):
        wire.read(json.loads(line), said)
    return said


def _chat(chunk: Mapping[str, Any], said: Said) -> None:
    for choice in chunk["choices"]:
        delta = choice["delta"]
        said.thoughts += delta.get("reasoning_content") or ""
        said.text += delta.get("content") or ""
        for call in delta.get("tool_calls") or ():
            said.arguments += call["function"].get("arguments") or ""


def _completion(chunk: Mapping[str, Any], said: Said) -> None:
    for choice in chunk["choices"]:
        said.text += choice["text"]


def _message(event: Mapping[str, Any], said: Said) -> None:
    delta = event.get("delta", {})
    said.thoughts += delta.get("thinking", "")
    said.text += delta.get("text", "")
    said.arguments += delta.get("partial_json", "")


def _response(event: Mapping[str, Any], said: Said) -> None:
    match event["type"]:
        case "response.output_text.delta":
            said.text += event["delta"]
        case "response.reasoning_text.delta" | "response.reasoning_summary_text.delta":
            said.thoughts += event["delta"]
        case "response.function_call_arguments.delta":
            said.arguments += event["delta"]


def _candidates(response: Mapping[str, Any], said: Said) -> None:
    for candidate in response["candidates"]:
        for part in candidate["content"]["parts"]:
            if part.get("thought"):
                said.thoughts += part.get("text", "")
            else:
                said.text += part.get("text", "")
            if "functionCall" in part:
                said.arguments += json.dumps(part["functionCall"]["args"])


def _ollama_message(line: Mapping[str, Any], said: Said) -> None:
    message = line["message"]
    said.text += message.get("content", "")
    said.thoughts += message.get("thinking", "")
    for call in message.get("tool_calls", ()):
        said.arguments += json.dumps(call["function"]["arguments"])


def _generated(line: Mapping[str, Any], said: Said) -> None:
    said.text += line["response"]
    said.thoughts += line.get("thinking", "")


def _step(event: Mapping[str, Any], said: Said) -> None:
    match event.get("delta"):
        case {"type": "text", "text": text}:
            said.text += text
        case {"type": "thought_summary", "content": {"text": text}}:
            said.thoughts += text
        case {"type": "arguments_delta", "arguments": text}:
            said.arguments += text


WIRES = {
    "chat": Wire(CHAT, {"model": "m", "messages": _ASKED, "stream": True}, _chat),
    "completions": Wire(
        COMPLETIONS,
        {"model": "m", "prompt": "Hi", "stream": True},
        _completion,
        thinks=False,
        calls=False,
    ),
    "messages": Wire(
        MESSAGES, {"model": "m", "messages": _ASKED, "max_tokens": 9, "stream": True}, _message
    ),
    "responses": Wire(RESPONSES, {"model": "m", "input": "Hi", "stream": True}, _response),
    "gemini": Wire(
        STREAM_EVENTS,
        {
            "contents": [{"parts": [{"text": "Hi"}]}],
            "generationConfig": {"thinkingConfig": {"includeThoughts": True}},
        },
        _candidates,
    ),
    "ollama_chat": Wire(OLLAMA_CHAT, {"model": "m", "messages": _ASKED}, _ollama_message),
    "ollama_generate": Wire(
        OLLAMA_GENERATE, {"model": "m", "prompt": "Hi"}, _generated, calls=False
    ),
    "interactions": Wire(INTERACTIONS, {"model": "m", "input": "Hi", "stream": True}, _step),
}
