"""How deep JSON is nested, seen from its bytes: what walks through it recursively needs a bound."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from msgspec import Raw

from llama_compat.wire.json_skeleton import SLICE_BYTES, brackets, count_of

MAX_DEPTH = 128
"""Of arrays and objects in one another; as many as serde_json takes by default, which many vendors'
servers are built with. No schema or message that a person or a program means has a tenth of them.
"""

_OPENING = (b"{", b"[")

_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
"""What a bracket adds to the depth, as a signed byte."""


def is_deeper(data: bytes | memoryview, limit: int = MAX_DEPTH) -> bool:
    """Whether the JSON text `data` is nested deeper than `limit`.

    It takes linear time and no recursion; nearly nothing where there are few brackets.
    """
    if count_of(data, _OPENING) <= limit:
        return False
    steps = memoryview(brackets(bytes(data)).translate(_STEPS)).cast("b")
    depth = 0
    for at in range(0, len(steps), SLICE_BYTES):
        depths = list(accumulate(steps[at : at + SLICE_BYTES], initial=depth))
        if max(depths) > limit:
            return True
        depth = depths[-1]
    return False


def too_deep(fields: Mapping[str, Raw]) -> str | None:
    """The first member of a request that nests it deeper than `MAX_DEPTH`, if one does."""
    return next(
        (name for name, raw in fields.items() if is_deeper(memoryview(raw), MAX_DEPTH - 1)), None
    )
