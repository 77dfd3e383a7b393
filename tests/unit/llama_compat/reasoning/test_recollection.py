"""Where a conversation has come to."""

from __future__ import annotations

import pytest

from llama_compat.reasoning.memory import ReasoningMemory
from llama_compat.reasoning.recollection import ReasoningRule, Recollection, TurnPlace
from llama_compat.types import (
    ChatCompletionRequest,
    CompletionMessage,
    ReasoningContent,
    ToolCall,
    ToolResponseMessage,
    UserMessage,
)


def test_a_place_is_short_however_much_was_asked() -> None:
    """Every call of a conversation is looked for at one: what was asked is read once for all."""
    places = [TurnPlace(), TurnPlace()]
    for place, text in zip(places, ("x" * 1_000_000, "\ud800" * 1_000_000), strict=True):
        place.user_says(text)
        assert len(str(place)) < 100
    assert str(places[0]) != str(places[1])
    before = str(places[0])
    places[0].model_calls()
    assert str(places[0]) != before


def call(signature: str | None) -> ToolCall:
    return ToolCall("call_1", "get_weather", {"city": "Bern"}, '{"city": "Bern"}', signature)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize(("given", "kept"), [(None, None), ("hers", None), ("his", "his")])
def test_the_same_call_in_another_conversation_takes_no_seal(
    wanted: bool, given: str | None, kept: str | None
) -> None:
    """Where another process answered, or ids are not unique, all that is known of a call may be
    another conversation's, which asked the same of another model."""
    memory = ReasoningMemory(10, 1 << 20, 60)
    hers = Recollection(memory, "me", ReasoningRule("hers", wanted=wanted))
    asked = UserMessage("Weather?")
    thought = ReasoningContent("Hm.")
    hers.keep(TurnPlace.after([asked]), CompletionMessage((thought, call("hers"))))
    his = hers.at(ReasoningRule("his", wanted=True), bound=False)
    said = CompletionMessage((thought, call(given)))
    request = ChatCompletionRequest("m", (asked, said, ToolResponseMessage("call_1", "sunny")))
    (restored,) = his.restored_all([request])
    assert isinstance(restored, ChatCompletionRequest)
    told = restored.messages[1]
    assert isinstance(told, CompletionMessage)
    assert list(told.tool_calls) == [call(kept)]
    assert (thought in told.parts) == (kept is not None)
