"""A JSON text without its strings, numbers and words: what its shape is told by."""

from __future__ import annotations

from collections.abc import Sequence

SLICE_BYTES = 256 * 1024
"""Between two slices another thread may run."""

MARKS = b'{[}],:"'
_NO_MARKS = bytes(set(range(256)) - set(MARKS))
_NO_BRACKETS = bytes(set(range(256)) - set(b'{[}]"'))


def count_of(data: bytes | memoryview, letters: Sequence[bytes]) -> int:
    """How often any of `letters` is in `data`, of which no large copy is made."""
    if len(data) > SLICE_BYTES:
        starts = range(0, len(data), SLICE_BYTES)
        return sum(count_of(data[at : at + SLICE_BYTES], letters) for at in starts)
    whole, found = bytes(data), 0
    for each in letters:
        found += whole.count(each)
    return found


def brackets(data: bytes) -> bytes:
    """The brackets of the JSON text `data` outside of its strings, in linear time."""
    return _without_strings(data, _NO_BRACKETS)


def marks(data: bytes) -> bytes:
    """The brackets, commas and colons of the JSON text `data` outside of its strings."""
    return _without_strings(data, _NO_MARKS)


def _without_strings(data: bytes, others: bytes) -> bytes:
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Most strings are empty now; what goes with them is whole strings, or the quotes between two.
    rest = data.translate(None, others).replace(b'""', b"")
    if b'"' not in rest:
        return rest
    outside, inside = bytearray(), 0
    for at in range(0, len(rest), SLICE_BYTES):
        pieces = rest[at : at + SLICE_BYTES].split(b'"')
        outside += b"".join(pieces[inside::2])
        inside = (inside + len(pieces) - 1) % 2
    return bytes(outside)
