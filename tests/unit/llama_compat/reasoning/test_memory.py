"""What is kept: for whom, how much, and for how long."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from llama_compat.reasoning.memory import TURN_BYTES, ReasoningMemory
from llama_compat.reasoning.turns import MAX_PARTS, KeptTurn, turn_of
from llama_compat.types import CompletionMessage, ReasoningContent, ToolCall

PLACE = "1 0 Weather?"


def said(call_id: str, thought: str = "Hm.", city: str = "Bern") -> CompletionMessage:
    arguments = {"city": city}
    call = ToolCall(call_id, "get_weather", arguments, f'{{"city": "{city}"}}')
    return CompletionMessage((ReasoningContent(thought), call))


def kept(message: CompletionMessage) -> KeptTurn:
    turn = turn_of(message, "deepseek", wanted=True)
    assert turn is not None
    return turn


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def memory_of(
    clock: Clock, *, max_turns: int = 10, max_bytes: int = 1 << 20, seconds: float = 60
) -> ReasoningMemory:
    return ReasoningMemory(max_turns, max_bytes, seconds, clock)


def test_a_turn_is_found_by_the_id_of_a_call(clock: Clock) -> None:
    memory, message = memory_of(clock), said("call_1")
    memory.keep("me", PLACE, message, kept(message))
    found = memory.find("me", "another place", said("call_1").tool_calls)
    assert found is not None
    assert found.text == "Hm."


def test_a_call_without_an_id_is_found_by_what_it_calls_and_where(clock: Clock) -> None:
    memory, message = memory_of(clock), said("call_1")
    memory.keep("me", PLACE, message, kept(message))
    assert memory.find("me", PLACE, said("").tool_calls) is not None
    assert memory.find("me", "2 0 Weather?", said("").tool_calls) is None
    assert memory.find("me", PLACE, said("", city="Basel").tool_calls) is None


def test_arguments_are_the_same_in_whatever_order(clock: Clock) -> None:
    memory = memory_of(clock)
    one = ToolCall("a", "f", {"x": 1, "y": {"b": 2, "c": 3}}, '{"x":1,"y":{"b":2,"c":3}}')
    other = ToolCall("", "f", {"y": {"c": 3, "b": 2}, "x": 1}, '{"y":{"c":3,"b":2},"x":1}')
    message = CompletionMessage((ReasoningContent("Hm."), one))
    memory.keep("me", PLACE, message, kept(message))
    assert memory.find("me", PLACE, [other]) is not None


def test_an_id_that_is_used_again_means_the_call_that_is_the_same(clock: Clock) -> None:
    # Moonshot's ids count the calls of a conversation: `functions.get_weather:0`.
    memory = memory_of(clock)
    for city, place in (("Bern", "1 0 Bern?"), ("Basel", "1 0 Basel?")):
        message = said("get_weather:0", f"About {city}.", city)
        memory.keep("me", place, message, kept(message))
    found = memory.find("me", "1 0 Bern?", said("get_weather:0").tool_calls)
    assert found is not None
    assert found.text == "About Bern."


def test_where_nothing_was_thought_nothing_is_found_of_an_older_call(clock: Clock) -> None:
    memory = memory_of(clock)
    for call_id in ("call_1", "call_2"):
        memory.keep("me", PLACE, said(call_id), kept(said(call_id, f"Of {call_id}.")))
    memory.keep("me", PLACE, said("call_1"), None)
    assert memory.find("me", PLACE, said("call_1").tool_calls) is None
    assert len(memory) == 1
    found = memory.find("me", "another place", said("call_2").tool_calls)
    assert found is not None
    assert found.text == "Of call_2."


def test_nobody_finds_what_is_anothers(clock: Clock) -> None:
    memory, message = memory_of(clock), said("call_1")
    memory.keep("me", PLACE, message, kept(message))
    assert memory.find("you", PLACE, message.tool_calls) is None
    other = said("call_1", "Something else.")
    memory.keep("you", PLACE, other, kept(other))
    mine, yours = (memory.find(who, PLACE, message.tool_calls) for who in ("me", "you"))
    assert mine is not None
    assert yours is not None
    assert (mine.text, yours.text) == ("Hm.", "Something else.")


def test_what_was_not_needed_for_longest_makes_room(clock: Clock) -> None:
    memory = memory_of(clock, max_turns=2)
    messages = [said(f"call_{number}", city=str(number)) for number in range(3)]
    for message in messages[:2]:
        memory.keep("me", PLACE, message, kept(message))
    assert memory.find("me", PLACE, messages[0].tool_calls) is not None
    memory.keep("me", PLACE, messages[2], kept(messages[2]))
    found = [memory.find("me", PLACE, message.tool_calls) for message in messages]
    assert [each is not None for each in found] == [True, False, True]
    assert len(memory) == 2


def test_bytes_are_bounded(clock: Clock) -> None:
    limit = 10 * TURN_BYTES
    memory = memory_of(clock, max_turns=1000, max_bytes=limit)
    for number in range(100):
        message = said(f"call_{number}", "x" * TURN_BYTES, str(number))
        memory.keep("me", PLACE, message, kept(message))
        assert 0 < memory.size <= limit
    huge = said("huge", "x" * limit)
    memory.keep("me", PLACE, huge, kept(huge))
    assert memory.find("me", "elsewhere", huge.tool_calls) is None
    assert len(memory)


def test_time_is_bounded(clock: Clock) -> None:
    memory, message = memory_of(clock, seconds=60), said("call_1")
    memory.keep("me", PLACE, message, kept(message))
    for _ in range(3):
        clock.now += 50
        assert memory.find("me", PLACE, message.tool_calls) is not None  # needed: kept for longer
    clock.now += 60
    assert memory.find("me", PLACE, message.tool_calls) is None
    assert (len(memory), memory.size) == (0, 0)


def test_what_is_forgotten_leaves_nothing_behind(clock: Clock) -> None:
    memory = memory_of(clock, max_turns=1)
    for _ in range(3):  # the same keys, again and again
        message = said("call_1")
        memory.keep("me", PLACE, message, kept(message))
    clock.now += 1000
    memory.find("me", PLACE, said("call_2").tool_calls)
    assert (len(memory), memory.size, len(memory._places)) == (0, 0, 0)


THOUGHT = ReasoningContent("Hm.")


def call(call_id: str) -> ToolCall:
    return ToolCall(call_id, "f", {}, "{}")


@pytest.mark.parametrize(
    "parts",
    [
        lambda: [THOUGHT, *(call(f"call_{number}") for number in range(1000))],
        lambda: [*(ReasoningContent(str(number)) for number in range(1000)), call("call_1")],
        lambda: [ReasoningContent("\U0001f600" * 100_000), call("call_1")],
        lambda: [THOUGHT, call("x" * 100_000)],
    ],
    ids=["calls", "thoughts", "wide characters", "an id"],
)
def test_what_is_counted_is_what_is_taken(clock: Clock, parts: Callable[[], list[Any]]) -> None:
    memory = memory_of(clock)
    tracemalloc.start()
    try:
        message = CompletionMessage(tuple(parts()))
        memory.keep("me", PLACE, message, kept(message))
        del message
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert memory.size >= taken
    assert memory.size < 8 * taken


def test_a_turn_of_thousands_of_calls_is_not_kept() -> None:
    message = CompletionMessage((THOUGHT, *(call(str(number)) for number in range(MAX_PARTS))))
    assert turn_of(message, "deepseek", wanted=True) is None
