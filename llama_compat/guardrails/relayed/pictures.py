"""The pictures of a stream that is relayed: judged on their way, which only they have to wait."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

from llama_compat.guardrails.asked.drawn import may_show, seen, seen_image
from llama_compat.guardrails.guard import Guard
from llama_compat.guardrails.relayed.framing import DATA, end_of_event, one_lined


async def seen_along(
    events: bytes, guard: Guard, *, of_images: bool = False
) -> AsyncGenerator[bytes, None]:
    """What may be shown of events, which are whole: first what was before a picture.

    Args:
        events: they.
        guard: of the request.
        of_images: whether they are those of an API for images, in each of which one comes whole,
            as it is so far or at last.

    Raises (from the generator):
        Blocked: a picture may not be shown.
    """
    see = partial(seen_image if of_images else seen, guard=guard)
    begin = at = 0
    while at < len(events):
        end = end_of_event(events, at)
        raw = events[at:end]
        if may_show(raw):
            if begin < at:
                yield events[begin:at]
            yield await _seen(raw, see)
            begin = end
        at = end
    if begin < at:
        yield events[begin:]


_See = Callable[[bytes], Awaitable[bytes]]


async def _seen(raw: bytes, see: _See) -> bytes:
    lines = [raw] if DATA.fullmatch(raw) is not None else list(one_lined(raw))
    shown: list[bytes] = []
    changed = False
    for line in lines:
        if line is None:
            return raw  # it is no JSON, and so has text alone
        new = await _seen_line(line, see)
        changed = changed or new is not line
        shown.append(new)
    return b"".join(shown) if changed else raw


async def _seen_line(line: bytes, see: _See) -> bytes:
    match = DATA.fullmatch(line)
    assert match is not None
    event = match[2]
    new = await see(event)
    if new is event:
        return line
    return b"%b%b%b" % (match[1], new, match[3]) if new else b""
