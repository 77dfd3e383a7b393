"""W3C trace context: which trace a request is part of (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

MAX_STATE = 512
"""A longer `tracestate` is not passed on."""

_TRACEPARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_SAMPLED = 1


class TraceContext(Struct, frozen=True, gc=False):
    """One span, and the trace that it is part of; ids in hexadecimal.

    Attributes:
        trace_id, span_id: its own.
        parent_id: the span that it is a child of; empty for the first of a trace.
        sampled: whether it is to be sent anywhere.
        state: the `tracestate` that came with it, which is for others.
    """

    trace_id: str
    span_id: str
    parent_id: str = ""
    sampled: bool = True
    state: str = ""

    def child(self) -> TraceContext:
        """A new span within this one."""
        return TraceContext(self.trace_id, new_id(64), self.span_id, self.sampled, self.state)

    def headers(self) -> Mapping[str, str]:
        """How a request says that it is part of this span."""
        flags = "01" if self.sampled else "00"
        headers = {"traceparent": f"00-{self.trace_id}-{self.span_id}-{flags}"}
        return headers | {"tracestate": self.state} if self.state else headers


def new_id(bits: int) -> str:
    """A random id of so many bits, other than 0."""
    return f"{random.getrandbits(bits) or 1:0{bits // 4}x}"


def context_of(headers: Iterable[tuple[bytes, bytes]], sample: float) -> TraceContext:
    """The span of a request: a child of the one that its headers name, or the first of a trace.

    Args:
        headers: as ASGI has them.
        sample: the share of new traces that are sampled.
    """
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value.strip())
        elif name == b"tracestate":
            states.append(value.strip())
    match = _TRACEPARENT.fullmatch(parents[0]) if len(parents) == 1 else None
    if match is None or (match[1] == b"00" and match[5] is not None):
        return TraceContext(new_id(128), new_id(64), sampled=random.random() < sample)
    state = b",".join(states).decode("latin-1")
    return TraceContext(
        match[2].decode(),
        new_id(64),
        match[3].decode(),
        bool(int(match[4], 16) & _SAMPLED),
        state if len(state) <= MAX_STATE else "",
    )
