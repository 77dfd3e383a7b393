"""What models thought in the turns of Gemini's contents that are relayed: put back, left out, and
read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Raw

from llama_compat.dialects.base import WireReplies, WireTurns, restorer, with_reasons
from llama_compat.dialects.gemini.input.contents import parse_contents
from llama_compat.dialects.gemini.members import member, spelling
from llama_compat.dialects.gemini.replies import StreamParser, parse_reply
from llama_compat.dialects.gemini.seals import ANY_SIGNATURE, FAMILY, WRAPPED, parse_seal
from llama_compat.dialects.replies import parsed
from llama_compat.errors import APIError
from llama_compat.events import collected
from llama_compat.reasoning.recollection import Recollection, TurnPlace
from llama_compat.tools.calls import arguments_text, parse_tool_call
from llama_compat.types import AnyToolCall, ChatCompletionResponse, UserMessage, content_text
from llama_compat.wire import sse
from llama_compat.wire.json_fields import (
    from_raw,
    parse_object,
    to_raw,
    unicode_from_raw,
    with_items,
)

_CALLS = re.compile(rb'"function_?[cC]all"')
_RESULTS = re.compile(rb'"function_?[rR]esponse"')
_SIGNATURE = "thoughtSignature"

Part = dict[str, Any]


def _restored(item: Raw, place: TurnPlace, recollection: Recollection) -> Raw:
    content = parse_object(item)
    if content.get("role") != Raw(b'"model"'):
        for text in _texts(item):
            place.user_says(text)
        return item
    if not _CALLS.search(bytes(item)):
        return item
    parts: list[Part] = from_raw(content["parts"])
    told = _fitted(parts, place, recollection)
    return item if told == parts else to_raw({**content, "parts": to_raw(told)})


def _texts(item: Raw) -> Sequence[str]:
    if _RESULTS.search(bytes(item)):
        return ()
    try:
        said = parse_contents([unicode_from_raw(item)])
    except APIError:
        return ("",)  # it has parts that only Google knows
    return [content_text(each.content) for each in said if isinstance(each, UserMessage)]


def _fitted(parts: list[Part], place: TurnPlace, recollection: Recollection) -> list[Part]:
    calls = [_parse_call(part) for part in parts if _call_in(part) is not None]
    if not calls:
        return parts
    signatures = [
        member(part, _SIGNATURE) for part in parts if _call_in(part) is not None and is_signed(part)
    ]
    found = recollection.recall(place, calls, signatures)
    if found.is_foreign:
        return [_unsigned(part) for part in parts if not part.get("thought")]
    turn = found.lost
    if turn is None:
        return parts
    told, number = [], 0
    for part in parts:
        function = _call_in(part)
        if function is not None:
            signature = turn.signature(function.get("id") or "", number)
            if signature is not None and not is_signed(part):
                part = {**part, _SIGNATURE: signature}
            number += 1
        told.append(part)
    return told


def is_signed(part: Part) -> bool:
    """Whether `part` has a signature that is Gemini's own."""
    signature = member(part, _SIGNATURE)
    return isinstance(signature, str) and parse_seal("", signature).sealed_by == FAMILY


def _unsigned(part: Part) -> Part:
    name = spelling(part, _SIGNATURE)
    return {each: value for each, value in part.items() if each != name}


def signed(contents: Raw) -> Raw:
    """The `contents` of a request as Gemini takes them; all else keeps its bytes, and
    so does what can't be read.

    Seals that other families' models gave to a client of this API are left out. The first call of a
    content of the current turn has to be signed (Gemini 3: 400 "Function call is missing a
    thought_signature"); one that is not, as another made it or its signature was lost, gets what
    stands for any: https://ai.google.dev/gemini-api/docs/thought-signatures, 2026-11-23.
    """
    whole = bytes(contents)
    if not _CALLS.search(whole) and WRAPPED not in whole:
        return contents
    return with_items(contents, _all_signed)


def _all_signed(items: list[Raw]) -> list[Raw]:
    fitted = list(items)
    in_current_turn = True
    for place in reversed(range(len(items))):
        content = parse_object(items[place])
        if content.get("role") == Raw(b'"model"'):
            fitted[place] = _signed(items[place], content, in_current_turn=in_current_turn)
        elif not _RESULTS.search(bytes(items[place])):
            in_current_turn = False
    return fitted


def _signed(item: Raw, content: Mapping[str, Raw], *, in_current_turn: bool) -> Raw:
    parts: list[Part] = from_raw(content["parts"])
    told = [_unsigned(part) if _is_wrapped(part) else part for part in parts]
    told = [part for part in told if part in parts or not part.get("thought")]
    first = next((place for place, part in enumerate(told) if _call_in(part) is not None), None)
    if first is not None and in_current_turn and member(told[first], _SIGNATURE) is None:
        told[first] = {**told[first], _SIGNATURE: ANY_SIGNATURE}
    if told == parts:
        return item
    return to_raw({**content, "parts": to_raw(told)})


def _is_wrapped(part: Part) -> bool:
    return member(part, _SIGNATURE) is not None and not is_signed(part)


def _call_in(part: Part) -> dict[str, Any] | None:
    call: dict[str, Any] | None = member(part, "functionCall")
    return call


def _parse_call(part: Part) -> AnyToolCall:
    call = _call_in(part)
    assert call is not None
    return parse_tool_call(call.get("id") or "", call["name"], arguments_text(call.get("args")))


def _said(body: bytes, streamed: bool) -> ChatCompletionResponse | None:
    if not streamed:
        return parse_reply(from_raw(Raw(body)))
    return collected(parsed(StreamParser(), _responses(body))).chat_completion()


def _responses(body: bytes) -> Sequence[Mapping[str, Any]]:
    """Those of a stream in either of its frames; of an array the end may be missing."""
    if body.lstrip()[:1] == b"[":
        responses: list[Mapping[str, Any]] = from_raw(Raw(body.rstrip().removesuffix(b"]") + b"]"))
        return responses
    events = sse.EventDecoder().feed(body.replace(b"\r\n", b"\n"))
    return [from_raw(Raw(event.data)) for event in events if event.data is not None]


TURNS = WireTurns(
    restore=restorer("contents", _restored),
    called=re.compile(rb'"functionCall"'),
    ended=re.compile(rb'"finishReason"\s*:\s*"'),
)

REPLIES = WireReplies(
    finished=with_reasons(re.compile(rb'"finishReason"\s*:\s*"(\w*)"'), frozenset({b"STOP"})),
    said=_said,
)
