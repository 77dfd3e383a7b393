"""A model's reasoning, told apart from its answer by the tags around it."""

from __future__ import annotations

from collections.abc import Iterator

from llama_compat.text.markers import held_back
from llama_compat.types import Delta, ReasoningDelta, TextDelta

OPENING_TAG = "<think>"
CLOSING_TAG = "</think>"


def opens_reasoning(prompt: str) -> bool:
    """Whether the chat template has opened the tag already, so that the reply begins inside it."""
    return prompt.rstrip().endswith(OPENING_TAG)


class ReasoningParser:
    """Text in pieces in; reasoning and text out, and never half a tag.

    Reasoning stands at the beginning of a reply. A tag that comes after the answer has begun is
    part of the answer: it may talk about tags, or call a tool with one in its arguments. The blanks
    next to the tags are left out; reasoning that is not closed lasts to the end.

    Args:
        opened: the reply begins inside the tag (`opens_reasoning`).
    """

    def __init__(self, *, opened: bool = False) -> None:
        self._read = self._reasoning if opened else self._before
        self._skip_blanks = opened
        self._reasoned = opened
        self._held = ""

    def push(self, text: str) -> list[Delta]:
        """More of the reply's text."""
        self._held += text
        return list(self._advance(final=False))

    def flush(self) -> list[Delta]:
        """The reply has ended."""
        return list(self._advance(final=True))

    def _advance(self, *, final: bool) -> Iterator[Delta]:
        state = None
        while state != self._read:
            state = self._read
            yield from state(final)

    def _before(self, final: bool) -> Iterator[Delta]:
        """Nothing but blanks has come since the beginning or the last closing tag."""
        begun = self._held.lstrip()
        if begun.startswith(OPENING_TAG):
            self._held = begun[len(OPENING_TAG) :]
            self._skip_blanks, self._reasoned = True, True
            self._read = self._reasoning
        elif final or not OPENING_TAG.startswith(begun):
            if self._reasoned:
                self._held = begun
            self._read = self._answer
        return iter(())

    def _reasoning(self, final: bool) -> Iterator[Delta]:
        if self._skip_blanks:
            self._held = self._held.lstrip()
            self._skip_blanks = not self._held
        reasoning, tag, rest = self._held.partition(CLOSING_TAG)
        if tag or final:
            self._held = rest
            reasoning = reasoning.rstrip()
            self._read = self._before
        else:
            certain = len(reasoning) - held_back(reasoning, [CLOSING_TAG])
            certain = len(reasoning[:certain].rstrip())
            reasoning, self._held = reasoning[:certain], reasoning[certain:]
        if reasoning:
            yield ReasoningDelta(reasoning)

    def _answer(self, final: bool) -> Iterator[Delta]:
        text, self._held = self._held, ""
        if text:
            yield TextDelta(text)
