"""Stop strings in APIs that take a list of them."""

from __future__ import annotations

from typing import Any

from llama_compat.errors import invalid_parameter

MAX_STOP_STRINGS = 64
"""OpenAI takes 4 and Gemini 5; others say nothing of a limit."""


def parse_stop_list(value: Any, path: str) -> list[str]:
    """The stop strings that `value` lists, or the one that it is.

    Raises:
        APIError: 400 naming `path`.
    """
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise invalid_parameter(
            path, f"'{path}' must be an array of strings that are not empty.", "invalid_type"
        )
    if len(stops) > MAX_STOP_STRINGS:
        raise invalid_parameter(
            path, f"Invalid '{path}': at most {MAX_STOP_STRINGS} strings, got {len(stops)}."
        )
    return stops
