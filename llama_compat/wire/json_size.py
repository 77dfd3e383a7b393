"""What a JSON text may hold, told before it is decoded, which is one step that nobody interrupts.

Decoding takes 10 ns for a number and 500 for a member of an object: these bounds keep a text of any
length below 50 ms or so. No request that somebody means comes near them: 300,000 token ids are the
most that OpenAI takes for embeddings, and images are one string each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Raw

from llama_compat.wire.json_skeleton import count_of, marks

MAX_VALUES = 500_000
MAX_MEMBERS = 100_000

MAX_DIGITS = 4300
"""Of an integer; CPython refuses to read longer ones, as that takes quadratic time
(https://docs.python.org/3/library/stdtypes.html#int-max-str-digits)."""

_STRIDE = MAX_DIGITS // 2
_LONG = re.compile(rb"[0-9]{%d}" % (MAX_DIGITS + 1))


def has_too_many_values(data: bytes) -> bool:
    """Whether the JSON text `data` holds more than `MAX_VALUES`, or more than `MAX_MEMBERS` of
    objects."""
    if count_of(memoryview(data), (b",", b"[", b"{")) <= MAX_MEMBERS:
        return False
    shape = marks(data)
    values = shape.count(b",") + shape.count(b"[") + shape.count(b"{")
    return values > MAX_VALUES or shape.count(b":") > MAX_MEMBERS


def with_too_long_number(fields: Mapping[str, Raw]) -> str | None:
    """The first member of a request that holds a number of more than `MAX_DIGITS` digits in a row,
    if one does."""
    for name, raw in fields.items():
        view = memoryview(raw)
        if view.nbytes > MAX_DIGITS and has_too_long_number(view):
            return name
    return None


def has_too_long_number(data: bytes | memoryview) -> bool:
    """Whether the JSON text `data` holds a number of more than `MAX_DIGITS` digits in a row.

    So many in a row hold one of the pieces that `data` is cut into whole, so that nearly all of it
    need not be looked at.
    """
    view = memoryview(data)
    if not any(bytes(view[at : at + _STRIDE]).isdigit() for at in range(0, len(view), _STRIDE)):
        return False
    # The digits may be text; without the quotes that text may hold, strings are between two quotes.
    data = bytes(view).replace(b"\\\\", b"").replace(b'\\"', b"")
    return any(_LONG.search(outside) for outside in data.split(b'"')[::2])
