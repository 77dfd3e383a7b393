"""W3C trace context: which trace a request is part of (https://www.w3.org/TR/trace-context/)."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from operator import itemgetter

from msgspec import Struct

from providers.remote.http1.headers import encode_header
from providers.remote.upstream.trace_headers import OUTGOING
from routing.asgi import RawHeaders

MAX_STATE = 512
"""A longer `tracestate` is not passed on."""

_TRACEPARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_SAMPLED = 1


class Trace(Struct, gc=False):
    """The spans of one request: its own, and one for each attempt; ids in hexadecimal.

    Attributes:
        trace_id, span_id: its own.
        next_id: the id of its first attempt's span.
        sampled: whether it is to be sent anywhere.
        parent_id: the span that it is a child of; empty for the first of a trace.
        state: the `tracestate` that came with it, which is for others.
        attempts: the span of each attempt, in their order.
        content: what was said, as attributes in OTLP's JSON; empty where that is not asked for.
    """

    trace_id: str
    span_id: str
    next_id: str
    sampled: bool = True
    parent_id: str = ""
    state: str = ""
    attempts: list[str] = []
    content: str = ""

    def attempt_begins(self) -> None:
        """An attempt is begun: what is sent for it says which span it is part of."""
        attempts = self.attempts
        span_id = os.urandom(8).hex() if attempts else self.next_id
        attempts.append(span_id)
        flags = "01" if self.sampled else "00"
        lines = f"traceparent: 00-{self.trace_id}-{span_id}-{flags}\r\n".encode()
        if self.state:
            lines += encode_header("tracestate", self.state)
        OUTGOING.set(lines)  # type: ignore[arg-type]  # a `HeaderBlock`: made of good characters


DRAWN = 64
"""Ids for so many requests are drawn together."""


def random_ids() -> Iterator[str]:
    """For each request 64 hexadecimal digits: the ids of a trace (32), of its first span and of a
    child of that (16 each)."""
    while True:
        digits = os.urandom(32 * DRAWN).hex()
        for begin in range(0, len(digits), 64):
            yield digits[begin : begin + 64]


_name = itemgetter(0)


def trace_of(headers: RawHeaders, sample: float, ids: str) -> Trace:
    """A request's part in the trace that its headers name, or the beginning of a new one.

    Args:
        headers: as ASGI has them.
        sample: the share of new traces that are sampled.
        ids: one of `random_ids`.
    """
    if b"traceparent" in map(_name, headers):
        parents = [value.strip() for name, value in headers if name == b"traceparent"]
        match = _TRACEPARENT.fullmatch(parents[0]) if len(parents) == 1 else None
        if match is not None and (match[1] != b"00" or match[5] is None):
            states = [value.strip() for name, value in headers if name == b"tracestate"]
            state = b",".join(states).decode("latin-1")
            return Trace(
                match[2].decode(),
                ids[32:48],
                ids[48:],
                bool(int(match[4], 16) & _SAMPLED),
                match[3].decode(),
                state if len(state) <= MAX_STATE and state.isprintable() else "",
            )
    return Trace(ids[:32], ids[32:48], ids[48:], sample >= 1.0 or random.random() < sample)
