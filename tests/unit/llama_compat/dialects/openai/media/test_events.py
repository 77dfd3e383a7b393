"""A whole reply with images as the events of a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llama_compat.dialects.openai.media.events import image_events
from llama_compat.wire import sse

USAGE = {"input_tokens": 3, "output_tokens": 200, "total_tokens": 203}


def events_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    decoder = sse.EventDecoder()
    whole = b"".join(image_events("images", reply))
    return [json.loads(event.data) for event in decoder.feed(whole) if event.data]


@pytest.mark.parametrize("told", [{}, {"usage": USAGE}])
@pytest.mark.parametrize("images", [1, 3])
def test_usage_is_told_once_with_the_last_image(images: int, told: dict[str, Any]) -> None:
    data = [{"b64_json": str(number)} for number in range(images)]
    events = events_of({"created": 1, "size": "1x1", "data": data, **told})
    assert [event["b64_json"] for event in events] == [str(number) for number in range(images)]
    assert [event.get("usage") for event in events] == [None] * (images - 1) + [told.get("usage")]
    assert {(event["type"], event["created_at"], event["size"]) for event in events} == {
        ("image_generation.completed", 1, "1x1")
    }


@pytest.mark.parametrize("data", [None, {}, ["x"]])
def test_what_has_no_images_is_none(data: Any) -> None:
    with pytest.raises(ValueError, match="no array of images"):
        events_of({"data": data})
