"""Ids of calls: in the form of an API, and of one call alone."""

from __future__ import annotations

import re
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from llama_compat.tools.call_ids import CallIds, alphanumeric_id, with_call_ids
from llama_compat.types import (
    CompletionMessage,
    Message,
    ToolCall,
    ToolResponseMessage,
    UnparseableToolCall,
    UserMessage,
)

NINE = partial(alphanumeric_id, length=9)


def calling(*ids: str) -> CompletionMessage:
    return CompletionMessage(tuple(ToolCall(each, "f", {}, "{}") for each in ids))


def ids_in(messages: tuple[Message, ...]) -> list[list[str]]:
    """Of each message the ids in it."""
    return [
        [message.call_id]
        if isinstance(message, ToolResponseMessage)
        else [call.call_id for call in getattr(message, "tool_calls", ())]
        for message in messages
    ]


def renamed(*messages: Message) -> list[list[str]]:
    return ids_in(tuple(with_call_ids(messages, str)))


def test_an_id_of_letters_and_digits_alone() -> None:
    assert NINE("abcDEF123") == "abcDEF123"
    for other in ("call_1", "abcDEF1234", "abcDEF12", "abcDEF12é", "", "\ud800"):
        assert re.fullmatch("[a-z0-9]{9}", NINE(other))
        assert NINE(other) == NINE(other)
    assert NINE("call_1") != NINE("call_2")


def test_calls_that_are_numbered_anew_in_each_reply_have_ids_of_their_own() -> None:
    answer = ToolResponseMessage("call_0", "x")
    first = (calling("call_0"), answer)
    assert renamed(*first) == [["call_0"], ["call_0"]]
    assert renamed(*first, *first, *first) == [
        *[["call_0"], ["call_0"]],
        *[["call_0-2"], ["call_0-2"]],
        *[["call_0-3"], ["call_0-3"]],
    ]


def test_answers_to_calls_of_one_id_are_to_one_after_the_other() -> None:
    answer = ToolResponseMessage("a", "x")
    assert renamed(calling("a", "b", "a"), answer, ToolResponseMessage("b", "x"), answer) == [
        ["a", "b", "a-2"],
        ["a"],
        ["b"],
        ["a-2"],
    ]


def test_what_is_no_call_stays() -> None:
    messages = (UserMessage("x"), CompletionMessage.of("y"), ToolResponseMessage("z", "x"))
    assert tuple(with_call_ids(messages, str)) == messages
    broken = CompletionMessage((UnparseableToolCall("a b", "f", "{"),))
    assert ids_in(tuple(with_call_ids([broken], NINE))) == [[NINE("a b")]]


@given(st.lists(st.sampled_from(["a", "a-2", "a-3", "b c", "abcDEF123"])))
def test_each_id_is_of_one_call_whatever_it_was(called: list[str]) -> None:
    ids = CallIds(NINE)
    fitted = [ids.of_call(each) for each in called]
    assert len(set(fitted)) == len(fitted)
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", each) for each in fitted)
    for call_id in set(called):
        expected = [one for one, was in zip(fitted, called, strict=True) if was == call_id]
        assert [ids.of_answer(call_id) for _ in expected] == expected
