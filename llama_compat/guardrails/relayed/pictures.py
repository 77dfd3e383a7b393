"""The pictures of a stream that is relayed: judged on their way, which only they have to wait."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from llama_compat.guardrails.asked.drawn import may_show, seen
from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.relayed.stream import DATA, end_of_event, one_lined


async def seen_along(events: bytes, guard: Guard) -> AsyncGenerator[bytes, None]:
    """What may be shown of events, which are whole: first what was before a picture.

    Raises (from the generator):
        Blocked: a picture may not be shown.
    """
    begin = at = 0
    while at < len(events):
        end = end_of_event(events, at)
        raw = events[at:end]
        if may_show(raw):
            if begin < at:
                yield events[begin:at]
            yield await _seen(raw, guard)
            begin = end
        at = end
    if begin < at:
        yield events[begin:]


async def _seen(raw: bytes, guard: Guard) -> bytes:
    lines = [raw] if DATA.fullmatch(raw) is not None else list(one_lined(raw))
    shown: list[bytes] = []
    changed = False
    for line in lines:
        if line is None:
            return raw  # it is no JSON, and so has text alone
        new = await _seen_line(line, guard)
        changed = changed or new is not line
        shown.append(new)
    return b"".join(shown) if changed else raw


async def _seen_line(line: bytes, guard: Guard) -> bytes:
    match = DATA.fullmatch(line)
    assert match is not None
    event = match[2]
    new = await seen(event, guard)
    return line if new is event else b"%b%b%b" % (match[1], new, match[3])
