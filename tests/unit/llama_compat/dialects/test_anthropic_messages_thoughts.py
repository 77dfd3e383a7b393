"""Thoughts that are bound to what came before them, and versions of the API."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from anthropic.types.beta import message_create_params
from pydantic import TypeAdapter

from llama_compat.dialects import anthropic_messages
from llama_compat.dialects.anthropic_messages import (
    StreamParser,
    Thinking,
    parse_request,
    render_conversation,
)
from llama_compat.dialects.anthropic_messages.input.parameters import (
    parameters_asked,
    usual_parameters,
)
from llama_compat.dialects.anthropic_messages.versions import (
    THINKING_BINDING,
    key_header,
    takes_sampling,
)
from llama_compat.events import reply_events
from llama_compat.types import (
    EARLIER_THOUGHTS,
    ChatCompletionRequest,
    CompletionMessage,
    Message,
    ReasoningContent,
    StreamStart,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    UserMessage,
)

_REQUEST: TypeAdapter[Any] = TypeAdapter(message_create_params.MessageCreateParamsNonStreaming)

BOUND = Thinking(bound=True)
CALL = ToolCall("c1", "look", {}, "{}")
THOUGHT = CompletionMessage((ReasoningContent("Hm.", "c2VhbA==", "anthropic"), CALL))
FOREIGN = CompletionMessage((ReasoningContent("Hm.", "c2VhbA==", "gemini"), CALL))
RESULT = ToolResponseMessage("c1", "22")
DROP = {"prefix_mismatch_behavior": "drop_block"}


def asked(*messages: Message, thinking: Thinking = BOUND, **options: Any) -> Any:
    request = ChatCompletionRequest("m", messages, stream=False, **options)
    rendered = render_conversation(request, default_max_tokens=9000, thinking=thinking)
    _REQUEST.validate_python(rendered.body)
    return rendered


@pytest.mark.parametrize(
    ("options", "block"),
    [
        ({}, {"type": "adaptive", "block_binding": DROP}),
        ({"reasoning_effort": "low"}, {"type": "adaptive", "block_binding": DROP}),
        (
            {"reasoning_effort": "low", "thinking": Thinking("budget", "omitted", bound=True)},
            {
                "type": "enabled",
                "budget_tokens": 1024,
                "display": "omitted",
                "block_binding": DROP,
            },
        ),
    ],
    ids=str,
)
def test_dropping_is_asked_for_where_a_thought_goes_back(
    options: dict[str, Any], block: dict[str, Any]
) -> None:
    rendered = asked(UserMessage("Hi"), THOUGHT, RESULT, **options)
    assert rendered.body["thinking"] == block
    assert rendered.betas == (THINKING_BINDING,)
    assert rendered.dropped == ()
    assert rendered.body["messages"][1]["content"][0]["type"] == "thinking"


@pytest.mark.parametrize(
    ("messages", "thinking"),
    [
        ((UserMessage("Hi"),), BOUND),
        ((UserMessage("Hi"), FOREIGN, RESULT), BOUND),
        ((UserMessage("Hi"), THOUGHT, RESULT), Thinking()),
    ],
    ids=["no thought", "somebody else's", "not bound"],
)
def test_elsewhere_nothing_is(messages: tuple[Message, ...], thinking: Thinking) -> None:
    rendered = asked(*messages, thinking=thinking)
    assert "thinking" not in rendered.body
    assert (rendered.betas, rendered.dropped) == ((), ())


@pytest.mark.parametrize("off", ["disabled", "between_tools"])
def test_where_there_is_no_word_for_it_they_are_left_out(off: Any) -> None:
    thinking = Thinking(off=off, bound=True)
    rendered = asked(UserMessage("Hi"), THOUGHT, RESULT, thinking=thinking, reasoning_effort="none")
    assert rendered.body["thinking"] == {"type": off}
    assert [block["type"] for block in rendered.body["messages"][1]["content"]] == ["tool_use"]
    assert (rendered.betas, rendered.dropped) == ((), (EARLIER_THOUGHTS,))


SAID = CompletionMessage((TextContent("Hello"),))


@pytest.mark.parametrize(
    ("messages", "system", "roles"),
    [
        ([SystemMessage("A"), UserMessage("Hi")], ["A"], "user"),
        (
            [SystemMessage("A"), UserMessage("Hi"), SystemMessage("B")],
            ["A"],
            "user system",
        ),
        (
            [UserMessage("Hi"), SAID, SystemMessage("B"), UserMessage("Ho")],
            [],
            "user assistant user system",
        ),
        (
            [UserMessage("Hi"), THOUGHT, RESULT, SystemMessage("B"), SystemMessage("C"), SAID],
            [],
            "user assistant user system assistant",
        ),
        # It has no place yet.
        ([UserMessage("Hi"), SAID, SystemMessage("B")], ["B"], "user assistant"),
    ],
)
def test_later_instructions_follow_the_users_turn(
    messages: list[Message], system: list[str], roles: str
) -> None:
    body = asked(*messages).body
    assert [block["text"] for block in body.get("system", [])] == system
    assert " ".join(turn["role"] for turn in body["messages"]) == roles


def test_what_was_sent_is_sent_again_as_it_was() -> None:
    conversation = [
        SystemMessage("A"),
        UserMessage("Hi"),
        THOUGHT,
        RESULT,
        SystemMessage("B"),
        SAID,
        SystemMessage("C"),
        UserMessage("Ho"),
        SystemMessage("D"),
        SAID,
        UserMessage("Bye"),
    ]
    # A request ends where it is the model's turn to speak.
    ends = [2, 5, 9, 11]
    sent = [asked(*conversation[:end]).body for end in ends]
    for before, after in pairwise(sent):
        assert after["system"] == before["system"]
        assert after["messages"][: len(before["messages"])] == before["messages"]


# What became of them ------------------------------------------------------------------------------

DROPPED = {
    "type": "thinking_dropped",
    "path": "messages.1.content.0",
    "reason": "prefix_binding_mismatch",
}
ALLOWED = {**DROPPED, "type": "thinking_mismatch_allowed"}


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ([DROPPED, DROPPED], (EARLIER_THOUGHTS,)),
        ([ALLOWED], ()),
        ([], ()),
        (None, ()),
        ([{"type": "brand_new"}], ()),
    ],
)
def test_what_the_vendor_left_out_is_named(told: Any, named: tuple[str, ...]) -> None:
    message = {"content": [], "usage": {}, "input_transformations": told}
    whole = anthropic_messages.parse_reply(message)
    assert whole.dropped == named
    assert next(reply_events(whole)) == StreamStart(dropped=named)
    (start,) = StreamParser().push({"type": "message_start", "message": message})
    assert start == StreamStart(dropped=named)


# Versions, and what clients send ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "samples", "header"),
    [
        ("2023-06-01", True, "x-api-key"),
        ("2026-10-21", False, "authorization"),
        ("2027-03-01", False, "authorization"),
        ("bedrock-2023-05-31", True, "x-api-key"),
    ],
)
def test_a_version_says_what_may_be_sent(version: str, samples: bool, header: str) -> None:
    assert takes_sampling(version) is samples
    assert key_header(version) == header


def test_a_hop_to_another_model_is_shown_to_none() -> None:
    hop = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None}
    said = {"role": "assistant", "content": [hop, {"type": "text", "text": "Hi"}]}
    user = {"role": "user", "content": "x"}
    request = parse_request({"messages": [user, said, user]}, "m").request
    assert request.messages[1] == CompletionMessage((TextContent("Hi"),))
    alone = parse_request({"messages": [user, {**said, "content": [hop]}, user]}, "m").request
    assert alone.messages == (UserMessage("x"), UserMessage("x"))


@pytest.mark.parametrize(
    ("fallbacks", "usual"), [("default", ["fallbacks"]), ([{"model": "b"}], [])]
)
def test_fallbacks_by_default_are_no_more_than_a_wish(fallbacks: Any, usual: list[str]) -> None:
    body = {"fallbacks": fallbacks}
    assert parameters_asked(body) == {"fallbacks": "fallbacks"}
    assert usual_parameters(body) == usual
