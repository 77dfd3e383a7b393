"""Counts in JSON, whoever sends them: how large one may be, and what a vendor counted, read without
trust, as a reply that is paid for is not lost to its usage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_COUNT = (1 << 53) - 1
"""The largest whole number that all readers of JSON agree on (RFC 8259, section 6). As much may a
client ask for where its API names no bound: what 128 choices may come to then still fits into the
64 bits in which it is counted."""

MAX_INT32 = (1 << 31) - 1
"""The largest token id, and the largest setting of an engine whose integers have 32 bits."""


_NO_MEMBERS: Mapping[str, Any] = {}


def count(value: Any) -> int | None:
    """The number of tokens that `value` tells; None where it is no number of anything."""
    if type(value) is int:  # as nearly all are; no bool is
        return value if 0 <= value <= MAX_COUNT else None
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MAX_COUNT else None


def with_reasoning(completion: int, reasoning: int | None) -> int:
    """A vendor's `completion` tokens with those of `reasoning` in them, as all but Google and xAI
    count: where those are more than all of it, they were counted beside it."""
    return completion + reasoning if reasoning and reasoning > completion else completion


def told_count(body: Mapping[str, Any], name: str) -> int:
    """The count that an answer is all about, in its member `name`.

    Raises:
        ValueError: there is none.
    """
    counted = body.get(name)
    if type(counted) is not int or counted < 0:
        raise ValueError(f"the answer has no '{name}' that is a count")
    return counted


def members(value: Any) -> Mapping[str, Any]:
    """The members of an object; none of anything else."""
    return value if type(value) is dict or isinstance(value, Mapping) else _NO_MEMBERS
