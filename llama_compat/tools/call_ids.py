"""Ids of tool calls as an API takes them: of its own form, and each of one call alone.

A conversation that began with another vendor has that one's ids. Some vendors number the calls of
each reply anew, which others refuse: "`tool_use` ids must be unique" (Anthropic).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from hashlib import blake2b

from msgspec import structs

from llama_compat.types import (
    CompletionMessage,
    Message,
    MessagePart,
    ToolCall,
    ToolResponseMessage,
    UnparseableToolCall,
)

Fit = Callable[[str], str]
"""An id of an API's form for any id: itself where it has that form, else the same for the same."""


def alphanumeric_id(call_id: str, length: int) -> str:
    """An id of `length` letters and digits of ASCII, 32 at most."""
    if re.fullmatch(f"[a-zA-Z0-9]{{{length}}}", call_id):
        return call_id
    digest = blake2b(call_id.encode(errors="surrogatepass"), digest_size=16)
    return digest.hexdigest()[:length]


class CallIds:
    """The ids of one conversation, whose calls and answers are named in their order.

    What stands first has its name, however the conversation goes on, as vendors cache it.
    """

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._taken: set[str] = set()
        self._times: dict[str, int] = {}
        self._unanswered: dict[str, deque[str]] = {}
        self._answered: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        """The id of the next call, which its client calls `call_id`."""
        fitted = self._fit(call_id)
        while fitted in self._taken:
            self._times[call_id] = self._times.get(call_id, 1) + 1
            fitted = self._fit(f"{call_id}-{self._times[call_id]}")
        self._taken.add(fitted)
        self._unanswered.setdefault(call_id, deque()).append(fitted)
        return fitted

    def of_answer(self, call_id: str) -> str:
        """The id of the call that the next answer, to `call_id`, is to: the first of those with
        this id that has none, or else the one that was answered last."""
        unanswered = self._unanswered.get(call_id)
        if unanswered:
            self._answered[call_id] = unanswered.popleft()
        return self._answered.get(call_id) or self._fit(call_id)


def with_call_ids(messages: Sequence[Message], fit: Fit) -> Sequence[Message]:
    """`messages` with ids of which each fits and is of one call alone."""
    ids = CallIds(fit)
    return tuple(_renamed(message, ids) for message in messages)


def _renamed(message: Message, ids: CallIds) -> Message:
    if isinstance(message, ToolResponseMessage):
        return structs.replace(message, call_id=ids.of_answer(message.call_id))
    if not isinstance(message, CompletionMessage) or not message.tool_calls:
        return message
    parts = tuple(_renamed_part(part, ids) for part in message.parts)
    return structs.replace(message, parts=parts)


def _renamed_part(part: MessagePart, ids: CallIds) -> MessagePart:
    if not isinstance(part, ToolCall | UnparseableToolCall):
        return part
    return structs.replace(part, call_id=ids.of_call(part.call_id))
