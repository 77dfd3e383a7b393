"""What a message cost, and in which tier it was served."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types.beta import BetaMessage, BetaUsage

from llama_compat.dialects import anthropic_messages
from llama_compat.dialects.anthropic_messages import StreamParser, render_request
from llama_compat.dialects.anthropic_messages.usage import Counts, render_usage
from llama_compat.types import ChatCompletionRequest, StreamComplete, Units, Usage, UserMessage

DECLINED = {
    "type": "message",
    "model": "claude-fable-5",
    "input_tokens": 2,
    "output_tokens": 578,
    "cache_creation_input_tokens": 10_421,
    "cache_read_input_tokens": 72_769,
}
SERVED = {
    "type": "fallback_message",
    "model": "claude-opus-4-8",
    "input_tokens": 2,
    "output_tokens": 13_658,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 79_214,
}
COMPACTED = {
    "type": "compaction",
    "input_tokens": 180_000,
    "output_tokens": 3_500,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
ADVISED = {**DECLINED, "type": "advisor_message"}
PLAIN = {name: count for name, count in SERVED.items() if name not in ("type", "model")}


def usage_of(*iterations: Any) -> Usage:
    """The usage of a message that says all that `SERVED` does besides."""
    told = {**PLAIN, "iterations": list(iterations)}
    BetaUsage.model_validate(told)
    return Counts(told).usage()


BOTH = Usage(2 + 10_421 + 72_769 + 2 + 79_214, 578 + 13_658, 72_769 + 79_214, None, 10_421)


# The figures are those of https://github.com/ccusage/ccusage/issues/1552, read on 2026-11-23.
@pytest.mark.parametrize(
    ("iterations", "usage"),
    [
        ([], Usage(79_216, 13_658, 79_214, None, 0)),
        ([{**SERVED, "type": "message"}], Usage(79_216, 13_658, 79_214, None, 0)),
        ([DECLINED, SERVED], BOTH),
        ([ADVISED, {**SERVED, "type": "message"}], BOTH),
        # Who declines before it says anything is not paid for.
        ([{**DECLINED, "output_tokens": 0}, SERVED], Usage(79_216, 13_658, 79_214, None, 0)),
        (
            [COMPACTED, {**SERVED, "type": "message"}],
            Usage(79_216 + 180_000, 13_658 + 3_500, 79_214, None, 0),
        ),
    ],
    ids=["none", "one", "fallback", "advisor", "declined at once", "compaction"],
)
def test_every_model_that_took_part_is_counted(iterations: list[Any], usage: Usage) -> None:
    assert usage_of(*iterations) == usage


@pytest.mark.parametrize("strange", [5, {}, [None, 7], [{"output_tokens": "many"}]])
def test_what_makes_no_sense_is_passed_over(strange: Any) -> None:
    assert Counts({**PLAIN, "iterations": strange}).usage() == usage_of()


MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-8",
    "content": [
        {
            "type": "fallback",
            "from": {"model": "claude-fable-5"},
            "to": {"model": "claude-opus-4-8"},
            "trigger": {"type": "refusal", "category": "cyber"},
        },
        {"type": "text", "text": "Sunny."},
    ],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {**PLAIN, "iterations": [DECLINED, SERVED], "service_tier": "priority"},
}


def test_a_whole_reply_of_a_fallback() -> None:
    BetaMessage.model_validate(MESSAGE)
    reply = anthropic_messages.parse_reply(MESSAGE)
    assert reply.completion_message.content == "Sunny."
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
        BOTH.prompt_tokens,
        BOTH.completion_tokens,
    )
    assert reply.service_tier == "priority"


def test_a_stream_of_a_fallback() -> None:
    fallback, text = MESSAGE["content"]
    began = {"input_tokens": 2, "output_tokens": 1, "service_tier": "standard"}
    events: list[Any] = [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "usage": began}},
        {"type": "content_block_start", "index": 0, "content_block": fallback},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": text},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {**PLAIN, "iterations": [DECLINED, SERVED]},
        },
        {"type": "message_stop"},
    ]
    parser = StreamParser()
    complete = [each for event in events for each in parser.push(event)][-1]
    assert isinstance(complete, StreamComplete)
    assert complete.usage.completion_tokens == BOTH.completion_tokens
    assert complete.usage.prompt_tokens == BOTH.prompt_tokens
    assert complete.service_tier == "default"


@pytest.mark.parametrize(
    ("told", "tier"),
    [("standard", "default"), ("priority", "priority"), ("batch", None), (5, None), (None, None)],
)
def test_the_tier_that_served_in_openais_word(told: Any, tier: str | None) -> None:
    assert Counts({**PLAIN, "service_tier": told}).service_tier == tier


@pytest.mark.parametrize(
    ("tier", "told"),
    [("default", "standard"), ("priority", "priority"), ("flex", None), (None, None)],
)
def test_the_tier_that_served_in_anthropics_word(tier: str | None, told: str | None) -> None:
    assert render_usage(Usage(3, 2), tier).get("service_tier") == told


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ("auto", "auto"),
        ("priority", "auto"),
        ("default", "standard_only"),
        ("flex", None),
        ("scale", None),
        (None, None),
    ],
)
def test_the_tier_that_is_wanted(wanted: str | None, sent: str | None) -> None:
    request = ChatCompletionRequest("m", (UserMessage("Hi"),), service_tier=wanted, stream=False)
    body = render_request(request, default_max_tokens=9)
    assert body.get("service_tier") == sent
    read = anthropic_messages.parse_request(json.loads(json.dumps(body)), "m").request
    back = {"auto": "auto", "standard_only": "default", None: None}
    assert read.service_tier == back[sent]


@pytest.mark.parametrize(
    ("told", "searches"),
    [
        ({"web_search_requests": 3, "web_fetch_requests": 1}, 3),
        ({"web_search_requests": 0, "web_fetch_requests": 1}, None),
        ({"web_search_requests": None}, None),
        ("nonsense", None),
        (None, None),
    ],
)
def test_searches_of_the_vendors_are_paid_for(told: Any, searches: int | None) -> None:
    counts = Counts({"input_tokens": 1, "output_tokens": 2})
    counts.update({"output_tokens": 5, "server_tool_use": told})
    units = None if searches is None else Units(searches=searches)
    assert counts.usage() == Usage(1, 5, units=units)
