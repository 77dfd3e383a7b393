"""What was hidden from a vendor, and put back where its reply repeats the word for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from llama_compat.text.changes import Changes, substituted

WORD = re.compile(r"<[A-Z][A-Z0-9_]{0,31}_[0-9]{1,6}>")
"""What is there in place of something that is hidden."""

_BEGUN = re.compile(r"<(?:[A-Z][A-Z0-9_]{0,38})?\Z")


class Hidden:
    """The words of one request for what was hidden in it: the same for the same, each time."""

    def __init__(self) -> None:
        self._words: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._values: dict[str, str] = {}

    def word(self, label: str, value: str, *, restore: bool) -> str:
        """The word for `value`.

        Args:
            label: what it is.
            value: what was found.
            restore: whether it is put back.
        """
        word = self._words.get((label, value))
        if word is None:
            number = self._counts[label] = self._counts.get(label, 0) + 1
            word = self._words[label, value] = f"<{label}_{number}>"
        if restore:
            self._values[word] = value
        return word

    @property
    def comes_back(self) -> bool:
        """Whether there is anything to put back."""
        return bool(self._values)

    def value(self, word: str) -> str:
        """What `word` stands for; itself where that is not put back."""
        return self._values.get(word, word)

    def find(self, text: str) -> Iterator[tuple[int, int, str]]:
        """The words in a text that come back: where each begins and ends, and its value."""
        for match in WORD.finditer(text):
            value = self._values.get(match.group())
            if value is not None:
                yield match.start(), match.end(), value


class Restorer:
    """Puts back what was hidden, in a text that comes in pieces.

    Args:
        hidden: what was hidden.
        in_json: whether the text is JSON, and what is put back a part of a string in it.

    Attributes:
        changes: told what has become of the text, where somebody asks.
    """

    __slots__ = ("_held", "_hidden", "_in_json", "changes")

    def __init__(self, hidden: Hidden, *, in_json: bool = False) -> None:
        self._hidden = hidden
        self._in_json = in_json
        self._held = ""
        self.changes: Changes | None = None

    @property
    def holds(self) -> bool:
        """Whether anything is held back."""
        return bool(self._held)

    def push(self, text: str) -> str:
        """More of the text; what can be shown now: all but what may be the beginning of a word."""
        text = self._held + text
        begun = _BEGUN.search(text, max(0, len(text) - 42))
        end = len(text) if begun is None else begun.start()
        self._held = text[end:]
        return substituted(WORD, self._value, text[:end], self.changes)

    def flush(self) -> str:
        """The text has ended: what was held back."""
        held, self._held = self._held, ""
        return held

    def _value(self, match: re.Match[str]) -> str:
        value = self._hidden.value(match.group())
        return _escaped(value) if self._in_json else value


def _escaped(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]
