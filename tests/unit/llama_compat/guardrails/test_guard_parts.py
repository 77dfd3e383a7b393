"""Values that are cut over parts of a whole reply: blocks, items, steps."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.settings import CheckSettings
from llama_compat.types import StreamProgress, TextDelta
from llama_compat.wire.json_fields import to_raw
from tests.unit.llama_compat.guardrails.test_replies import guard_of, read
from tests.unit.llama_compat.guardrails.test_replies import said as said_events

FIRST, SECOND = "Pay 4111 1111", " 1111 1111 now."


def listed(kind: str, member: str, **more: Any) -> list[dict[str, Any]]:
    return [{"type": kind, member: each, **more} for each in (FIRST, SECOND)]


def held(kind: str, member: str, part: str) -> list[dict[str, Any]]:
    return [{"type": kind, member: [{"type": part, "text": each}]} for each in (FIRST, SECOND)]


REPLIES: dict[str, Any] = {
    "blocks": {"content": listed("text", "text")},
    "thinking": {"content": listed("thinking", "thinking", signature="theirs")},
    "refusals": {"choices": [{"message": {"content": listed("refusal", "refusal")}}]},
    "a part of an item": {"output": [{"type": "message", "content": listed("x", "text")}]},
    "items": {"output": held("message", "content", "output_text")},
    "reasoning": {"output": held("reasoning", "summary", "summary_text")},
    "steps": {"steps": held("model_output", "content", "text")},
    "thoughts": {"candidates": [{"content": {"parts": listed("x", "text", thought=True)}}]},
}


@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_what_is_cut_over_parts_of_a_whole_reply_is_found_once(reply: dict[str, Any]) -> None:
    for mode in ("redact", "monitor"):
        guard = guard_of(mode=mode)
        shown = guard.said(reply)
        assert guard.verdicts == {("pii", mode): 1}
        assert (shown is reply) == (mode == "monitor")
        if mode == "redact":
            said = json.dumps(shown)
            assert "Pay <CARD_1>" in said
            assert " now." in said
            assert "1111" not in said
            assert "theirs" not in said
    with pytest.raises(Blocked):
        guard_of(mode="block").said(reply)


@pytest.mark.parametrize("name", ["data", "results"])
def test_nor_are_lists_of_what_belongs_not_together(name: str) -> None:
    value = {name: listed("x", "text")}
    assert guard_of(mode="redact").said(value) is value


def test_what_a_tool_gave_is_read_for_itself() -> None:
    given, *_ = held("function_result", "content", "text")
    said = {"type": "model_output", "content": [{"type": "text", "text": SECOND}]}
    value: dict[str, Any] = {"steps": [given, said]}
    assert guard_of(mode="redact").said(value) is value
    texts = [{"type": "text", "text": each} for each in (FIRST, SECOND)]
    value = {"steps": [{"type": "function_result", "content": texts}]}
    assert guard_of(mode="redact", scan="output").said(value) is value
    guard = guard_of(mode="redact", scan="tool_results")
    assert "1111" not in json.dumps(guard.said(value))
    assert guard.verdicts == {("pii", "redact"): 1}


def test_words_and_thoughts_are_not_read_as_one() -> None:
    thought, word = {"type": "thinking", "thinking": FIRST}, {"type": "text", "text": SECOND}
    value = {"content": [thought, word]}
    assert guard_of(mode="redact").said(value) is value


def test_a_word_that_is_cut_over_parts_is_put_back() -> None:
    guard = guard_of(scan="input", mode="redact", restore=True)
    mail = "alice@example.com"
    word = guard.text("input", mail)
    for at in range(1, len(word)):
        texts = [f"To {word[:at]}", f"{word[at:]}, not <EMA", "IL_7>."]
        value = {"content": [{"type": "text", "text": each} for each in texts]}
        said = "".join(each["text"] for each in guard.said(value)["content"])
        assert said == f"To {mail}, not <EMAIL_7>."
    # Who asks has the word stay one.
    asked = [{"type": "text", "text": each} for each in (word[:3], word[3:])]
    message = {"role": "user", "content": asked}
    fields = {"messages": to_raw([message])}
    assert guard.fields(fields) == fields


async def test_who_gives_up_waits_for_no_check() -> None:
    begun = asyncio.Event()

    async def judge(check: CheckSettings, said: Said) -> bool:
        begun.set()
        await asyncio.Event().wait()
        return False

    rail = {"name": "j", "judge": {"model": "j", "format": "llama_guard"}, "on_error": "allow"}
    guard = Guard(Checks([CheckSettings.model_validate(rail)]), judge)
    events = said_events(StreamProgress(TextDelta("Hi.")))
    task = asyncio.create_task(read(events, guard))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert guard.verdicts == {}
    assert await anext(events, None) is None  # what it was said by is closed
