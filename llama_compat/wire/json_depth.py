"""How deep JSON is nested, seen from its bytes: what walks through it recursively needs a bound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate

from msgspec import Raw

MAX_DEPTH = 128
"""Of arrays and objects in one another; as many as serde_json takes by default, which many vendors'
servers are built with. No schema or message that a person or a program means has a tenth of them.
"""

_STRING = re.compile(rb'"[^"]*"')
_STEPS = bytes.maketrans(b"{[}]", b"\x01\x01\xff\xff")
"""What a bracket adds to the depth, as a signed byte."""
_NO_MARKS = bytes(set(range(256)) - set(b'{[}]"'))


def is_deeper(data: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether the JSON text `data` is nested deeper than `limit`.

    It takes linear time and no recursion; nearly nothing where there are few brackets.
    """
    if data.count(b"{") + data.count(b"[") <= limit:
        return False
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Most strings are empty now; what goes with them is whole strings, or the quotes between two.
    marks = data.translate(None, _NO_MARKS).replace(b'""', b"")
    if b'"' in marks:
        marks = _STRING.sub(b"", marks)
    steps = memoryview(marks.translate(_STEPS)).cast("b")
    return max(accumulate(steps), default=0) > limit


def too_deep(fields: Mapping[str, Raw]) -> str | None:
    """The first member of a request that nests it deeper than `MAX_DEPTH`, if one does."""
    return next(
        (name for name, raw in fields.items() if is_deeper(bytes(raw), MAX_DEPTH - 1)), None
    )
