"""What models refused to say, for vendors whose messages have no place for it.

`refusal` is OpenAI's own member, and part of a content, and clients send it back as they got it,
null where nothing was refused. Others answer 400 or 422 to a member that they don't know, or pass
it over, so that their model has said nothing.
"""

from __future__ import annotations

from msgspec import Raw

from llama_compat.wire.json_fields import JSONFields, from_raw, parse_object, to_raw, with_items

_MARK = b'"refusal"'


def with_refusals_said(messages: Raw) -> Raw:
    """The `messages` of a request in which what was refused is text like any other. All else keeps
    its bytes, and so do messages that are none; the very same, if nothing was refused."""
    if _MARK not in bytes(messages):
        return messages
    return with_items(
        messages, lambda items: [_said(item) if _MARK in bytes(item) else item for item in items]
    )


def _said(item: Raw) -> Raw:
    message = parse_object(item)
    parts = _with_texts(message)
    if "refusal" not in message:
        return to_raw(message) if parts else item
    refused = from_raw(message.pop("refusal"))
    if isinstance(refused, str) and refused:
        content = from_raw(message["content"]) if "content" in message else None
        if isinstance(content, list):
            content = [*content, {"type": "text", "text": refused}]
        else:
            content = f"{content}\n\n{refused}" if content else refused
        message["content"] = to_raw(content)
    return to_raw(message)


def _with_texts(message: JSONFields) -> bool:
    """Make texts of the parts of a content that are refusals; whether there are any."""
    content = from_raw(message["content"]) if "content" in message else None
    if not isinstance(content, list):
        return False
    told = [_text(part) for part in content]
    if told == content:
        return False
    message["content"] = to_raw(told)
    return True


def _text(part: object) -> object:
    match part:
        case {"type": "refusal", "refusal": str(refused)}:
            return {"type": "text", "text": refused}
    return part
