"""Pictures of replies: found in every API's JSON, judged before they are shown, streamed or not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.fan_out import Events
from llama_compat.guardrails.asked.drawn import seen
from llama_compat.guardrails.asked.said import Said
from llama_compat.guardrails.checks import Checks
from llama_compat.guardrails.guard import Blocked, Guard
from llama_compat.guardrails.relayed.pictures import seen_along
from llama_compat.guardrails.replies import guarded
from llama_compat.guardrails.settings import CheckSettings
from llama_compat.types import (
    ImageContent,
    ImageDelta,
    StopReason,
    StreamComplete,
    StreamEvent,
    StreamProgress,
    StreamStart,
    TextDelta,
)
from tests.integration.matrix.said import PIXEL

URL = f"data:image/png;base64,{PIXEL}"
CHAT = {"type": "image_url", "image_url": {"url": URL}}
SOURCE = {"type": "base64", "media_type": "image/png", "data": PIXEL}
WIRES: dict[str, Any] = {
    "chat": {"choices": [{"message": {"content": "See.", "images": [CHAT]}}]},
    "chat-no-text": {"choices": [{"delta": {"content": None, "images": [CHAT]}}]},
    "chat-parts": {"choices": [{"message": {"content": [CHAT]}}]},
    "responses": {"output": [{"type": "image_generation_call", "id": "1", "result": PIXEL}]},
    "responses-partial": {
        "type": "response.image_generation_call.partial_image",
        "partial_image_b64": PIXEL,
    },
    "responses-code": {"outputs": [{"type": "image", "url": URL}]},
    "gemini": {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {
                            "inlineData": {"mimeType": "image/png", "data": PIXEL},
                            "thoughtSignature": "x",
                        }
                    ]
                }
            }
        ]
    },
    "gemini-snake": {"parts": [{"inline_data": {"mime_type": "image/png", "data": PIXEL}}]},
    "interactions": {"delta": {"type": "image", "data": PIXEL, "mime_type": "image/png"}},
    "messages": {"content": [{"type": "image", "source": SOURCE}]},
    "ollama": {"done": True, "image": PIXEL},
    "unknown": {"whatever": {"is": {"drawn": PIXEL}}},
}


class Judge:
    """Finds what it is told to, and keeps what it was shown."""

    def __init__(self, finds: bool = True) -> None:
        self.finds = finds
        self.shown: list[str | None] = []

    async def __call__(self, check: CheckSettings, said: Said) -> bool:
        assert said.place == "output"
        self.shown.append(said.picture)
        return self.finds


def guard_of(judge: Judge, *, max_count: int = 32, **check: Any) -> Guard:
    images = {"model": "j", "format": "policy", "policy": "None.", "max_count": max_count}
    settings = {"name": "pictures", "images": images, "scan": "output", **check}

    async def fetch(check: CheckSettings, url: str) -> str:
        return URL

    return Guard(Checks([CheckSettings.model_validate(settings)]), judge, fetch)


def streamed(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


async def along(events: bytes, guard: Guard) -> bytes:
    return b"".join([each async for each in seen_along(events, guard)])


@pytest.mark.parametrize("wire", WIRES)
async def test_every_apis_picture_is_judged(wire: str) -> None:
    raw = json.dumps(WIRES[wire]).encode()
    event = streamed(WIRES[wire])
    assert PIXEL in raw.decode()
    for mode in ("block", "redact", "monitor"):
        judge = Judge()
        if mode == "block":
            with pytest.raises(Blocked):
                await seen(raw, guard_of(judge))
            with pytest.raises(Blocked):
                await along(event, guard_of(Judge()))
        else:
            shown = await seen(raw, guard_of(judge, mode=mode))
            passed = await along(event, guard_of(Judge(), mode=mode))
            assert (PIXEL in shown.decode(), PIXEL in passed.decode()) == (mode == "monitor",) * 2
            assert passed == (event if mode == "monitor" else b"data: %b\n\n" % shown)
        assert judge.shown == [URL]
    assert await seen(raw, guard_of(Judge(finds=False))) is raw


@pytest.mark.parametrize(
    ("wire", "words"),
    [
        ("chat", {"choices": [{"message": {"content": "See.<IMAGE_1>", "images": []}}]}),
        ("chat-no-text", {"choices": [{"delta": {"content": "<IMAGE_1>", "images": []}}]}),
        ("gemini", {"candidates": [{"content": {"parts": [{"text": "<IMAGE_1>"}]}}]}),
        ("interactions", {"delta": {"type": "text", "text": "<IMAGE_1>"}}),
    ],
)
async def test_a_hidden_picture_is_a_word(wire: str, words: Any) -> None:
    raw = json.dumps(WIRES[wire]).encode()
    assert json.loads(await seen(raw, guard_of(Judge(), mode="redact"))) == words


async def test_images_are_left_out_or_withheld() -> None:
    judged = {"data": [{"b64_json": PIXEL}, {"url": "https://a.example/b.png"}]}
    judge = Judge()
    with pytest.raises(Blocked):
        await seen(json.dumps(judged).encode(), guard_of(judge, mode="redact"), of_images=True)
    assert judge.shown == [URL]  # it is the same picture at both places
    other = {"data": [*judged["data"], {"b64_json": "QUJD"}]}

    class One(Judge):
        async def __call__(self, check: CheckSettings, said: Said) -> bool:
            return said.picture == URL

    shown = await seen(json.dumps(other).encode(), guard_of(One(), mode="redact"), of_images=True)
    assert json.loads(shown) == {"data": [{"b64_json": "QUJD"}]}


async def test_what_only_its_vendor_has_can_not_be_told() -> None:
    raw = b'{"parts": [{"fileData": {"mimeType": "image/png", "fileUri": "gs://a/b.png"}}]}'
    judge = Judge(finds=False)
    with pytest.raises(Blocked):
        await seen(raw, guard_of(judge))
    assert await seen(raw, guard_of(judge, on_error="allow")) is raw
    assert judge.shown == []


async def test_a_stream_of_more_than_are_judged_ends() -> None:
    guard = guard_of(Judge(finds=False), max_count=2)
    pictures = [PIXEL[:-6] + f"{number}" * 6 for number in range(3)]
    events = [streamed({"type": "image", "data": each}) for each in pictures]
    for each in events[:2] * 2:
        assert await along(each, guard) == each
    with pytest.raises(Blocked):
        await along(events[2], guard)


async def test_what_came_before_a_picture_goes_on() -> None:
    text, lines = streamed({"text": "Hi"}), b'data: {"type": "image",\ndata: "data": "%b"}\n\n'
    passed = seen_along(text + lines % PIXEL.encode(), guard_of(Judge()))
    assert await anext(passed) == text
    with pytest.raises(Blocked):
        await anext(passed)
    events = text * 3
    assert await along(events, guard_of(Judge())) == events


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("mode", ["block", "redact", "monitor"])
async def test_what_is_translated_is_judged(mode: str, streams: bool) -> None:
    picture = StreamProgress(ImageDelta(ImageContent(URL)), part=1)

    async def events() -> Events:
        yield StreamStart(1)
        yield StreamProgress(TextDelta("See:"))
        yield picture
        yield StreamComplete(StopReason.end_of_turn)

    judge = Judge()
    shown: list[StreamEvent] = []
    async for each in guarded(events(), guard_of(judge, mode=mode), streams=streams):
        shown.append(each)
    assert judge.shown == [URL]
    assert (picture in shown) == (mode == "monitor")
    assert (StreamProgress(TextDelta("<IMAGE_1>"), part=1) in shown) == (mode == "redact")
    last = shown[-1]
    assert isinstance(last, StreamComplete)
    assert (last.stop_reason is StopReason.content_filter) == (mode == "block")


def test_pictures_are_looked_for_where_there_may_be_some() -> None:
    images = {"model": "j", "format": "llama_guard"}
    for place in ("input", "output", "tool_results"):
        CheckSettings.model_validate({"name": "p", "images": images, "scan": place})
    with pytest.raises(ValueError, match="tools are given no pictures"):
        CheckSettings.model_validate({"name": "p", "images": images, "scan": "tool_arguments"})
