"""Control tokens (`<|im_end|>`) that a client's text spells out, kept from becoming those tokens.

A chat template writes control tokens as text, around what the client said, and the tokenizer makes
tokens of all of it. So what the client said is marked before the template gets it, inside each
control token that is spelled out there; behind the template the text is cut at the marks, and its
pieces are made into tokens one by one: no piece has that control token any more. Where nothing is
spelled out, nothing is marked, and the tokens are those that they would have been.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Any, TypeVar

from msgspec import structs

from llama_compat.text.reasoning import CLOSING_TAG, OPENING_TAG
from llama_compat.tools.formats import FORMATS
from llama_compat.types import (
    AnyContent,
    AnyToolCall,
    CompletionMessage,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResponseMessage,
    UserMessage,
    content_text,
    media_in,
)

WINDOW = 1 << 18
"""So many characters are looked at in one go: meanwhile, Python runs nothing else."""

Value = TypeVar("Value")
Encode = Callable[[str], tuple[int, ...]]


_MARKUP = frozenset(
    {
        OPENING_TAG,
        CLOSING_TAG,
        "<tools>",
        "</tools>",
        "<tool_response>",
        "</tool_response>",
        *(marker for each in FORMATS.values() for marker in each.markers),
    }
)
"""What templates write as well, but looks for in what was said, too."""


def control_tokens(
    special: Iterable[str], added: Iterable[str], chat_template: str
) -> frozenset[str]:
    """How a model's control tokens are written.

    Args:
        special: the tokens that are special by what the tokenizer says.
        added: those besides that stand for a text of their own. Some models' marks of a turn are
            among them, such as DeepSeek's, and so are runs of blanks.
        chat_template: tells the ones from the others.
    """
    marks = (
        token for token in added if len(token) > 2 and token.strip() and token in chat_template
    )
    return frozenset(special) | (frozenset(marks) - _MARKUP)


class Marker:
    """Marks one request's texts.

    Args:
        control_tokens: how they are written.
    """

    def __init__(self, control_tokens: frozenset[str]) -> None:
        self._pattern = _pattern_of(control_tokens)
        self._longest = max(map(len, control_tokens), default=0)
        # No white space, nothing that JSON escapes, and nothing that a client could know.
        self._mark = f"\x7f{os.urandom(8).hex()}\x7f"

    def text(self, text: str) -> str:
        """`text`, with a mark in each control token that it spells out."""
        if self._pattern is None:
            return text
        ends = list(self._spelled_out(text))
        if not ends:
            return text
        pieces = (text[begin:end] for begin, end in zip([0, *ends], [*ends, None], strict=True))
        return self._mark.join(pieces)

    def value(self, value: Value) -> Value:
        """The same of all texts in a JSON value."""
        marked: Any = value
        if isinstance(value, str):
            marked = self.text(value)
        elif isinstance(value, list):
            marked = [self.value(each) for each in value]
        elif isinstance(value, dict):
            marked = {self.text(name): self.value(each) for name, each in value.items()}
        return marked  # type: ignore[no-any-return]

    def message(self, message: Message) -> Message:
        """The same of all texts in a message."""
        if self._pattern is None:
            return message
        match message:
            case SystemMessage() | UserMessage():
                content, name = self._content(message.content), self._optional(message.name)
                return structs.replace(message, content=content, name=name)
            case ToolResponseMessage():
                call_id = self.text(message.call_id)
                return structs.replace(
                    message, call_id=call_id, content=self._content(message.content)
                )
            case CompletionMessage():
                return CompletionMessage.of(
                    self._content(message.content),
                    [self._call(call) for call in message.tool_calls],
                    reasoning=self._optional(message.unsealed_reasoning),
                    refusal=self._optional(message.refusal),
                    name=self._optional(message.name),
                )

    def pieces(self, text: str) -> list[str]:
        """What templates made of marked texts, cut at the marks."""
        return text.split(self._mark)

    def _spelled_out(self, text: str) -> Iterator[int]:
        """The ends of the first characters of control tokens."""
        assert self._pattern is not None
        for begin in range(0, len(text), WINDOW):
            end = begin + WINDOW
            for found in self._pattern.finditer(text, begin, end + self._longest):
                if found.start() < end:
                    yield found.end()

    def _content(self, content: AnyContent) -> AnyContent:
        if isinstance(content, str):
            return self.text(content)
        # One part may begin what the next one ends.
        if not media_in(content):
            return self.text(content_text(content))
        parts: list[Any] = []
        for are_texts, run in groupby(content, lambda part: isinstance(part, TextContent)):
            same = tuple(run)
            parts += (TextContent(self.text(content_text(same))),) if are_texts else same
        return tuple(parts)

    def _call(self, call: AnyToolCall) -> AnyToolCall:
        marked = {
            "call_id": self.text(call.call_id),
            "tool_name": self.text(call.tool_name),
            "arguments_json": self.text(call.arguments_json),
        }
        if isinstance(call, ToolCall):
            return structs.replace(call, **marked, arguments=self.value(call.arguments))
        return structs.replace(call, **marked)

    def _optional(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)


_BEFORE = ("\n", "。", "0")
"""What a later piece is put behind, so that the tokenizer does not take it for a text's beginning,
where many put a blank. Some one of these is never made one token with what follows."""


def encode_pieces(pieces: Iterable[str], first: Encode, encode: Encode) -> tuple[int, ...]:
    """The tokens of `pieces`, which make up one text.

    Args:
        pieces: at least one.
        first: gives the tokens of the first.
        encode: gives the tokens of a text without anything around them.
    """
    beginning, *others = pieces
    token_ids = list(first(beginning))
    for piece in filter(None, others):
        token_ids += _continued(piece, encode)
    return tuple(token_ids)


def _continued(piece: str, encode: Encode) -> tuple[int, ...]:
    for before in _BEFORE:
        expected, found = encode(before), encode(before + piece)
        if found[: len(expected)] == expected:
            return found[len(expected) :]
    return encode(piece)


# The pattern --------------------------------------------------------------------------------------

_Trie = dict[str, "_Trie"]
_END = ""


@lru_cache(16)
def _pattern_of(control_tokens: frozenset[str]) -> re.Pattern[str] | None:
    """What finds the first character of a control token; models have up to thousands of them.

    It is a trie, since of alternatives one after the other each would be tried at each place.
    """
    trie: _Trie = {}
    for token in control_tokens:
        node = trie
        # What has a single character can't be cut in two.
        for character in token if len(token) > 1 else "":
            node = node.setdefault(character, {})
        node[_END] = {}
    trie.pop(_END, None)
    if not trie:
        return None
    first = (f"{re.escape(character)}(?={_rest(node)})" for character, node in trie.items())
    return re.compile("|".join(first))


def _rest(node: _Trie) -> str:
    if _END in node:
        return ""  # it is a control token, whatever follows
    branches = [f"{re.escape(character)}{_rest(below)}" for character, below in node.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
