"""What checks are asked about a stream, which is the same however the stream is cut."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llama_compat.events import Collector
from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.replies import guarded
from llama_compat.guardrails.settings import CheckSettings
from llama_compat.types import StopReason, StreamProgress, ToolCallDelta
from tests.examples import examples
from tests.unit.llama_compat.guardrails.test_replies import reply
from tests.unit.llama_compat.guardrails.test_scanner import CUTS, cut

TEXTS = st.text("ab .\n", max_size=450)


class Judge:
    """Says what it was asked, and finds what has `never` in it."""

    def __init__(self, never: str = "\0") -> None:
        self.never = never
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def __call__(self, check: CheckSettings, said: Said) -> bool:
        self.asked.append((said.place, said.texts))
        return self.never in said.text


def guard_of(judge: Judge, **check: Any) -> Guard:
    asks = {"name": "judge", "window": 100, "judge": {"model": "j", "format": "llama_guard"}}
    return Guard(Checks([CheckSettings.model_validate({**asks, **check})]), judge)


async def read(guard: Guard, *pieces: list[str], streams: bool = True) -> Collector:
    collector = Collector()
    async for event in guarded(reply(*pieces), guard, streams=streams):
        collector.add(event)
    return collector


@settings(max_examples=examples(100), deadline=None)
@given(TEXTS, TEXTS, TEXTS, CUTS)
async def test_no_cut_changes_what_is_asked(
    thoughts: str, text: str, argument: str, cuts: list[int]
) -> None:
    arguments = json.dumps({"a": argument})
    once, again = Judge(), Judge()
    whole = await read(guard_of(once), [thoughts], [text], [arguments])
    pieces = (cut(each, cuts) for each in (thoughts, text, arguments))
    in_pieces = await read(guard_of(again), *pieces)
    assert sorted(once.asked) == sorted(again.asked)
    one, other = (each.chat_completion().completion_message for each in (whole, in_pieces))
    assert (one.content, one.reasoning or "") == (other.content, other.reasoning or "")
    assert one.tool_calls == other.tool_calls
    for place, said in (("output", thoughts + text), ("tool_arguments", arguments)):
        asked = [texts for at, (texts,) in again.asked if at == place]
        assert "".join(asked) == said
        assert all(len(each) == 100 for each in asked[:-1])
        assert all(asked)


async def test_nothing_of_a_call_is_shown_that_was_not_asked_about() -> None:
    judge = Judge(never="END")
    arguments = json.dumps({"a": "x" * 450 + "END"})
    shown = ""
    async for event in guarded(
        reply([], [], cut(arguments, list(range(0, 500, 7)))), guard_of(judge), streams=True
    ):
        if isinstance(event, StreamProgress) and isinstance(event.delta, ToolCallDelta):
            assert event.delta.tool_call is None
            shown += event.delta.arguments
            told = sum(len(text) for at, (text,) in judge.asked if at == "tool_arguments")
            assert len(shown) <= told
    assert 300 < len(shown) <= 400
    assert arguments.startswith(shown)


async def test_what_is_read_whole_is_asked_about_whole() -> None:
    judge = Judge()
    await read(guard_of(judge), ["Hm."], ["a" * 500], ['{"b": 1}'], streams=False)
    assert judge.asked == [("tool_arguments", ('{"b": 1}',)), ("output", ("Hm." + "a" * 500,))]


async def test_a_reply_that_is_against_the_rules_ends_there() -> None:
    for streams, text in ((True, "a" * 200), (False, "")):
        judge = Judge(never="!")
        collector = await read(
            guard_of(judge), [], cut("a" * 250 + "!" + "b" * 200, [90, 210]), [], streams=streams
        )
        message = collector.chat_completion().completion_message
        assert message.stop_reason is StopReason.content_filter
        assert text.startswith(message.content or "")
        assert len(message.content or "") == (90 if streams else 0)


async def test_what_is_not_asked_about_waits_for_nobody() -> None:
    judge = Judge()
    await read(guard_of(judge, scan="output"), [], [], [json.dumps({"a": "x" * 300})])
    assert judge.asked == []
