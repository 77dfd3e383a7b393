"""Lists of stop strings, in whatever client API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from llama_compat.errors import APIError, invalid_parameter

MAX_STOP_STRINGS = 64
"""More than any vendor is told: those beyond its own bound are looked for here, which takes time
for each of them."""


class StopBound(Struct, frozen=True):
    """Which stop strings a vendor takes.

    Attributes:
        most: how many in a request; None for any number.
        blank: whether one may be of nothing but white space.
    """

    most: int | None = None
    blank: bool = True

    def split(self, stops: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Those of `stops` that the vendor is told, and those that it is not."""
        takes = [stop for stop in stops if self.blank or stop.strip()][: self.most]
        if len(takes) == len(stops):
            return tuple(stops), ()
        told = set(takes)
        return tuple(takes), tuple(stop for stop in stops if stop not in told)


ANY_STOPS = StopBound()

NO_STOPS = StopBound(0)
"""Of an API that has no word for them."""

CLAUDES_STOPS = StopBound(blank=False)
"""`stop_sequences: each stop sequence must contain non-whitespace`, in every API that has Claude;
Anthropic's for OpenAI's clients passes them over ("All non-whitespace stop sequences work",
https://platform.claude.com/docs/en/api/openai-sdk)."""

GEMINIS_STOPS = StopBound(5)
"""400 "the number of stop_sequences must not exceed 5" (continuedev/continue#2702, 2026-11-28)."""


def parse_stop_list(value: Any, path: str) -> list[str]:
    """The stop strings that `value` lists, or the one that it is.

    Raises:
        APIError: 400 naming `path`.
    """

    def malformed() -> APIError:
        return invalid_parameter(
            path, f"'{path}' must be an array of strings that are not empty.", "invalid_type"
        )

    stops = [value] if isinstance(value, str) else value
    return checked_stops(stops, path, malformed=malformed, empty=malformed)


def checked_stops(
    value: Any, path: str, *, malformed: Callable[[], APIError], empty: Callable[[], APIError]
) -> list[str]:
    """The stop strings that `value` lists.

    Args:
        value: what a client sent.
        path: where.
        malformed: what is wrong where it is no list of strings, in the words of the client's API.
        empty: what is where one of them is empty.

    Raises:
        APIError: one of these, or 400 naming `path` where there are more than are looked for.
    """
    if not isinstance(value, list) or not all(isinstance(stop, str) for stop in value):
        raise malformed()
    if len(value) > MAX_STOP_STRINGS:
        raise invalid_parameter(
            path, f"Invalid '{path}': at most {MAX_STOP_STRINGS} strings, got {len(value)}."
        )
    if "" in value:
        raise empty()
    return value
