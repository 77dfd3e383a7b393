"""What tools gave that the server runs: texts, and pictures that a model judges."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.given import requests_seen, screened
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.settings import CheckSettings
from llama_compat.hosted.vocabulary import HostedCall, WebSource
from llama_compat.types import (
    AudioContent,
    ChatCompletionRequest,
    CompletionMessage,
    DocumentContent,
    TextContent,
    UserMessage,
    content_text,
)
from llama_compat.wire.json_fields import from_raw, to_raw
from tests.unit.llama_compat.guardrails.texts import texts_of

PICTURES = ("data:image/png;base64,AAAA", "data:image/png;base64,BBBB")


class Judge:
    """Finds one picture."""

    def __init__(self) -> None:
        self.shown: list[str | None] = []

    async def __call__(self, check: CheckSettings, said: Said) -> bool:
        assert said.place == "tool_results"
        self.shown.append(said.picture)
        return said.picture == PICTURES[1]


def guard_of(judge: Judge, **check: Any) -> Guard:
    images = {"model": "j", "format": "policy", "policy": "None."}
    settings = {"name": "pictures", "images": images, **check}
    return Guard(Checks([CheckSettings.model_validate(settings)]), judge)


@pytest.mark.parametrize("mode", ["block", "redact", "monitor"])
async def test_pictures_of_tools_are_judged_once(mode: str) -> None:
    judge = Judge()
    guard = guard_of(judge, mode=mode)
    call = HostedCall("1", "mcp", "look", output="See:", images=PICTURES)
    for _ in range(1 if mode == "block" else 2):
        seen = await screened(call, guard)
        if mode == "block":
            assert seen is None
            continue
        assert seen is not None
        hides = mode == "redact"
        assert seen.images == (PICTURES[:1] if hides else PICTURES)
        assert seen.output == ("See:\n<IMAGE_1>" if hides else "See:")
    assert sorted(filter(None, judge.shown)) == list(PICTURES)


async def test_texts_of_tools_are_looked_through_wherever_they_are() -> None:
    check = {"name": "pii", "scan": "tool_results", "patterns": ["emails"], "mode": "redact"}
    guard = Guard(Checks([CheckSettings.model_validate(check)]))
    mail = "alice@example.com"
    source = WebSource("https://a.example", title=mail, text=mail)
    tool = {"name": "f", "description": mail}
    seen = await screened(
        HostedCall("1", "web_search", "s", output=mail, sources=(source,), tools=(tool,)), guard
    )
    assert seen is not None
    assert mail not in repr(seen)
    assert repr(seen).count("<EMAIL_1>") == 4


VALUE = "4111 1111 1111 1111"


def text_parts(*texts: str) -> list[Any]:
    return [{"type": "text", "text": each} for each in texts]


@pytest.mark.parametrize(
    "form",
    [
        lambda parts: {"messages": [{"role": "user", "content": parts}]},
        lambda parts: {"system": parts, "messages": []},
        lambda parts: {"input": [{"role": "user", "content": parts}]},
        lambda parts: {"contents": [{"parts": [{"text": each["text"]} for each in parts]}]},
        lambda parts: {"messages": [{"content": [{"type": "tool_result", "content": parts}]}]},
        lambda parts: {"messages": [{"role": "tool", "content": parts}]},
    ],
    ids=["chat", "system", "responses", "gemini", "tool_result", "tool"],
)
@pytest.mark.parametrize("cuts", [(1,), (9,), (18,), (4, 10), (4, 5, 6, 14)])
def test_a_value_over_several_parts_of_a_message_is_found(form: Any, cuts: Any) -> None:
    """By each API that lets a message have parts, and in what becomes of it in the vocabulary."""
    ends = [0, *cuts, len(VALUE)]
    texts = [VALUE[begin:end] for begin, end in pairwise(ends)]
    texts = ["Pay " + texts[0], *texts[1:-1], texts[-1] + " now"]
    fields = {name: to_raw(each) for name, each in form(text_parts(*texts)).items()}
    checks: dict[str, Any] = {"name": "pii", "scan": "all", "patterns": ["cards"]}
    redacting = Guard(Checks([CheckSettings.model_validate({**checks, "mode": "redact"})]))
    shown = {name: from_raw(each) for name, each in redacting.fields(fields).items()}
    found = [text for _, text in texts_of(shown, "input")]
    assert "".join(each for each in found if each[0] in "P <0123456789").startswith("Pay <CARD_1>")
    assert not any(each.isdigit() for text in found for each in text.replace("CARD_1", ""))
    assert "" not in found  # which Anthropic refuses
    blocking = Guard(Checks([CheckSettings.model_validate({**checks, "mode": "block"})]))
    with pytest.raises(Blocked):
        blocking.fields(fields)
    content = tuple(map(TextContent, texts))
    for message in (UserMessage(content), CompletionMessage(content)):
        request = ChatCompletionRequest("m", (message,))
        (seen,) = requests_seen([request], redacting)
        assert isinstance(seen, ChatCompletionRequest)
        assert content_text(seen.messages[0].content).startswith("Pay <CARD_1>")


@pytest.mark.parametrize(
    "body",
    [
        {"documents": [{"text": VALUE[:9]}, {"text": VALUE[9:]}]},
        {"contents": [{"parts": [{"text": VALUE[:9], "thought": True}, {"text": VALUE[9:]}]}]},
        {"messages": [{"content": VALUE[:9]}, {"content": VALUE[9:]}]},
    ],
)
def test_what_is_not_read_as_one_is_not_put_together(body: Any) -> None:
    check = {"name": "pii", "scan": "all", "patterns": ["cards"], "mode": "block"}
    guard = Guard(Checks([CheckSettings.model_validate(check)]))
    fields = {name: to_raw(each) for name, each in body.items()}
    assert guard.fields(fields) == fields


def test_a_whole_reply_that_is_relayed_has_its_blocks_put_together() -> None:
    check = {"name": "pii", "scan": "output", "patterns": ["cards"], "mode": "redact"}
    guard = Guard(Checks([CheckSettings.model_validate(check)]))
    blocks = text_parts("Pay " + VALUE[:9], VALUE[9:] + " now")
    assert guard.said({"content": blocks}) == {"content": text_parts("Pay <CARD_1>", " now")}


def test_the_name_of_a_document_is_looked_at() -> None:
    check = {"name": "pii", "patterns": ["emails"], "mode": "redact"}
    guard = Guard(Checks([CheckSettings.model_validate(check)]))
    paper = DocumentContent("data:application/pdf;base64,JVBERi0xLjc=", "alice@example.com.pdf")
    audio = AudioContent("audio/wav", "UklGRg==")
    asked = ChatCompletionRequest("m", (UserMessage((TextContent("Read."), paper, audio)),))
    ((_, seen, heard),) = (each.content for each in requests_seen([asked], guard)[0].messages)
    assert isinstance(seen, DocumentContent)
    assert (seen.url, heard) == (paper.url, audio)
    assert "alice" not in str(seen.name)
