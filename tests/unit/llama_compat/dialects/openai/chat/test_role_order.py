"""Roles in the order in which Mistral's models take them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from llama_compat.dialects.openai.chat.role_order import with_role_order


def ordered(*messages: Any, marks_prefix: bool = True) -> Any:
    raw = Raw(json.dumps(messages).encode())
    return json.loads(bytes(with_role_order(raw, marks_prefix=marks_prefix)))


ASKED: list[Any] = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}, {"id": "b"}]},
]
RESULTS: list[Any] = [
    {"role": "tool", "tool_call_id": "a", "content": "1"},
    {"role": "tool", "tool_call_id": "b", "content": "2"},
]


def test_the_model_speaks_between_what_a_tool_gave_and_the_user() -> None:
    more: list[Any] = [{"role": "user", "content": "and?"}, {"role": "user", "content": "well?"}]
    bridge = {"role": "assistant", "content": "OK."}
    told = ordered(*ASKED, *RESULTS, *more)
    assert told == [*ASKED, *RESULTS, bridge, *more]
    assert ordered(*told) == told


def test_what_the_model_is_to_go_on_with_is_called_so() -> None:
    user, said = {"role": "user", "content": "x"}, {"role": "assistant", "content": "It is"}
    assert ordered(user, said) == [user, {**said, "prefix": True}]
    assert ordered(user, {**said, "prefix": False}) == [user, {**said, "prefix": False}]
    assert ordered(user, said, marks_prefix=False) == [user, said]
    assert ordered(user, said, user) == [user, said, user]


def test_what_says_nothing_is_left_out() -> None:
    user: dict[str, Any] = {"role": "user", "content": "x"}
    for nothing in ({"content": ""}, {"content": None, "tool_calls": []}, {"refusal": None}, {}):
        stopped = {"role": "assistant", **nothing}
        assert ordered(user, stopped, user) == [user, user]
        bridge = {"role": "assistant", "content": "OK."}
        assert ordered(*ASKED, *RESULTS, stopped, user) == [*ASKED, *RESULTS, bridge, user]
        assert ordered(stopped) == [stopped]


def test_instructions_come_before_what_the_user_says() -> None:
    user: dict[str, Any] = {"role": "user", "content": "x"}
    said, rule = {"role": "assistant", "content": "y"}, {"role": "system", "content": "Be brief."}
    developer = {**rule, "role": "developer"}
    assert ordered(user, said, rule, user) == [rule, user, said, user]
    assert ordered(rule, user, said, developer, user, rule) == [rule, rule, user, said, user, rule]
    assert ordered(*ASKED, *RESULTS, rule) == [rule, *ASKED, *RESULTS]
    bridge = {"role": "assistant", "content": "OK."}
    assert ordered(*ASKED, *RESULTS, rule, user) == [rule, *ASKED, *RESULTS, bridge, user]
    assert ordered(user, said, rule) == [rule, user, {**said, "prefix": True}]


def test_they_are_not_all_that_there_is() -> None:
    rule: dict[str, Any] = {"role": "system", "content": "Be brief."}
    assert ordered(rule) == [{**rule, "role": "user"}]
    assert ordered(rule, {**rule, "role": "developer"}) == [rule, {**rule, "role": "user"}]


@pytest.mark.parametrize(
    "messages",
    [
        b'[{"role":"user", "content":"x" }]',
        b'[{"role":"tool"}, {"role":"assistant","content":"x"},{"role":"user"}]',
        b'[{"role":"tool"},{"role":7}, {"role": "user"}]',
        b'[7, {"role":"tool"},{"role":"user"}]',
        b'{"role":"tool"}',
        b"[]",
        b"[1",
    ],
)
def test_what_is_in_order_or_makes_no_sense_keeps_its_bytes(messages: bytes) -> None:
    assert bytes(with_role_order(Raw(messages), marks_prefix=True)) == messages
