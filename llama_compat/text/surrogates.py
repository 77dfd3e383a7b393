"""Characters that a stream was cut inside of.

A vendor that cuts its stream by UTF-16 units sends half a character as `"\\ud83d"` and the other
half in the next event. Each half is JSON, but no text that can be sent on as UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable


def _replacement(half: str) -> str:
    return "\N{REPLACEMENT CHARACTER}"


def json_escape(half: str) -> str:
    """A half that stays alone as the escape that a JSON string may hold."""
    return f"\\u{ord(half):04x}"


def joined(text: str, lone: Callable[[str], str] = _replacement) -> str:
    """`text`, which is whole, with the halves of characters joined that stand side by side; `lone`
    as `SurrogateJoiner` has it."""
    joiner = SurrogateJoiner(lone)
    return joiner.push(text) + joiner.flush()


class SurrogateJoiner:
    """Joins halves of characters across the pieces of a text; what it gives is valid Unicode.

    Args:
        lone: what a half without its other half becomes; U+FFFD unless told otherwise.
    """

    def __init__(self, lone: Callable[[str], str] = _replacement) -> None:
        self._lone = lone
        self._held = ""

    def push(self, text: str) -> str:
        """The text as far as it is certain: a first half at the very end waits for the second."""
        if text.isascii() and not self._held:
            return text
        text = self._held + text
        self._held = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._held = text[:-1], text[-1]
        return self._join(text)

    def flush(self) -> str:
        """What was held back and now stays alone."""
        text, self._held = self._held, ""
        return self._join(text)

    def _join(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
            return "".join(
                self._lone(character) if "\ud800" <= character <= "\udfff" else character
                for character in text
            )
        return text
