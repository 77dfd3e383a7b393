"""The events of a model's text made into those of a reply with calls and reasoning."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_compat.errors import APIError
from llama_compat.events import Collector
from llama_compat.tools.formats import FORMATS, ForcedCallParser, reply_parser
from llama_compat.types import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
    TokenLogProb,
    TokenLogProbs,
    ToolCall,
    ToolChoice,
    ToolDefinition,
    UnparseableToolCall,
    Usage,
    UserMessage,
)
from providers.local.replies.call_rules import CallRules, call_openings, call_rules
from providers.local.replies.tool_replies import CallingParser, read_reply

TOOLS = (ToolDefinition("f"), ToolDefinition("g"))
HERMES = FORMATS["hermes"]
CALL_F = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
CALL_G = '<tool_call>\n{"name": "g", "arguments": {"y": "}"}}\n</tool_call>'


class Engine:
    """Says `pieces`, a token each, and then that it was the end."""

    def __init__(
        self,
        pieces: Sequence[str],
        *,
        reason: StopReason = StopReason.end_of_turn,
        logprobs: bool = False,
    ) -> None:
        self.said = 0
        self.closed = False
        self._pieces = pieces
        self._reason = reason
        self._logprobs = logprobs

    async def events(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            yield StreamStart(7)
            for piece in self._pieces:
                self.said += 1
                logprobs = (logprob(piece),) if self._logprobs else None
                if piece or logprobs:
                    yield StreamProgress(TextDelta(piece), logprobs, self.said)
            if self._logprobs and not self._pieces:
                yield StreamProgress(TextDelta(""), ())
            yield StreamComplete(self._reason, Usage(7, self.said + 1))
        finally:
            self.closed = True


def logprob(token: str) -> TokenLogProbs:
    return TokenLogProbs(TokenLogProb(token, token.encode(), -1.0))


async def reply(
    engine: Engine, parser: CallingParser | None = None, *, single_call: bool = False
) -> ChatCompletionResponse:
    parser = parser or reply_parser(HERMES, TOOLS)
    collector = Collector()
    events = [event async for event in read_reply(engine.events(), parser, single_call=single_call)]
    assert isinstance(events[0], StreamStart)
    assert [type(event) for event in events].count(StreamComplete) == 1
    assert isinstance(events[-1], StreamComplete)
    for event in events:
        collector.add(event)
    assert engine.closed
    return collector.chat_completion()


def pieces_of(data: st.DataObject, text: str) -> list[str]:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text) - 1))))
    return [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def calls(response: ChatCompletionResponse) -> list[tuple[str, Any]]:
    return [
        (call.tool_name, call.arguments if isinstance(call, ToolCall) else call.arguments_json)
        for call in response.completion_message.tool_calls
    ]


# Text, reasoning and calls ------------------------------------------------------------------------


@given(data=st.data(), with_logprobs=st.booleans())
async def test_all_kinds_in_one_reply(data: st.DataObject, with_logprobs: bool) -> None:
    text = f"<think>\nwhich?\n</think>\n\nLet me see.\n{CALL_F}\n{CALL_G}"
    pieces = pieces_of(data, text)
    engine = Engine(pieces, logprobs=with_logprobs)
    response = await reply(engine)
    message = response.completion_message
    assert (message.reasoning, message.content) == ("which?", "Let me see.\n")
    assert calls(response) == [("f", {"x": 1}), ("g", {"y": "}"})]
    assert message.stop_reason is StopReason.end_of_message
    assert response.usage == Usage(7, len(pieces) + 1)
    if with_logprobs:
        assert response.logprobs is not None
        assert [token.chosen.token for token in response.logprobs] == pieces
    else:
        assert response.logprobs is None


@pytest.mark.parametrize("with_logprobs", [False, True])
@pytest.mark.parametrize("pieces", [[], ["", ""], ["Hello ", "there"], ["<tool", "_call>{"]])
async def test_a_reply_without_calls_is_as_it_was(pieces: list[str], with_logprobs: bool) -> None:
    response = await reply(Engine(pieces, logprobs=with_logprobs))
    message = response.completion_message
    assert (message.content, message.tool_calls, message.reasoning) == ("".join(pieces), (), None)
    assert message.stop_reason is StopReason.end_of_turn
    expected = tuple(map(logprob, pieces)) if with_logprobs else None
    assert response.logprobs == expected


async def test_text_is_not_held_back() -> None:
    engine = Engine(["Hello", " there", "<tool_"])
    events = read_reply(engine.events(), reply_parser(HERMES, TOOLS), single_call=False)
    await anext(events)
    for count, piece in enumerate(["Hello", " there"], 1):
        assert await anext(events) == StreamProgress(TextDelta(piece), None, count)
        assert engine.said == count
    await events.aclose()
    assert engine.closed


async def test_tokens_that_ran_out_say_so() -> None:
    response = await reply(Engine([CALL_F, "<tool_call>"], reason=StopReason.out_of_tokens))
    assert calls(response) == [("f", {"x": 1})]
    assert response.completion_message.content == "<tool_call>"
    assert response.completion_message.stop_reason is StopReason.out_of_tokens


async def test_an_engine_that_fails() -> None:
    async def failing() -> AsyncGenerator[StreamEvent, None]:
        yield StreamStart(1)
        yield StreamProgress(TextDelta("Hello"), None, 1)
        raise APIError(500, "broken")

    events = read_reply(failing(), reply_parser(None, ()), single_call=False)
    seen = [await anext(events), await anext(events)]
    with pytest.raises(APIError, match="broken"):
        await anext(events)
    assert seen == [StreamStart(1), StreamProgress(TextDelta("Hello"), None, 1)]


# One call only ------------------------------------------------------------------------------------


@given(data=st.data())
async def test_a_single_call_ends_the_reply_at_once(data: st.DataObject) -> None:
    pieces = pieces_of(data, f"First {CALL_F}{CALL_G} and text")
    engine = Engine(pieces, logprobs=True)
    response = await reply(engine, single_call=True)
    assert calls(response) == [("f", {"x": 1})]
    assert response.completion_message.content == "First "
    assert response.completion_message.stop_reason is StopReason.end_of_message
    needed = len(f"First {CALL_F}".removesuffix("\n</tool_call>"))
    count = next(n for n in range(len(pieces) + 1) if len("".join(pieces[:n])) >= needed)
    assert engine.said == count
    assert response.usage == Usage(7, count)
    assert response.logprobs == tuple(map(logprob, pieces[:count]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]'),
        ("pythonic", "[f(), g()]"),
        (
            "llama3",
            '<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}',
        ),
    ],
)
@pytest.mark.parametrize("single_call", [False, True])
async def test_calls_that_are_known_together(name: str, text: str, single_call: bool) -> None:
    parser = reply_parser(FORMATS[name], TOOLS)
    response = await reply(Engine(list(text)), parser, single_call=single_call)
    assert calls(response) == ([("f", {})] if single_call else [("f", {}), ("g", {})])
    assert response.completion_message.content == ""
    assert response.completion_message.stop_reason is StopReason.end_of_message


# Calls that are demanded --------------------------------------------------------------------------


def asked(**options: Any) -> CallRules:
    return call_rules(ChatCompletionRequest("m", (UserMessage("Go."),), **options))


def test_the_rules_of_a_request() -> None:
    assert asked() == asked(tools=TOOLS, tool_choice=ToolChoice("none")) == CallRules()
    assert asked(tools=TOOLS) == CallRules(TOOLS)
    assert asked(tools=TOOLS, parallel_tool_calls=True) == CallRules(TOOLS)
    assert asked(tools=TOOLS, parallel_tool_calls=False) == CallRules(TOOLS, single=True)
    required = asked(tools=TOOLS, tool_choice=ToolChoice("required"))
    assert required == CallRules(TOOLS, TOOLS, single=True)
    named = asked(tools=TOOLS, tool_choice=ToolChoice("required", "g"))
    assert named == CallRules(TOOLS, TOOLS[1:], single=True)


@pytest.mark.parametrize(("tools", "name"), [((), None), ((), "f"), (TOOLS, "h")])
def test_a_demanded_tool_has_to_be_offered(
    tools: tuple[ToolDefinition, ...], name: str | None
) -> None:
    with pytest.raises(APIError) as caught:
        asked(tools=tools, tool_choice=ToolChoice("required", name))
    assert (caught.value.status, caught.value.param) == (400, "tool_choice")


async def test_a_demanded_call() -> None:
    openings = call_openings(HERMES, CallRules(TOOLS, TOOLS, single=True), "assistant\n")
    pieces = [openings["g"], '"y": ', "1}", "}</tool_call>"]
    engine = Engine(pieces)
    response = await reply(engine, ForcedCallParser(openings), single_call=True)
    assert calls(response) == [("g", {"y": 1})]
    assert (engine.said, response.usage) == (3, Usage(7, 3))


async def test_a_demanded_call_that_breaks_off() -> None:
    openings = call_openings(HERMES, CallRules(TOOLS, TOOLS, single=True), "")
    engine = Engine([openings["f"], '"x'], reason=StopReason.out_of_tokens)
    response = await reply(engine, ForcedCallParser(openings), single_call=True)
    (call,) = response.completion_message.tool_calls
    assert isinstance(call, UnparseableToolCall)
    assert (call.tool_name, call.arguments_json) == ("f", '{"x')
    assert response.completion_message.stop_reason is StopReason.out_of_tokens


def test_an_opening_ends_the_reasoning_that_the_prompt_began() -> None:
    rules = CallRules(TOOLS, TOOLS[:1], single=True)
    (plain,) = call_openings(HERMES, rules, "assistant\n").values()
    (opened,) = call_openings(HERMES, rules, "assistant\n<think>\n").values()
    assert opened == f"\n</think>\n\n{plain}"
