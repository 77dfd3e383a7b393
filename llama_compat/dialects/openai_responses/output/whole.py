"""A whole response as the events of a stream that would have led to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from llama_compat.dialects.openai_responses.output.events import EventWriter
from llama_compat.tools.calls import arguments_text

_LAST = {"completed": "completed", "failed": "failed", "incomplete": "incomplete"}


class _Part(Struct):
    type: str | None = None
    text: str | None = None
    logprobs: list[Any] | None = None


class _Item(Struct):
    type: str | None = None


class _Response(Struct):
    """What types its members have, as far as they are read here."""

    status: str | None = None
    output: list[_Item] | None = None


def whole_as_events(response: Mapping[str, Any]) -> bytes:
    """The events of `response`, each item in as few as clients can do with.

    Raises:
        ValueError: it is no response; the message says where.
    """
    msgspec.convert(response, _Response)
    writer = EventWriter()
    begun = {
        **response,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
    }
    events = [
        writer.event("response.created", {"response": begun}),
        writer.event("response.in_progress", {"response": begun}),
    ]
    for index, item in enumerate(response.get("output") or ()):
        events += _item_events(writer, index, item)
    last = _LAST.get(response.get("status") or "", "completed")
    events.append(writer.event(f"response.{last}", {"response": response}))
    return b"".join(events)


def _item_events(writer: EventWriter, index: int, item: Mapping[str, Any]) -> Iterator[bytes]:
    at = {"item_id": item.get("id"), "output_index": index}
    empty = {**item, **_EMPTY.get(item.get("type") or "", {})}
    yield writer.event("response.output_item.added", {"output_index": index, "item": empty})
    if item.get("type") == "message":
        msgspec.convert(item.get("content"), list[_Part] | None)
        for place, part in enumerate(item.get("content") or ()):
            yield from _part_events(writer, {**at, "content_index": place}, part)
    elif item.get("type") == "function_call":
        arguments = arguments_text(item.get("arguments"))
        name = "response.function_call_arguments"
        yield writer.event(f"{name}.delta", {**at, "delta": arguments})
        yield writer.event(f"{name}.done", {**at, "name": item.get("name"), "arguments": arguments})
    yield writer.event("response.output_item.done", {"output_index": index, "item": item})


_EMPTY: dict[str, dict[str, Any]] = {
    "message": {"status": "in_progress", "content": []},
    "function_call": {"status": "in_progress", "arguments": ""},
}


def _part_events(
    writer: EventWriter, at: Mapping[str, Any], part: Mapping[str, Any]
) -> Iterator[bytes]:
    kind = part.get("type")
    if kind == "output_text":
        text, logprobs = part.get("text") or "", part.get("logprobs") or []
        yield writer.event("response.content_part.added", {**at, "part": {**part, "text": ""}})
        said = {**at, "logprobs": logprobs}
        yield writer.event("response.output_text.delta", {**said, "delta": text})
        yield writer.event("response.output_text.done", {**said, "text": text})
    else:
        yield writer.event("response.content_part.added", {**at, "part": part})
    yield writer.event("response.content_part.done", {**at, "part": part})
