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
        self._blanks: list[str] = []

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
        self._blanks.append(self._held[: len(self._held) - len(begun)])
        self._held = begun
        if begun.startswith(OPENING_TAG):
            self._held = begun[len(OPENING_TAG) :]
            self._blanks = []
            self._skip_blanks, self._reasoned = True, True
            self._read = self._reasoning
        elif final or not OPENING_TAG.startswith(begun):
            if not self._reasoned:
                self._held = "".join((*self._blanks, begun))
            self._blanks = []
            self._read = self._answer
        return iter(())

    def _reasoning(self, final: bool) -> Iterator[Delta]:
        if self._skip_blanks:
            self._held = self._held.lstrip()
            self._skip_blanks = not self._held
        reasoning, tag, rest = self._held.partition(CLOSING_TAG)
        ended = bool(tag) or final
        certain = len(reasoning) - (0 if ended else held_back(reasoning, [CLOSING_TAG]))
        self._held = rest if ended else reasoning[certain:]
        said = reasoning[:certain].rstrip()
        blanks = reasoning[len(said) : certain]
        if said:
            yield ReasoningDelta("".join((*self._blanks, said)))
            self._blanks = []
        self._blanks.append(blanks)
        if ended:
            self._blanks = []
            self._read = self._before

    def _answer(self, final: bool) -> Iterator[Delta]:
        text, self._held = self._held, ""
        if text:
            yield TextDelta(text)
