"""Seals of reasoning, which vendors give out and want back as they were."""

from __future__ import annotations

from typing import Any


def parse_seal(value: Any) -> str | None:
    """A vendor's seal; None where there is none.

    Raises:
        ValueError: it is none, which are ASCII in all families.
    """
    if value is None or (isinstance(value, str) and value.isascii()):
        return value
    raise ValueError("the signature of a thought is no text in ASCII")
