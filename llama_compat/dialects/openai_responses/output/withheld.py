"""The end of a response that was relayed and of which no more may be shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import SaidText
from llama_compat.dialects.openai_responses.output.events import EventWriter

_WHOLE = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "text",
    "response.reasoning_summary_text.delta": "text",
    "response.function_call_arguments.delta": "arguments",
    "response.custom_tool_call_input.delta": "input",
}
"""What all of a text is called when it is whole, by the event that has a piece of it."""

_PARTS = {"response.output_text.delta": "output_text", "response.refusal.delta": "refusal"}
"""Texts that are a part of a message."""

_PLACES = ("item_id", "output_index", "content_index", "summary_index")


def withheld(
    told: Sequence[Mapping[str, Any]], texts: Sequence[SaidText], fields: Mapping[str, Raw]
) -> bytes:
    """Ends the items that are open, and the response as incomplete."""
    response: Mapping[str, Any] = {}
    opened: dict[int, Mapping[str, Any]] = {}
    done: dict[int, Mapping[str, Any]] = {}
    for event in told:
        match event:
            case {"type": "response.created", "response": dict(known)}:
                response = known
            case {"type": str(kind), "output_index": int(index), "item": dict(item)}:
                if kind == "response.output_item.added":
                    opened[index] = item
                elif kind == "response.output_item.done":
                    opened.pop(index, None)
                    done[index] = item
    ended = {(each.get("type"), *map(each.get, _PLACES)) for each in told}
    writer = EventWriter(_next_number(told, texts))
    said: list[bytes] = []
    for index, begun in opened.items():
        whole = dict(begun)
        if "status" in whole:
            whole["status"] = "incomplete"
        for text in texts:
            if text.event.get("output_index") == index:
                said.append(_end_text(writer, text, whole, ended))
        members = {"output_index": index, "item": whole}
        said.append(writer.event("response.output_item.done", members))
        done[index] = whole
    last = {
        **response,
        "status": "incomplete",
        "incomplete_details": {"reason": "content_filter"},
        "output": [item for _, item in sorted(done.items())],
    }
    said.append(writer.event("response.incomplete", {"response": last}))
    return b"".join(said)


def _end_text(
    writer: EventWriter, text: SaidText, item: dict[str, Any], ended: Collection[tuple[Any, ...]]
) -> bytes:
    """The events with which a text ends that is none of those that have, and that becomes a part of
    `item`."""
    kind = text.event.get("type")
    member = _WHOLE.get(kind) if isinstance(kind, str) else None
    if member is None or not isinstance(kind, str):
        return b""
    at = {name: text.event[name] for name in _PLACES if name in text.event}
    end = kind.removesuffix("delta") + "done"
    has_ended = (end, *map(at.get, _PLACES)) in ended
    said = b"" if has_ended else writer.event(end, {**at, member: text.text})
    if kind not in _PARTS:
        if member in item:
            item[member] = text.text
        return said
    part: dict[str, Any] = {"type": _PARTS[kind], member: text.text}
    if member == "text":
        part |= {"annotations": [], "logprobs": []}
    item["content"] = [*(item.get("content") or ()), part]
    if has_ended:
        return b""
    return said + writer.event("response.content_part.done", {**at, "part": part})


def _next_number(told: Sequence[Mapping[str, Any]], texts: Sequence[SaidText]) -> int:
    """A number that no event has had: nobody counted those that had a piece of a text each."""
    events = (*told, *(each.event for each in texts))
    numbers = [each.get("sequence_number") for each in events]
    known = [number for number in numbers if isinstance(number, int)]
    return max(known, default=-1) + sum(len(each.text) for each in texts) + 1
