"""What of a conversation's reasoning a vendor is sent, and that all else keeps its bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.chat.reasoning_fields import (
    REASONING_FIELDS,
    have_reasoning,
    with_reasoning_in,
)
from llama_compat.wire.json_fields import from_raw, to_raw
from providers.remote.openai.vendors import VENDORS

SEAL = {"google": {"thought_signature": "s"}}


def fitted(message: dict[str, Any], *taken: str) -> dict[str, Any]:
    messages = Raw(json.dumps([{"role": "assistant", "content": "x", **message}]).encode())
    [sent] = json.loads(bytes(with_reasoning_in(messages, frozenset(taken))))
    assert (sent.pop("role"), sent.pop("content")) == ("assistant", "x")
    return dict(sent)


@pytest.mark.parametrize(
    ("message", "taken", "sent"),
    [
        ({"reasoning": "a", "reasoning_content": "a"}, ["reasoning"], {"reasoning": "a"}),
        ({"reasoning_content": "a"}, ["reasoning"], {"reasoning": "a"}),
        ({"reasoning": "a"}, ["reasoning_content"], {"reasoning_content": "a"}),
        ({"reasoning": "a", "reasoning_content": None}, ["reasoning"], {"reasoning": "a"}),
        (
            {"reasoning": "a"},
            ["reasoning", "reasoning_content"],
            {"reasoning": "a", "reasoning_content": "a"},
        ),
        ({"reasoning_content": ""}, ["reasoning_content"], {"reasoning_content": ""}),
        ({"reasoning": "a", "reasoning_details": [1], "extra_content": SEAL}, [], {}),
        ({"reasoning_details": [1]}, ["reasoning_details"], {"reasoning_details": [1]}),
        ({"reasoning_effort": "a"}, [], {"reasoning_effort": "a"}),
        (
            {"tool_calls": [{"id": "1", "extra_content": SEAL}, {"id": "2"}]},
            ["reasoning"],
            {"tool_calls": [{"id": "1"}, {"id": "2"}]},
        ),
        (
            {"tool_calls": [{"id": "1", "extra_content": SEAL}], "reasoning": "a"},
            ["extra_content"],
            {"tool_calls": [{"id": "1", "extra_content": SEAL}]},
        ),
    ],
)
def test_what_a_vendor_takes_is_what_it_gets(
    message: dict[str, Any], taken: list[str], sent: dict[str, Any]
) -> None:
    assert fitted(message, *taken) == sent


def test_messages_without_reasoning_keep_their_bytes() -> None:
    first = b'{ "role":"user", "content":"my \\"reasoning\\": 1", "x": 1.50 }'
    second = b'{"role":"assistant","content":"\\u00e9","reasoning":"a"}'
    messages = Raw(b"[" + first + b" , " + second + b"]")
    sent = with_reasoning_in(messages, frozenset())
    assert bytes(sent) == b"[" + first + b',{"role":"assistant","content":"\\u00e9"}]'
    assert with_reasoning_in(messages, REASONING_FIELDS - {"reasoning_content"}) is messages


@pytest.mark.parametrize(
    "messages",
    [
        b'{"reasoning": 1}',
        b'[{"reasoning": "a"}, 1, "reasoning"]',
        b'["\\"reasoning"]',
        b'[{"reasoning": "a", "tool_calls": [1], "extra_content": 1}]',
        b"[" * 5000 + b'"reasoning"' + b"]" * 5000,
    ],
)
def test_messages_that_are_none_are_the_vendors_to_refuse(messages: bytes) -> None:
    raw = Raw(messages)
    assert with_reasoning_in(raw, frozenset({"reasoning"})) is raw


@pytest.mark.parametrize(
    ("messages", "may"),
    [
        (b'[{"content": "reasoning"}]', True),
        (b'[{"content": "my reasoning"}]', False),
        (b'[{"reasoning_details": []}]', True),
        (b'[{"tool_calls": [{"extra_content": {}}]}]', True),
        (b'[{"role": "user"}]', False),
    ],
)
def test_a_quick_look(messages: bytes, may: bool) -> None:
    assert have_reasoning(Raw(messages)) is may


@pytest.mark.parametrize("provider_type", VENDORS)
def test_every_row_says_what_the_vendor_takes(provider_type: str) -> None:
    taken = VENDORS[provider_type].reasoning_fields
    if provider_type == "remote::passthrough":
        assert taken is None  # any vendor may be there: the template can say
    else:
        assert taken is not None
        assert taken <= REASONING_FIELDS


# Where there has to be something ------------------------------------------------------------------

CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKS: dict[str, Any] = {"role": "user", "content": "Weather?"}
CALLS: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]}
ANSWERS: dict[str, Any] = {"role": "tool", "tool_call_id": "1", "content": "22"}
ROUND = [ASKS, CALLS, ANSWERS]


def completed(messages: list[dict[str, Any]], provider_type: str) -> list[dict[str, Any]]:
    vendor = VENDORS[provider_type]
    taken = vendor.reasoning_fields or frozenset()
    raw = with_reasoning_in(to_raw(messages), taken, vendor.stand_ins)
    result: list[dict[str, Any]] = from_raw(raw)
    return result


@pytest.mark.parametrize(
    "provider_type", ["remote::deepseek", "remote::moonshot", "remote::xiaomi"]
)
def test_every_turn_with_calls_says_something(provider_type: str) -> None:
    blank = CALLS | {"reasoning_content": " "}
    told = completed([*ROUND, *ROUND], provider_type)
    assert told == [ASKS, blank, ANSWERS, ASKS, blank, ANSWERS]
    thought = CALLS | {"reasoning_content": "Hm."}
    assert completed([ASKS, thought, ANSWERS], provider_type)[1] == thought
    empty = CALLS | {"reasoning_content": ""}
    assert completed([ASKS, empty, ANSWERS], provider_type)[1] == blank


def test_geminis_first_call_of_the_current_turn_is_signed() -> None:
    seal = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}
    signed = CALLS | {"tool_calls": [CALL | seal, CALL]}
    told = completed([*ROUND, *ROUND, CALLS, ANSWERS], "remote::gemini")
    assert told == [*ROUND, ASKS, signed, ANSWERS, signed, ANSWERS]
    own = {"extra_content": {"google": {"thought_signature": "b3du"}}}
    kept = CALLS | {"tool_calls": [CALL | own, CALL]}
    assert completed([ASKS, kept, ANSWERS], "remote::gemini") == [ASKS, kept, ANSWERS]


@pytest.mark.parametrize("calls", [None, [], "no calls", [7]])
def test_calls_that_are_none_are_the_vendors_to_refuse(calls: Any) -> None:
    message = {"role": "assistant", "content": "Hi", "tool_calls": calls}
    assert completed([ASKS, message], "remote::deepseek") == [ASKS, message]
