"""Turns that Anthropic pauses while it runs tools of its own: it goes on where it is asked once
more, with all that it has said so far (https://platform.claude.com/docs/en/agents-and-tools/
tool-use/server-tools, 2026-11-23)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import Raw, structs

from llama_compat.dialects import anthropic_messages
from llama_compat.events import add_usage
from llama_compat.fan_out import Events
from llama_compat.types import (
    ChatCompletionResponse,
    StreamComplete,
    StreamEvent,
    StreamStart,
    Usage,
)
from llama_compat.wire.json_fields import from_raw
from llama_compat.wire.malformed import malformed_as

MAX_PAUSES = 8
"""So often it is asked to go on; what it has said then is the reply."""

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""Where a block has what such deltas bring."""

Block = dict[str, Any]


class TurnMessage:
    """One message of a turn, which keeps its blocks as the vendor takes them back.

    Args:
        before: the message that it goes on with; None for the first.

    Attributes:
        said: the blocks of all messages so far.
        paused: whether it is to go on.
    """

    def __init__(self, before: TurnMessage | None) -> None:
        self._parser: anthropic_messages.StreamParser = anthropic_messages.StreamParser(
            before=None if before is None else before._parser
        )
        self._inputs: dict[int, str] = {}
        self.said: list[Block] = [] if before is None else [*before.said]
        self._begin = len(self.said)
        self.paused = False

    def parse(self, body: Mapping[str, Any]) -> ChatCompletionResponse:
        """The reply as far as this message goes, which came whole.

        Raises:
            ValueError: it is no message.
        """
        reply = anthropic_messages.parse_reply(body)
        self.said += body["content"]
        self.paused = body.get("stop_reason") == anthropic_messages.PAUSED
        if not self._begin:
            return reply
        whole = anthropic_messages.parse_reply({**body, "content": self.said})
        return structs.replace(reply, completion_message=whole.completion_message)

    def push(self, event: Mapping[str, Any]) -> list[StreamEvent]:
        """The events of one of the vendor's.

        Raises:
            ValueError: it is not an event of this API.
        """
        events = self._parser.push(event)
        with malformed_as("the event is not one of a message"):
            self._keep(event)
        return events

    def _keep(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"type": "content_block_start", "content_block": block}:
                self.said.append(dict(block))
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                self._add(index, delta)
            case {"type": "content_block_stop", "index": index} if index in self._inputs:
                self.said[self._begin + index]["input"] = from_raw(
                    Raw(self._inputs.pop(index).encode())
                )
            case {"type": "message_delta", "delta": delta}:
                self.paused = delta.get("stop_reason") == anthropic_messages.PAUSED

    def _add(self, index: int, delta: Mapping[str, Any]) -> None:
        block, kind = self.said[self._begin + index], delta["type"]
        if kind in _TEXTS:
            block[_TEXTS[kind]] = (block.get(_TEXTS[kind]) or "") + delta[_TEXTS[kind]]
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        elif kind == "input_json_delta" and delta["partial_json"]:
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]

    def finish(self) -> Iterator[StreamEvent]:
        """What is due at the end of the stream.

        Raises:
            ValueError: it broke off.
        """
        return self._parser.finish()


Ask = Callable[[Sequence[Block], TurnMessage], Events]
"""Asks for the next message of a turn, in which so much has been said; the message reads it."""


async def whole_turn(ask: Ask, *, stream: bool) -> Events:
    """The events of all messages of a turn, as of one.

    Args:
        ask: asks for each.
        stream: whether they come as streams; otherwise each has all that was said.

    Raises (from the generator):
        APIError: what `ask` raises.
    """
    message: TurnMessage | None = None
    usages: list[Usage] = []
    for pauses in range(MAX_PAUSES + 1):
        said = [] if message is None else [*message.said]
        message = TurnMessage(message)
        kept: list[StreamEvent] = []
        async with aclosing(ask(said, message)) as events:
            async for event in events:
                if isinstance(event, StreamComplete):
                    complete = event
                elif not stream:
                    kept.append(event)
                elif not (said and isinstance(event, StreamStart)):
                    yield event
        usages.append(complete.usage)
        if not message.paused or pauses == MAX_PAUSES:
            break
    for event in kept:
        yield event
    yield structs.replace(complete, usage=add_usage(usages, 1)) if usages[1:] else complete
