"""What models thought in the turns of chats that are relayed: put back, left out, and read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import WireReplies, WireTurns, restorer, with_reasons
from llama_compat.dialects.openai.chat.reasoning_fields import DETAILS, EXTRA, TEXTS
from llama_compat.dialects.openai.chat.replies import call_id_of, parse_reply
from llama_compat.dialects.openai.chat.requests import parse_messages, thought_signature
from llama_compat.dialects.openai.chat.streams import StreamParser
from llama_compat.dialects.openai.chunks import collected_chunks
from llama_compat.dialects.openai.finish_reasons import FINISH_REASON
from llama_compat.errors import APIError
from llama_compat.reasoning.recollection import Recollection, TurnPlace
from llama_compat.reasoning.turns import KeptTurn
from llama_compat.tools.calls import arguments_text, parse_tool_call
from llama_compat.types import AnyToolCall, ChatCompletionResponse, content_text
from llama_compat.wire.json_fields import (
    JSONFields,
    from_raw,
    parse_object,
    parse_objects,
    to_raw,
    unicode_from_raw,
)

_EMPTY = (None, Raw(b"null"), Raw(b'""'))


def _restored(item: Raw, place: TurnPlace, recollection: Recollection) -> Raw:
    message = parse_object(item)
    role = message.get("role")
    if role == Raw(b'"user"'):
        place.user_says(_text(item))
    elif role == Raw(b'"assistant"') and message.get("tool_calls") not in _EMPTY:
        calls = parse_objects(message["tool_calls"])
        found = recollection.recall(
            place, [_parse_call(call) for call in calls], _signatures(calls)
        )
        if found.is_foreign:
            return _without_reasoning(item, message, calls)
        if found.lost is not None:
            return _with_reasoning(item, message, calls, found.lost)
    return item


def _text(item: Raw) -> str:
    try:
        (message,) = parse_messages([unicode_from_raw(item)])
    except APIError:
        return ""  # it has parts that only vendors know
    return content_text(message.content)


def _parse_call(call: JSONFields) -> AnyToolCall:
    function: Mapping[str, Any] = from_raw(call["function"])
    call_id = call_id_of({"id": from_raw(call["id"])} if "id" in call else {})
    return parse_tool_call(
        call_id or "", function["name"], arguments_text(function.get("arguments"))
    )


def _signatures(calls: Sequence[JSONFields]) -> list[str]:
    extras = ({EXTRA: from_raw(call[EXTRA])} for call in calls if EXTRA in call)
    return [each for each in map(thought_signature, extras) if each is not None]


def _without_reasoning(item: Raw, message: JSONFields, calls: Sequence[JSONFields]) -> Raw:
    left_out = [message.pop(name, None) for name in (*TEXTS, DETAILS, EXTRA)]
    seals = [call.pop(EXTRA, None) for call in calls]
    if any(seal is not None for seal in seals):
        message["tool_calls"] = to_raw(calls)
    changed = any(each is not None for each in (*left_out, *seals))
    return to_raw(message) if changed else item


def _with_reasoning(
    item: Raw, message: JSONFields, calls: Sequence[JSONFields], turn: KeptTurn
) -> Raw:
    changed = False
    if turn.text is not None and all(message.get(name) in _EMPTY for name in TEXTS):
        message[TEXTS[0]] = to_raw(turn.text)
        changed = True
    sealed = False
    for place, call in enumerate(calls):
        call_id = from_raw(call["id"]) if "id" in call else ""
        signature = turn.signature(call_id, place)
        if signature is not None and call.get(EXTRA) in _EMPTY:
            call[EXTRA] = to_raw({"google": {"thought_signature": signature}})
            sealed = True
    if sealed:
        message["tool_calls"] = to_raw(calls)
    return to_raw(message) if changed or sealed else item


def _said(body: bytes, streamed: bool) -> ChatCompletionResponse | None:
    if not streamed:
        return parse_reply(from_raw(Raw(body)))[0]
    parser = StreamParser(whole_calls=True)
    return collected_chunks(parser, body).chat_completion()


TURNS = WireTurns(
    restore=restorer("messages", _restored),
    called=re.compile(rb'"tool_calls"'),
    ended=re.compile(rb'"finish_reason"\s*:\s*"'),
)

REPLIES = WireReplies(
    finished=with_reasons(FINISH_REASON, frozenset({b"stop", b"tool_calls", b"function_call"})),
    said=_said,
)
