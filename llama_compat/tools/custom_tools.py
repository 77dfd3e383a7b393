"""Custom tools, OpenAI's whose input is a plain text, as functions and back.

The model is offered a function with one string; what it writes is unwrapped as it comes. A grammar
for the input is told, and not enforced.
"""

from __future__ import annotations

import re
from typing import Any

from llama_compat.text.surrogates import SurrogateJoiner
from llama_compat.tools.calls import parse_json
from llama_compat.types import ToolDefinition
from llama_compat.wire.json_fields import encode_json

_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}

_BEGIN = '{"input":"'
_BLANKS_BEFORE = frozenset({0, 1, 8, 9})
"""Before which characters of `_BEGIN` JSON may have blanks."""

_WHOLE_CHARACTERS = re.compile(r'(?:[^"\\]+|\\u[0-9a-fA-F]{4}|\\[^u])*')
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LONGEST_ESCAPE = len(r"\u0000")


def custom_tool(
    name: str, description: str | None, grammar: tuple[str, str] | None = None
) -> ToolDefinition:
    """The function that stands for a custom tool.

    Args:
        name, description: as the model is told them.
        grammar: the notation and the text of what its input should match.
    """
    if grammar is not None:
        syntax, rules = grammar
        wanted = f"The input has to match this grammar ({syntax}):\n{rules}"
        description = f"{description}\n\n{wanted}" if description else wanted
    return ToolDefinition(name, description, _PARAMETERS)


def wrap(text: str) -> str:
    """The arguments of the function that stands for a custom tool with the input `text`."""
    return encode_json({"input": text}).decode()


class InputUnwrapper:
    """The input, as far as it is certain, while the arguments' text comes in pieces.

    However it is cut, what `push` and `finish` give, joined, is the same. Arguments that do not
    begin with the input are given whole at the end: their member `input`, or their very text.
    """

    def __init__(self) -> None:
        self._matched = 0
        self._pieces: list[str] = []
        self._held = ""
        self._is_other = False
        self._ended = False
        self._joiner = SurrogateJoiner()

    def push(self, piece: str) -> str:
        """More of the arguments; what they add to the input."""
        if self._ended:
            return ""
        if self._is_other:
            self._pieces.append(piece)
            return ""
        if self._matched < len(_BEGIN):
            self._pieces.append(piece)
            piece = self._skip_begin(piece)
        return self._joiner.push(self._decode(piece)) if piece else ""

    def finish(self) -> str:
        """The arguments are over; what is left of the input."""
        if self._matched == len(_BEGIN):
            return self._joiner.flush()
        text = "".join(self._pieces)
        try:
            arguments = parse_json(text)
        except ValueError:
            return text
        found = arguments.get("input") if isinstance(arguments, dict) else None
        return found if isinstance(found, str) else text

    def _skip_begin(self, piece: str) -> str:
        for place, character in enumerate(piece):
            if character == _BEGIN[self._matched]:
                self._matched += 1
                if self._matched == len(_BEGIN):
                    return piece[place + 1 :]
            elif not (character in " \t\r\n" and self._matched in _BLANKS_BEFORE):
                self._is_other = True
                break
        return ""

    def _decode(self, piece: str) -> str:
        text = self._held + piece
        decoded = []
        while True:
            whole = _WHOLE_CHARACTERS.match(text)
            assert whole is not None
            decoded.append(_ESCAPE.sub(_unescaped, whole[0]))
            text = text[whole.end() :]
            if text.startswith('"'):
                self._ended = True
                return "".join(decoded)
            if len(text) < _LONGEST_ESCAPE:
                self._held = text
                return "".join(decoded)
            # No escape, however it goes on: what looks like its beginning is text.
            decoded.append(text[:2])
            text = text[2:]


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1] is not None:
        return chr(int(escape[1], 16))
    return _ESCAPED.get(escape[2], escape[2])
