"""What is kept of a turn, and where it goes in the same turn again."""

from __future__ import annotations

from llama_compat.reasoning.turns import turn_of, without_reasoning
from llama_compat.types import CompletionMessage, ReasoningContent, TextContent, ToolCall

FIRST = ReasoningContent("first", "seal1", "anthropic")
SECOND = ReasoningContent("second", "seal2", "anthropic")
TEXT = TextContent("Let me see.")


def call(number: int, signature: str | None = None) -> ToolCall:
    return ToolCall(f"call_{number}", "f", {}, "{}", signature)


SAID = CompletionMessage((FIRST, TEXT, SECOND, call(1, "s1"), call(2)))


def test_thoughts_go_back_to_where_they_were() -> None:
    turn = turn_of(SAID, "anthropic", wanted=True)
    assert turn is not None
    assert turn.put_into((TEXT, call(1), call(2))) == SAID.parts
    # An API that has texts and calls apart may have lost the text.
    assert turn.put_into((call(1), call(2))) == (FIRST, SECOND, call(1, "s1"), call(2))
    # What the client has of it already is not there twice.
    assert turn.put_into(SAID.parts) == SAID.parts


def test_thoughts_between_calls_stay_there() -> None:
    said = CompletionMessage((FIRST, call(1), SECOND, call(2)))
    turn = turn_of(said, "anthropic", wanted=True)
    assert turn is not None
    assert turn.put_into((call(1), call(2))) == said.parts


def test_seals_are_found_by_place_where_there_are_no_ids() -> None:
    turn = turn_of(SAID, "gemini", wanted=True)
    assert turn is not None
    assert [turn.signature("", place) for place in range(3)] == ["s1", None, None]
    assert turn.signature("call_1", 7) == "s1"


def test_what_is_not_wanted_back_is_known_by_its_family_alone() -> None:
    turn = turn_of(SAID, "openai", wanted=False)
    assert turn is not None
    assert (turn.family, turn.thoughts, turn.text) == ("openai", (), None)


def test_nothing_is_kept_of_a_turn_without_calls_or_thoughts() -> None:
    assert turn_of(CompletionMessage((FIRST, TEXT)), "anthropic", wanted=True) is None
    assert turn_of(CompletionMessage((TEXT, call(1))), "anthropic", wanted=True) is None


def test_another_familys_gets_nothing_of_it() -> None:
    assert without_reasoning(SAID).parts == (TEXT, call(1), call(2))
