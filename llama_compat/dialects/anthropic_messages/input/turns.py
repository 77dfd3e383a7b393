"""What models thought in the turns of messages that are relayed: put back, left out, and read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from llama_compat.dialects.anthropic_messages.input.conversations import parse_messages
from llama_compat.dialects.anthropic_messages.replies import StreamParser, parse_reply
from llama_compat.dialects.anthropic_messages.requests import dropping_unbound, render_said
from llama_compat.dialects.anthropic_messages.seals import without_marked
from llama_compat.dialects.anthropic_messages.versions import THINKING_BINDING
from llama_compat.dialects.base import Restored, WireReplies, WireTurns, with_reasons
from llama_compat.dialects.replies import objects_in, pushed
from llama_compat.errors import APIError
from llama_compat.events import collected
from llama_compat.reasoning.recollection import Recollection, TurnPlace
from llama_compat.reasoning.turns import KeptTurn
from llama_compat.tools.calls import arguments_text, parse_tool_call
from llama_compat.types import (
    AnyToolCall,
    ChatCompletionResponse,
    Message,
    ReasoningContent,
    TextContent,
    UserMessage,
    content_text,
)
from llama_compat.wire.json_fields import from_raw, parse_object, to_raw, unicode_from_raw
from llama_compat.wire.malformed import UNREADABLE

_items = msgspec.json.Decoder(list[Raw])

_THOUGHTS = ("thinking", "redacted_thinking")
_OFF = {"type": "disabled"}

Block = dict[str, Any]


def _restore(fields: Mapping[str, Raw], recollection: Recollection) -> Restored:
    """The request with the thinking that its turns lost.

    A model that is told to think, and how much, goes on with the results of tools only where the
    turn that called them begins with thinking; where that is not known, it goes on without. One
    that decides itself takes the turn as it is:
    https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking ("Validation changes")
    and extended-thinking ("Toggling thinking modes"), 2026-11-23.

    A thought that is bound to what came before it may come after something else now, for which the
    vendor would refuse a request that it takes without. So it is asked to leave those out, as where
    a request is translated, and nothing is put back where that can't be said.
    """
    try:
        items = _items.decode(without_marked(fields["messages"]))
        thinking = from_raw(fields["thinking"]) if "thinking" in fields else None
        dropping = dropping_unbound(thinking) if recollection.bound else None
        gives_back = dropping is not None or not recollection.bound
        conversation = _Conversation(items, recollection, gives_back=gives_back)
    except UNREADABLE:
        return Restored(fields, TurnPlace())
    restored: dict[str, Raw] = dict(fields)
    headers = {}
    if conversation.changed:
        restored["messages"] = to_raw(conversation.items)
    if conversation.has_regained and dropping is not None:
        restored["thinking"] = to_raw(dropping)
        headers["anthropic-beta"] = THINKING_BINDING
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    may_think = kind not in ("disabled", "between_tools")
    lacking = kind == "enabled" and conversation.goes_on_without
    if lacking or (recollection.rule.needed and may_think and conversation.has_lost):
        restored["thinking"] = to_raw(_OFF)
        return Restored(restored, conversation.place, ("thinking=disabled",))
    return Restored(restored, conversation.place, headers=headers)


class _Conversation:
    """The messages of a request, with what is known of its turns.

    Attributes:
        items: they.
        changed: whether any is another than it was.
        has_regained: whether any turn has its thinking again.
        place: where it has come to.
        goes_on_without: whether the model goes on with a turn that does not begin with thinking.
        has_lost: whether any turn that calls tools is without thinking.
    """

    def __init__(
        self, items: Sequence[Raw], recollection: Recollection, *, gives_back: bool
    ) -> None:
        self._recollection = recollection
        self._gives_back = gives_back
        self.items: list[Raw] = []
        self.changed = False
        self.has_regained = False
        self.place = TurnPlace()
        self.goes_on_without = False
        self.has_lost = False
        for item in items:
            self._add(item)

    def _add(self, item: Raw) -> None:
        message = parse_object(item)
        content = bytes(message.get("content", b""))
        if message.get("role") == Raw(b'"user"'):
            self._user_says(item, content)
        elif message.get("role") == Raw(b'"assistant"'):
            self.goes_on_without = False
            if b'"tool_use"' in content and content.startswith(b"["):
                blocks: list[Block] = from_raw(Raw(content))
                told = self._fitted(blocks)
                self.goes_on_without = told[0]["type"] not in _THOUGHTS
                self.has_lost = self.has_lost or not any(_is_thought(each) for each in told)
                if told is not blocks:
                    self.changed = True
                    item = to_raw({**message, "content": to_raw(told)})
        self.items.append(item)

    def _user_says(self, item: Raw, content: bytes) -> None:
        is_result = b'"tool_result"' in content
        try:
            said: Sequence[Message] = parse_messages([unicode_from_raw(item)])
        except APIError:
            # It has parts that only vendors know.
            said = () if is_result else (UserMessage(""),)
        for each in said:
            if isinstance(each, UserMessage):
                self.place.user_says(content_text(each.content))
        if not is_result:
            self.goes_on_without = False

    def _fitted(self, blocks: list[Block]) -> list[Block]:
        calls = [_parse_call(block) for block in blocks if block["type"] == "tool_use"]
        if not calls:
            return blocks
        thoughts = [block for block in blocks if _is_thought(block)]
        signatures = [_signature(block) for block in thoughts]
        found = self._recollection.recall(self.place, calls, list(filter(None, signatures)))
        has_thoughts = bool(thoughts)
        if found.is_foreign:
            others = [block for block in blocks if not _is_thought(block)]
            return others if has_thoughts else blocks
        if found.lost is None or has_thoughts or not self._gives_back:
            return blocks
        told = _with_thoughts(blocks, found.lost)
        self.has_regained = self.has_regained or told is not blocks
        return told


def _with_thoughts(blocks: list[Block], turn: KeptTurn) -> list[Block]:
    # Only where they stand is of interest: each stands for its block.
    stand_ins = [
        _parse_call(block) if block["type"] == "tool_use" else TextContent(str(place))
        for place, block in enumerate(blocks)
    ]
    waiting = iter(blocks)
    told: list[Block] = []
    for part in turn.put_into(stand_ins):
        if isinstance(part, ReasoningContent):
            told += render_said(part, "messages")
        else:
            told.append(next(waiting))
    return told if len(told) > len(blocks) else blocks


def _is_thought(block: Block) -> bool:
    return block["type"] in _THOUGHTS


def _signature(block: Block) -> str:
    signature = block.get("signature" if block["type"] == "thinking" else "data")
    return signature if isinstance(signature, str) else ""


def _parse_call(block: Block) -> AnyToolCall:
    return parse_tool_call(block["id"], block["name"], arguments_text(block["input"]))


def _said(body: bytes, streamed: bool) -> ChatCompletionResponse | None:
    if not streamed:
        return parse_reply(from_raw(Raw(body)))
    parser = StreamParser()
    # Not finished: its last event may be named here and have no data yet.
    return collected(pushed(parser, objects_in(body))).chat_completion()


TURNS = WireTurns(
    restore=_restore,
    called=re.compile(rb'"tool_use"'),
    ended=re.compile(rb'"message_stop"'),
)

REPLIES = WireReplies(
    finished=with_reasons(
        re.compile(rb'"stop_reason"\s*:\s*"(\w*)"'),
        frozenset({b"end_turn", b"stop_sequence", b"tool_use"}),
    ),
    said=_said,
)
