"""Stop strings found in a text that comes in pieces."""

from __future__ import annotations

from collections.abc import Iterable


class StopStrings:
    """Lets a text through up to the first stop string, and never shows a part of that string.

    The text ends where a stop string is first complete; of several that are complete at the same
    character the longest counts. So the result is the same wherever the text is cut into pieces.
    Only what may be the beginning of a stop string is held back, and the time is linear in the
    length of the text.

    Args:
        stops: strings that end the text, none of them empty.

    Attributes:
        matched: the one that has ended the text; None as long as none has.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._matchers = [_Matcher(stop) for stop in stops]
        self.matched: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self.matched is not None

    def push(self, text: str) -> tuple[str, bool]:
        """More of the text.

        Returns:
            What can be shown now, and whether a stop string has ended the text; after that nothing
            more is ever shown.
        """
        if self.stopped:
            return "", True
        if not self._matchers:
            return text, False
        held = self._held()
        for position, character in enumerate(text):
            complete = [each.stop for each in self._matchers if each.advance(character)]
            if complete:
                self.matched = max(complete, key=len)
                length = len(held) + position + 1 - len(self.matched)
                return _head(held, text, length), True
        return _head(held, text, len(held) + len(text) - len(self._held())), False

    def flush(self) -> str:
        """The text has ended by itself: what was held back, which was no stop string after all."""
        held = "" if self.stopped else self._held()
        for matcher in self._matchers:
            matcher.state = 0
        return held

    def _held(self) -> str:
        """What the text ends with that may be the beginning of a stop string."""
        return max((matcher.begun for matcher in self._matchers), key=len, default="")


def _head(first: str, second: str, length: int) -> str:
    """The first `length` characters of `first` and `second`."""
    return first[:length] + second[: max(0, length - len(first))]


class _Matcher:
    """Knuth, Morris and Pratt's search for one string, a character at a time.

    Attributes:
        stop: the string.
        state: how many of its characters the text ends with.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.state = 0
        self._fallback = _fallbacks(stop)

    @property
    def begun(self) -> str:
        """The characters of the string that the text ends with."""
        return self.stop[: self.state]

    def advance(self, character: str) -> bool:
        """Take the text's next character; whether the string is complete with it."""
        state = self.state
        while state and self.stop[state] != character:
            state = self._fallback[state - 1]
        if self.stop[state] == character:
            state += 1
        self.state = state
        return state == len(self.stop)


def _fallbacks(stop: str) -> list[int]:
    """For each prefix of `stop`: how long a proper prefix of it is its suffix as well, at most."""
    fallbacks = [0] * len(stop)
    length = 0
    for position in range(1, len(stop)):
        while length and stop[position] != stop[length]:
            length = fallbacks[length - 1]
        if stop[position] == stop[length]:
            length += 1
        fallbacks[position] = length
    return fallbacks
