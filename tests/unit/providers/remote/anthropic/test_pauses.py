"""Turns that Anthropic pauses: it is asked to go on, and not for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from llama_compat.events import Collector, reply_events
from llama_compat.fan_out import Events
from llama_compat.types import TextContent
from providers.remote.anthropic.pauses import MAX_PAUSES, Block, TurnMessage, whole_turn
from tests import sdk_anthropic as sdk


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("pauses", [0, 2, 99])
async def test_all_messages_are_one_reply(stream: bool, pauses: int) -> None:
    asked: list[list[Block]] = []

    async def ask(said: Sequence[Block], message: TurnMessage) -> Events:
        asked.append(list(said))
        number = len(asked)
        blocks: list[Any] = [sdk.thinking(f"t{number}"), sdk.text(f"{number}.")]
        whole = sdk.message(blocks, "pause_turn" if number <= pauses else "end_turn")
        if not stream:
            for event in reply_events(message.parse(sdk.dump(whole))):
                yield event
            return
        for told in sdk.stream_events(whole):
            for event in message.push(told):
                yield event
        for event in message.finish():
            yield event

    collector = Collector()
    async for event in whole_turn(ask, stream=stream):
        collector.add(event)
    times = min(pauses, MAX_PAUSES) + 1
    parts = collector.chat_completion().completion_message.parts
    texts = [part.text for part in parts if isinstance(part, TextContent)]
    assert texts == [f"{number}." for number in range(1, times + 1)]
    assert len(parts) == 2 * times
    assert collector.usage.completion_tokens == 25 * times
    last = [block for number in range(1, times) for block in _sent_back(number)]
    assert [len(each) for each in asked] == [2 * number for number in range(times)]
    assert [
        {name: block.get(name) for name in ("type", "thinking", "signature", "text")}
        for block in asked[-1]
    ] == last


def _sent_back(number: int) -> list[Block]:
    thought = {"type": "thinking", "thinking": f"t{number}", "signature": "c2VhbGVk", "text": None}
    text = {"type": "text", "thinking": None, "signature": None, "text": f"{number}."}
    return [thought, text]


async def test_what_is_no_message_is_an_error() -> None:
    message = TurnMessage(None)
    start = sdk.stream_events(sdk.message([sdk.text("a")]))[0]
    message.push(start)
    with pytest.raises(ValueError, match="not one of a message"):
        message.push(
            {
                "type": "content_block_delta",
                "index": 7,
                "delta": {"type": "text_delta", "text": "a"},
            }
        )
