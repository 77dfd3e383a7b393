"""A turn in which a model thought and called tools, as it is kept."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from msgspec import Struct, structs

from llama_compat.types import (
    AnyToolCall,
    CompletionMessage,
    MessagePart,
    ReasoningContent,
    ToolCall,
    UnparseableToolCall,
)

PART_BYTES = 160
"""What a thought or a call takes besides its texts."""

MAX_PARTS = 1024
"""A turn with more thoughts and calls is not kept: none has a hundred."""


class PlacedThought(Struct, frozen=True):
    """A thought, and how many calls and other parts of the message came before it.

    Vendors hold a seal against what comes before it, so a thought goes back to where it was.
    """

    thought: ReasoningContent
    calls_before: int
    others_before: int


class KeptTurn(Struct, frozen=True):
    """What a model thought in one message that calls tools.

    Attributes:
        family: whose model it was; only those of the same family get any of it back.
        call_ids: of the calls, in their order.
        thoughts: with their seals.
        signatures: what the vendor wants back with each call; None for a call without.
        seals: a hash of each signature that its thoughts and calls had, where those are not kept.
    """

    family: str
    call_ids: tuple[str, ...]
    thoughts: tuple[PlacedThought, ...] = ()
    signatures: tuple[str | None, ...] = ()
    seals: frozenset[bytes] = frozenset()

    @property
    def size(self) -> int:
        """Bytes of what is kept, about: a character may take four of them."""
        thoughts = [
            text for each in self.thoughts for text in (each.thought.text, each.thought.signature)
        ]
        texts = (*thoughts, *self.call_ids, *self.signatures)
        parts = len(self.thoughts) + len(self.call_ids) + len(self.seals)
        return PART_BYTES * parts + sum(sys.getsizeof(text) for text in texts if text)

    @property
    def text(self) -> str | None:
        """What can be told in words alone, joined; None where there is nothing."""
        told = (each.thought.text for each in self.thoughts if not each.thought.sealed_by)
        return "".join(told) or None

    def signature(self, call_id: str, place: int) -> str | None:
        """What goes back with a call: by its id, or by its place among the calls, as some APIs
        have no ids."""
        if call_id in self.call_ids:
            place = self.call_ids.index(call_id)
        return self.signatures[place] if place < len(self.signatures) else None

    def has_signed(self, signatures: Iterable[str]) -> bool:
        """Whether all of `signatures`, which calls and thoughts came back with, were given in this
        turn."""
        known = {*self.signatures, *(each.thought.signature for each in self.thoughts)}
        return all(each in known or _hashed(each) in self.seals for each in signatures)

    def put_into(self, parts: Sequence[MessagePart]) -> tuple[MessagePart, ...]:
        """`parts` with these thoughts and signatures in place of their own."""
        waiting = list(self.thoughts)
        placed: list[MessagePart] = []
        calls = others = 0
        for part in parts:
            if isinstance(part, ReasoningContent):
                continue
            is_call = isinstance(part, ToolCall | UnparseableToolCall)
            while waiting and waiting[0].calls_before <= calls:
                if waiting[0].others_before > others and not is_call:
                    break
                placed.append(waiting.pop(0).thought)
            if isinstance(part, ToolCall):
                signature = self.signature(part.call_id, calls)
                if signature != part.thought_signature:
                    part = structs.replace(part, thought_signature=signature)
            placed.append(part)
            calls, others = calls + is_call, others + (not is_call)
        return (*placed, *(each.thought for each in waiting))


def turn_of(message: CompletionMessage, family: str, *, wanted: bool) -> KeptTurn | None:
    """What is kept of `message`; None where it called no tool, nothing was thought, or too much.

    Args:
        message: what a model said.
        family: whose model it was.
        wanted: whether it is wanted back; otherwise it is enough to know whose it was.
    """
    thoughts: list[PlacedThought] = []
    ids: list[str] = []
    signatures: list[str | None] = []
    others = 0
    for part in message.parts:
        if isinstance(part, ReasoningContent):
            thoughts.append(PlacedThought(part, len(ids), others))
        elif isinstance(part, ToolCall | UnparseableToolCall):
            ids.append(part.call_id)
            signatures.append(part.thought_signature if isinstance(part, ToolCall) else None)
        else:
            others += 1
    if not ids or not (thoughts or any(signatures)) or len(thoughts) + len(ids) > MAX_PARTS:
        return None
    if not wanted:
        signed = [*signatures, *(each.thought.signature for each in thoughts)]
        seals = frozenset(_hashed(each) for each in signed if each is not None)
        return KeptTurn(family, tuple(ids), seals=seals)
    return KeptTurn(family, tuple(ids), tuple(thoughts), tuple(signatures))


def _hashed(signature: str) -> bytes:
    return blake2b(signature.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def without_reasoning(message: CompletionMessage) -> CompletionMessage:
    """`message` without what its model thought, and without seals of it."""
    parts = tuple(
        structs.replace(part, thought_signature=None) if isinstance(part, ToolCall) else part
        for part in message.parts
        if not isinstance(part, ReasoningContent)
    )
    return structs.replace(message, parts=parts)


Calls = Sequence[AnyToolCall]
